package native_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/repair"
	"salvor/test/must"
)

const keaID = "11111111-2222-3333-4444-555555555555"

// repairable adds a machine of ann's that bob leases, in the store and in the fake.
func (w *world) repairable() {
	w.Helper()
	n := &metal.Node{ID: keaID, Name: "kea", Driver: "fake-hardware", Owner: "ann", Lessee: "bob", ProvisionState: metal.Active}
	w.nodes = append(w.nodes, n)
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error { return w.s.InsertNode(tx, n) }))
}

// editRepair changes a repair as its conductor does.
func (w *world) editRepair(id string, change func(*metal.Repair)) {
	w.Helper()
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error { return w.repairs.Edit(w.Context(), tx, keaID, id, change) }))
}

// beginRepair begins a repair that waits for a consent to a plan.
func (w *world) beginRepair(plan repair.Plan) string {
	w.Helper()
	id := fmt.Sprint(w.ask("ann", "POST", "/nodes/kea/repairs", `{"consents": ["files"], "wait_for_consent": true}`, 202)["id"])
	plan.Seal()
	body := must.Get(json.Marshal(plan))(w)
	must.OK(w, w.s.Do(w.Context(), func(tx job.Tx) error {
		return w.repairs.SavePart(w.Context(), tx, metal.RepairPart{NodeID: keaID, RepairID: id, Name: metal.RepairPlanPart, Body: body})
	}))
	w.editRepair(id, func(r *metal.Repair) {
		r.State, r.Digest, r.Needs = metal.RepairAwaitingConsent, plan.Digest, plan.Consents
	})
	return id
}

// fstabPlan changes a file, with texts that a hostile disk holds.
func fstabPlan() repair.Plan {
	return repair.Plan{Version: repair.PlanVersion, Mended: []string{"fstab-device-missing"}, Consents: []diagnose.Consent{diagnose.ConsentFiles},
		Files: []repair.FileChange{{Root: "/dev/sda1", Path: "/etc/fstab\x1b]0;owned\x07", Consent: diagnose.ConsentFiles, Diff: "-# password=hunter2\n-/dev/gone / ext4\x1b[2J\n+/dev/sda1 / ext4\u202e"}},
		Disks: []repair.DiskChange{{Path: "/dev/sda", Serial: "S\x1b[1m", Chunks: 1}}}
}

// repairRoutes are all of them, with a body that each takes.
func repairRoutes(id, digest string) [][3]string {
	own := "/nodes/kea/repairs/" + id
	return [][3]string{{"GET", "/nodes/kea/repairs", ""}, {"GET", own, ""}, {"GET", "/nodes/kea/repairs/newest", ""}, {"POST", "/nodes/kea/repairs", `{}`},
		{"POST", own + "/consent", `{"digest": "` + digest + `", "consents": ["files"]}`}, {"POST", own + "/decline", `{}`}, {"POST", own + "/confirm", `{}`}, {"POST", own + "/undo", `{}`}}
}

// TestWhoMayRepair: a reader of the project may not even read a plan, a member of the lessee neither, and others do not see the node.
func TestWhoMayRepair(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.repairable()
	id := w.beginRepair(fstabPlan())
	for _, route := range repairRoutes(id, strings.Repeat("0", 64)) {
		for requester, status := range map[string]int{"": 401, "carl": 404, "manager of carl": 404, "reader of ann": 403, "reader of bob": 403, "bob": 403} {
			got := w.ask(requester, route[0], route[1], route[2], status)
			if text := fmt.Sprint(got); strings.Contains(text, "fstab") || strings.Contains(text, id) && requester != "reader of ann" {
				t.Errorf("%s %s tells %q %s", route[0], route[1], requester, text)
			}
		}
		if route[0] == "GET" {
			for _, requester := range []string{"ann", "manager of bob", "admin"} {
				if text := fmt.Sprint(w.ask(requester, route[0], route[1], "", 200)); !strings.Contains(text, id) {
					t.Errorf("%s does not read %s", requester, route[1])
				}
			}
		}
	}
	for requester, reads := range map[string]bool{"ann": true, "manager of bob": true, "admin": true, "bob": false, "reader of ann": false} {
		if text := fmt.Sprint(w.ask(requester, "GET", "/nodes/kea/why", "", 200)); strings.Contains(text, "salvor repair consent kea "+id) != reads {
			t.Errorf("%s is told why: %s", requester, text)
		}
	}
	// Who leads the lessee's project may consent, and is named.
	digest := fmt.Sprint(w.ask("manager of bob", "GET", "/nodes/kea/repairs/newest", "", 200)["digest"])
	consented := w.ask("manager of bob", "POST", "/nodes/kea/repairs/newest/consent", `{"digest": "`+digest+`", "consents": ["files"]}`, 202)
	if by := consented["consent"].(object)["by"]; by != "bob" {
		t.Errorf("consented by %v", by)
	}
	events := must.Get(w.s.Latest(w.Context(), job.Node(keaID), 10))(t)
	if last := fmt.Sprint(events); !strings.Contains(last, "consented to files of the repair with digest "+digest) {
		t.Errorf("the timeline has %s", last)
	}
}

