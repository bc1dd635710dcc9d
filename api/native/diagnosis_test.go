package native_test

import (
	"fmt"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/metal"
	"salvor/problem"
)

// Who may rescue a node may diagnose it and read what was found; who only reads the node, or sees it not, may not.
func TestDiagnoses(t *testing.T) {
	w := newWorld(t)
	w.nodes = append(w.nodes, &metal.Node{ID: "11111111-2222-3333-4444-555555555555", Name: "kea", Owner: "ann"})
	w.admin("GET", "/nodes/kea/diagnoses/newest", "", 404)
	w.has(w.ask("ann", "POST", "/nodes/kea/diagnoses", `{"reboot": true}`, 202), object{"id": "d1", "state": "running", "args": object{"reboot": true}})
	w.diagnoses[0].Report.NotExamined = []diagnose.Gap{{What: "power", Why: "the BMC answers " + problem.Quote("10.9.9.9 is down")}}
	w.diagnoses[0].Report.Findings = []diagnose.Finding{{ID: "memory-failing", Stage: diagnose.Firmware, Severity: diagnose.Degrades, Evidence: []diagnose.Evidence{{Kind: diagnose.FromEventLog, Text: "DIMM of 10.9.9.9"}, {Kind: diagnose.FromFile, Path: "/etc/fstab"}}}}
	w.diagnoses[0].Report.Verdict = diagnose.Verdict{Outcome: diagnose.CauseFound, Finding: "fstab-device-missing", Stage: diagnose.Target}
	seen := fmt.Sprint(w.ask("ann", "GET", "/nodes/kea/diagnoses/newest", "", 200))
	if strings.Contains(seen, "10.9.9.9") || !strings.Contains(seen, "/etc/fstab") {
		t.Errorf("the owner sees %s", seen)
	}
	if seen := fmt.Sprint(w.admin("GET", "/nodes/kea/diagnoses/newest", "", 200)); strings.Count(seen, "10.9.9.9") != 2 {
		t.Errorf("an administrator sees %s", seen)
	}
	w.has(w.admin("POST", "/nodes/kea/diagnoses", `{"only_read": true}`, 202), object{"args": object{"only_read": true}})
	w.has(w.admin("GET", "/nodes/kea/diagnoses/d1", "", 200), object{"id": "d1"})
	if list := w.admin("GET", "/nodes/kea/diagnoses", "", 200)["diagnoses"].([]any); len(list) != 2 {
		t.Errorf("%d diagnoses", len(list))
	}
	w.admin("GET", "/nodes/kea/diagnoses/d9", "", 404)
	w.says("POST", "/nodes/kea/diagnoses", `{"restart": true}`, 400, "restart")
	// LUKS keys reach the diagnosis, and are in no answer.
	const uuid = "0dd1e5c4-0000-4000-8000-00000000000a"
	if answer := fmt.Sprint(w.ask("ann", "POST", "/nodes/kea/diagnoses", `{"luks_keys": [{"key": "b3BlbnNlc2FtZQ=="}, {"uuid": "`+uuid+`", "key": "YmFybGV5"}]}`, 202)); strings.Contains(answer, "b3BlbnNlc2FtZQ") || strings.Contains(answer, "opensesame") {
		t.Errorf("the answer has a key: %s", answer)
	}
	if keys := w.diagnoses[0].Args.LUKSKeys; len(keys) != 2 || keys[0].Key.Reveal() != "opensesame" || keys[1].UUID != uuid {
		t.Errorf("%d keys reach the diagnosis", len(keys))
	}
	w.says("POST", "/nodes/kea/diagnoses", `{"luks_keys": [{"key": "open sesame!"}]}`, 400, "luks_keys[0].key is no base64")
	for _, path := range []string{"/nodes/kea/diagnoses", "/nodes/kea/diagnoses/newest"} {
		w.ask("bob", "GET", path, "", 404)
		w.ask("reader of ann", "GET", path, "", 403)
	}
	w.ask("bob", "POST", "/nodes/kea/diagnoses", `{}`, 404)
}

// The text of a console is read at the request. Its lines are findings, and the text is not handed on.
func TestDiagnosisWithAConsole(t *testing.T) {
	w := newWorld(t)
	w.nodes = append(w.nodes, &metal.Node{ID: "11111111-2222-3333-4444-555555555555", Name: "kea", Owner: "ann"})
	got := w.ask("ann", "POST", "/nodes/kea/diagnoses", `{"console": "Linux version 6.1\nsecret of a program\n(initramfs) "}`, 202)
	if seen := fmt.Sprint(got); !strings.Contains(seen, "console-initramfs-prompt") || strings.Contains(seen, "secret of a program") {
		t.Errorf("%s", seen)
	}
	w.says("POST", "/nodes/kea/diagnoses", `{"console": "`+strings.Repeat("x", 256<<10+1)+`"}`, 400, "send its last 262144 bytes")
}

// TestConfirmNodeDiagnosis: who may rescue a node may state that it works, and sees no words of BMCs in the answer.
func TestConfirmNodeDiagnosis(t *testing.T) {
	w := newWorld(t)
	w.nodes = append(w.nodes, &metal.Node{ID: "11111111-2222-3333-4444-555555555555", Name: "kea", Owner: "ann"})
	w.ask("ann", "POST", "/nodes/kea/diagnoses", `{}`, 202)
	const path, body = "/nodes/kea/diagnoses/newest/confirm", `{"words": "I logged in"}`
	w.says("POST", path, body, 409, "is under way")
	w.diagnoses[0].State = diagnose.Finished
	w.diagnoses[0].Report.NotExamined = []diagnose.Gap{{What: "power", Why: "the BMC answers " + problem.Quote("10.9.9.9 is down")}}
	w.diagnoses[0].Report.Judge()
	w.ask("bob", "POST", path, body, 404)
	w.ask("reader of ann", "POST", path, body, 403)
	w.ask("ann", "POST", "/nodes/kea/diagnoses/d9/confirm", body, 404)
	w.says("POST", path, `{"sure": true}`, 400, "sure")
	w.says("POST", path, `{}`, 400, "how you know")
	if w.diagnoses[0].Report.Proof != nil {
		t.Errorf("a refused request has left the proof %+v", w.diagnoses[0].Report.Proof)
	}
	got := w.ask("ann", "POST", path, body, 202)
	if seen := fmt.Sprint(got); !strings.Contains(seen, "outcome:works") || !strings.Contains(seen, "kind:person") || !strings.Contains(seen, "I logged in") || strings.Contains(seen, "10.9.9.9") {
		t.Errorf("the owner sees %s", seen)
	}
	w.says("POST", path, body, 409, "says already that it works")
}
