package native_test

import (
	"strings"
	"testing"

	"salvor/job"
	"salvor/metal"
)

// Only administrators have a BMC looked at, by a question that locks nothing; what is asked for is bounded.
func TestProbe(t *testing.T) {
	w := newWorld(t)
	w.nodes = append(w.nodes, &metal.Node{ID: "11111111-2222-3333-4444-555555555555", Name: "kea", Owner: "ann"})
	w.has(w.admin("GET", "/nodes/kea/probe", "", 200), object{"kind": metal.ProbeKind})
	w.has(w.admin("POST", "/nodes/kea/recording", `{"paths": ["/redfish/v1"], "key": "0123456789abcdef"}`, 200), object{"kind": metal.RecordingKind})
	if len(w.asked) != 2 || w.asked[0].Class != job.Background || w.asked[1].Class != job.Background || w.asked[1].Args.(metal.RecordArgs).Paths[0] != "/redfish/v1" {
		t.Errorf("asked %+v", w.asked)
	}
	w.ask("ann", "GET", "/nodes/kea/probe", "", 403)
	w.ask("ann", "POST", "/nodes/kea/recording", `{}`, 403)
	w.admin("GET", "/nodes/none/probe", "", 404)
	many := `"/redfish/v1"` + strings.Repeat(`, "/redfish/v1"`, metal.MaxRecorded)
	for body, want := range map[string]string{
		`{"paths": [], "key": "0123456789abcdef"}`: "paths", `{"paths": [` + many + `], "key": "0123456789abcdef"}`: "paths",
		`{"paths": ["/redfish/v1"]}`: "key", `{"paths": ["/redfish/v1"], "key": "0123456789abcdef", "method": "POST"}`: "method",
	} {
		w.says("POST", "/nodes/kea/recording", body, 400, want)
	}
	if len(w.asked) != 2 {
		t.Errorf("%d questions", len(w.asked))
	}
}