// TestRepairAnswers: one repair at a time, a consent to the plan that is there alone, and unknown fields, ids and consents are refused.
func TestRepairAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.repairable()
	w.admin("GET", "/nodes/kea/repairs/newest", "", 404)
	w.says("POST", "/nodes/kea/repairs/newest/undo", `{}`, 404, "has no repair newest")
	for body, text := range map[string]string{
		`{"restart": true}`: "restart", `{"undoes": "x"}`: "undoes", `{"method": "exact"}`: "method", `[]`: "", `{"findings": "all"}`: "findings",
		`{"findings": ["../etc"]}`: "is no id of a finding", `{"consents": ["data"]}`: "may lose data", `{"consents": ["all"]}`: "use settings, files or boot",
		`{"consents": ["files", "files", "files", "files", "files"]}`: "once", `{"digest": "x"}`: "is no digest", `{"digest": "` + strings.Repeat("a", 65) + `"}`: "is no digest",
		`{"digest": "aa", "wait_for_consent": true}`: "give one of them", `{"findings": ["` + strings.Repeat(`a", "`, 100) + `a"]}`: "at most 100",
	} {
		w.says("POST", "/nodes/kea/repairs", body, 400, text)
	}
	id := w.beginRepair(fstabPlan())
	w.says("POST", "/nodes/kea/repairs", `{}`, 409, "salvor repair show")
	own := "/nodes/kea/repairs/" + id
	w.says("GET", "/nodes/kea/repairs/other", "", 404, "has no repair other")
	w.says("POST", own+"/confirm", `{"sure": true}`, 400, "sure")
	w.says("POST", own+"/confirm", `{}`, 409, "there is nothing to confirm")
	w.says("POST", own+"/undo", `{}`, 409, "nothing that can be taken back")
	w.says("POST", own+"/consent", `{"digest": "0123", "consents": ["files"]}`, 409, "salvor repair show")
	digest := fmt.Sprint(w.admin("GET", own, "", 200)["digest"])
	w.says("POST", own+"/consent", `{"digest": "`+digest+`", "consents": ["settings"]}`, 400, `needs the consent "files"`)
	w.says("POST", own+"/consent", `{"digest": "`+digest+`", "consents": ["data"]}`, 400, "may lose data")
	w.admin("POST", own+"/consent", `{"digest": "`+digest+`", "consents": ["files"]}`, 202)
	w.says("POST", own+"/consent", `{"digest": "`+digest+`", "consents": ["files"]}`, 409, "waits for no consent")
	w.says("POST", own+"/decline", `{}`, 409, "waits for no consent")
	w.editRepair(id, func(r *metal.Repair) { r.State, r.FinishedAt, r.UndoFiles = metal.RepairUnproven, time.Now(), 1 })
	w.has(w.admin("GET", own, "", 200), object{"state": "unproven", "undo": "files"})
	w.has(w.ask("ann", "POST", own+"/confirm", `{}`, 202), object{"state": "proven", "proven_by": "confirmed by ann"})
	w.says("POST", own+"/undo", `{"findings": ["fstab-device-missing"], "unknown": 1}`, 400, "unknown")
	undo := w.ask("ann", "POST", own+"/undo", `{}`, 202)
	w.has(undo["args"].(object), object{"undoes": id, "method": "files"})
	w.editRepair(fmt.Sprint(undo["id"]), func(r *metal.Repair) { r.State, r.FinishedAt = metal.RepairFailed, time.Now() })
	w.editRepair(id, func(r *metal.Repair) { r.State = metal.RepairInterrupted })
	w.says("POST", "/nodes/kea/repairs", `{}`, 409, "salvor repair undo "+keaID+" "+id) // although an undo came after it
	w.editRepair(id, func(r *metal.Repair) { r.State = metal.RepairUndone })
	w.has(w.admin("POST", "/nodes/kea/repairs", `{}`, 202), object{"state": "planning"})
	if all := w.admin("GET", "/nodes/kea/repairs", "", 200)["repairs"].([]any); len(all) != 3 || all[0].(object)["plan"] != nil {
		t.Errorf("%v", all)
	}
}

