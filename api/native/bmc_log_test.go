package native_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// Only administrators have the log of a BMC read, by a question that locks nothing; a time that is not known is null.
func TestBMCLog(t *testing.T) {
	w := newWorld(t)
	w.nodes = append(w.nodes, &metal.Node{ID: "11111111-2222-3333-4444-555555555555", Name: "kea", Owner: "ann"})
	w.answer = must.Get(json.Marshal(metal.EventLog{
		Entries: []metal.LogEntry{
			{Log: "SEL", ID: "1", Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Severity: metal.HealthCritical, Message: "m", State: metal.EventAsserted},
			{Log: "SEL", ID: "2", Severity: metal.HealthWarning}, {Log: "SEL", ID: "3", Severity: metal.HealthOK},
		},
		Logs: []metal.LogSummary{{Name: "SEL", Truncated: true}},
	}))(t)
	for query, want := range map[string]string{"": "1 2 3", "?severity=ok": "1 2 3", "?severity=warning&limit=500": "1 2", "?severity=critical": "1"} {
		got := w.admin("GET", "/nodes/kea/bmc-log"+query, "", 200)
		var ids []string
		for _, e := range got["entries"].([]any) {
			e := e.(object)
			ids = append(ids, fmt.Sprint(e["id"]))
			if at := map[string]any{"1": "2026-03-04T05:06:07Z", "2": nil, "3": nil}[fmt.Sprint(e["id"])]; e["time"] != at {
				t.Errorf("the time of %v: %v, want %v", e["id"], e["time"], at)
			}
		}
		if strings.Join(ids, " ") != want {
			t.Errorf("%s: %q, want %s", query, ids, want)
		}
	}
	if q := w.asked[0]; q.Class != job.Background || q.Kind != metal.EventLogKind || (q.Args.(metal.EventLogArgs).Limit != 100 && q.Args.(metal.EventLogArgs).Limit != 500) {
		t.Errorf("asked %+v", q)
	}
	w.answer = must.Get(json.Marshal(metal.Health{Health: metal.HealthWarning}))(t)
	w.has(w.admin("GET", "/nodes/kea/bmc-health", "", 200), object{"health": "warning"})
	asked := len(w.asked)
	for _, path := range []string{"/nodes/kea/bmc-log", "/nodes/kea/bmc-health"} {
		w.ask("ann", "GET", path, "", 403)
	}
	for query, want := range map[string]string{"limit=0": "limit", "limit=501": "limit", "limit=x": "limit", "severity=bad": "severity"} {
		w.says("GET", "/nodes/kea/bmc-log?"+query, "", 400, want)
	}
	w.admin("GET", "/nodes/none/bmc-log", "", 404)
	if len(w.asked) != asked {
		t.Errorf("%d questions more", len(w.asked)-asked)
	}
}
