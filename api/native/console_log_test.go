package native_test

import (
	"testing"
	"time"

	"salvor/metal"
)

// TestConsoleLog: who may rescue a node reads its console, and a member of a project no words of its BMC.
func TestConsoleLog(t *testing.T) {
	w := newWorld(t)
	w.nodes = append(w.nodes, &metal.Node{ID: "11111111-2222-3333-4444-555555555555", Name: "kea", Owner: "ann", ConsoleEnabled: true})
	w.has(w.ask("ann", "GET", "/nodes/kea/console", "", 200), object{"enabled": true, "parts": []any{}})
	w.console = metal.ConsoleLog{Problem: "the BMC at 192.0.2.1 says “\"no\"”", Parts: []metal.ConsolePart{{Since: time.Unix(0, 0).UTC(), Session: time.Unix(5, 0).UTC(), Text: "kea login: "}}}
	parts := []any{object{"since": "1970-01-01T00:00:00Z", "session": "1970-01-01T00:00:05Z", "text": "kea login: "}}
	w.has(w.admin("GET", "/nodes/kea/console", "", 200), object{"problem": w.console.Problem, "parts": parts})
	got := w.ask("ann", "GET", "/nodes/kea/console", "", 200)
	w.has(got, object{"parts": parts})
	if got["problem"] == w.console.Problem {
		t.Errorf("a member sees %v", got["problem"])
	}
	w.ask("bob", "GET", "/nodes/kea/console", "", 404)
	w.ask("reader of ann", "GET", "/nodes/kea/console", "", 403)
}