// TestRepairTexts: a plan's texts come out harmless, and only those who may see the infrastructure read what a BMC says.
func TestRepairTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.repairable()
	id := w.beginRepair(fstabPlan())
	w.editRepair(id, func(r *metal.Repair) { r.Problem = "the BMC answers " + problem.Quote("10.9.9.9 is down") })
	for _, requester := range []string{"ann", "manager of bob", "admin"} {
		for _, path := range []string{"/nodes/kea/repairs", "/nodes/kea/repairs/newest"} {
			text := string(must.Get(json.Marshal(w.ask(requester, "GET", path, "", 200)))(t))
			if strings.Contains(text, "10.9.9.9") != (requester == "admin") {
				t.Errorf("%s reads in %s: %s", requester, path, text)
			}
			for _, harm := range []string{`\u001b`, `\u0007`, "\u202e", "hunter2"} {
				if strings.Contains(text, harm) {
					t.Errorf("%s has %q: %s", path, harm, text)
				}
			}
			if strings.HasSuffix(path, "newest") && !strings.Contains(text, "+/dev/sda1 / ext4") {
				t.Errorf("the plan has no diff: %s", text)
			}
		}
	}
	// An answer to a change is redacted too.
	w.editRepair(id, func(r *metal.Repair) { r.State = metal.RepairBooting })
	if text := fmt.Sprint(w.ask("ann", "POST", "/nodes/kea/repairs/newest/confirm", `{}`, 202)); strings.Contains(text, "10.9.9.9") {
		t.Errorf("an answer has %s", text)
	}
}

// TestRepairTakesLUKSKeys: keys in the form of those of a diagnosis lie in the job's secret, and are in no answer.
func TestRepairTakesLUKSKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.repairable()
	const uuid = "0dd1e5c4-0000-4000-8000-00000000000a"
	for body, text := range map[string]string{
		`["b3BlbnNlc2FtZQ=="]`: "luks_keys", `[{"key": "open sesame!"}]`: "luks_keys[0].key is no base64", `[{"key": ""}]`: "has 0 bytes", `[{"key": "YQ==", "uuid": "sda"}]`: "is no UUID",
		`[` + strings.Repeat(`{"key": "YQ=="},`, 16) + `{"key": "YQ=="}]`: "at most 16",
	} {
		w.says("POST", "/nodes/kea/repairs", `{"luks_keys": `+body+`}`, 400, text)
	}
	answers := []object{w.ask("ann", "POST", "/nodes/kea/repairs", `{"luks_keys": [{"key": "b3BlbnNlc2FtZQ=="}, {"uuid": "`+strings.ToUpper(uuid)+`", "key": "YmFybGV5"}]}`, 202)}
	for _, path := range []string{"/nodes/kea/repairs", "/nodes/kea/repairs/newest"} {
		answers = append(answers, w.ask("ann", "GET", path, "", 200))
	}
	for _, text := range []string{"b3BlbnNlc2FtZQ", "opensesame", "YmFybGV5", "barley", "luks_keys"} {
		if strings.Contains(fmt.Sprint(answers), text) {
			t.Errorf("an answer has %q", text)
		}
	}
	var jobs []job.Job
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) (err error) { jobs, err = w.s.Unended(tx, job.Node(keaID)); return err }))
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	keys, byUUID, err := diagnose.UnpackLUKSKeys(jobs[0].Secret)
	must.OK(t, err)
	if len(keys) != 1 || string(keys[0]) != "opensesame" || len(byUUID) != 1 || len(byUUID[uuid]) != 1 || string(byUUID[uuid][0]) != "barley" {
		t.Errorf("the job has %d keys, and for containers %d", len(keys), len(byUUID))
	}
}
