package native_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// Members of a server's project and administrators diagnose it, readers and others do not. What lies on its disks is for the project alone.
func TestServerDiagnoses(t *testing.T) {
	w := newWorld(t)
	srv := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "web1", Project: "ann", State: compute.Stopped, Power: compute.PowerOff}
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.Servers().Insert(tx, srv) }))
	w.ask("ann", "GET", "/servers/web1/diagnoses/newest", "", 404)
	w.says("POST", "/servers/web1/diagnoses", `{"luks_keys": [{"key": "open sesame!"}]}`, 400, "luks_keys[0].key is no base64")
	first := w.ask("ann", "POST", "/servers/web1/diagnoses", `{"luks_keys": [{"key": "b3BlbnNlc2FtZQ=="}]}`, 202)
	w.has(first, object{"state": "running"})
	if text := fmt.Sprint(first); strings.Contains(text, "opensesame") || strings.Contains(text, "b3BlbnNlc2FtZQ==") {
		t.Errorf("the answer has the key: %s", text)
	}
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
		open, err := w.s.Unended(tx, compute.Subject(srv.ID))
		if err == nil && (len(open) != 1 || !strings.Contains(open[0].Secret.Reveal(), "b3BlbnNlc2FtZQ==")) {
			t.Errorf("%d jobs, or the key is not in the job's secret", len(open))
		}
		return err
	}))
	w.says("POST", "/servers/web1/diagnoses", `{}`, 409, "salvor diagnosis show "+srv.ID)
	w.says("POST", "/servers/web1/diagnoses", `{"reboot": true}`, 400, "reboot")
	id, _ := first["id"].(string)
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
		return w.services.Diagnoses.Edit(t.Context(), tx, srv.ID, id, func(d *diagnose.Record) {
			d.Report.Findings = []diagnose.Finding{{ID: "fstab-device-missing", Title: "Line 7 names UUID=secretive", Severity: diagnose.BlocksBoot, Stage: diagnose.Target, Confidence: 1,
				Evidence: []diagnose.Evidence{{Kind: diagnose.FromFile, Path: "/etc/fstab", Line: 7, Text: "UUID=secretive /data", Command: []string{"findmnt", "secretive"}}},
				ByHand:   "Mount secretive.", Repair: &diagnose.Repair{Summary: "Remove secretive.", Consent: diagnose.ConsentFiles, Writes: []string{"/secretive"}}}}
			d.Report.Systems = []diagnose.SystemSummary{{Root: "/dev/vda1", Name: "secretive Linux"}}
			d.Report.NotExamined = []diagnose.Gap{{What: "/dev/vda2", Why: "mount says secretive"}}
			d.Report.ExaminedIn = 2
			d.AddGap("disk vdb", "the host 10.9.9.9 answers "+problem.Quote("no 10.9.9.9"))
			d.End(diagnose.Finished, time.Now(), "")
		})
	}))
	w.has(w.ask("ann", "GET", "/servers/"+srv.ID+"/diagnoses/"+id, "", 200), object{"id": id, "state": "finished"})
	if seen := fmt.Sprint(w.ask("ann", "GET", "/servers/web1/diagnoses/newest", "", 200)); strings.Count(seen, "secretive") != 8 || strings.Contains(seen, "no 10.9.9.9") {
		t.Errorf("the owner sees %s", seen)
	}
	if seen := fmt.Sprint(w.admin("GET", "/servers/web1/diagnoses/newest", "", 200)); strings.Contains(seen, "secretive") || !strings.Contains(seen, "/etc/fstab") || !strings.Contains(seen, "no 10.9.9.9") ||
		strings.Contains(seen, problem.Redacted) || !strings.Contains(seen, "only members of the server's project") {
		t.Errorf("an administrator sees %s", seen)
	}
	w.admin("POST", "/servers/web1/diagnoses", `{"only_read": true}`, 202)
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
		open, err := w.s.Unended(tx, compute.Subject(srv.ID))
		if err == nil && (len(open) == 0 || !strings.Contains(string(open[len(open)-1].Args), `"only_read":true`)) {
			t.Errorf("the open jobs are %+v, want one with only_read", open)
		}
		return err
	}))
	if list := w.ask("ann", "GET", "/servers/web1/diagnoses", "", 200)["diagnoses"].([]any); len(list) != 2 {
		t.Errorf("%d diagnoses", len(list))
	}
	for _, path := range []string{"/servers/web1/diagnoses", "/servers/web1/diagnoses/newest"} {
		w.ask("bob", "GET", path, "", 404)
		w.ask("reader of ann", "GET", path, "", 403)
	}
	w.ask("bob", "POST", "/servers/web1/diagnoses", `{}`, 404)
	w.ask("reader of ann", "POST", "/servers/web1/diagnoses", `{}`, 403)
}

// TestConfirmServerDiagnosis: members of a server's project and administrators may state that it works, while it is on and in its own system. Only members of
// the project read the words.
func TestConfirmServerDiagnosis(t *testing.T) {
	w := newWorld(t)
	srv := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: "web1", Project: "ann", State: compute.Active, Power: compute.PowerOn}
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error { return w.s.Servers().Insert(tx, srv) }))
	set := func(change func(*compute.Server)) {
		must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
			now := must.Get(w.s.Servers().Get(t.Context(), tx, srv.ID))(t)
			change(now)
			return w.s.Servers().Save(tx, now)
		}))
	}
	const path, body = "/servers/web1/diagnoses/newest/confirm", `{"words": "secretive runs"}`
	w.ask("ann", "POST", path, body, 404)
	id, _ := w.ask("ann", "POST", "/servers/web1/diagnoses", `{}`, 202)["id"].(string)
	w.says("POST", path, body, 409, "is under way")
	must.OK(t, w.s.Do(t.Context(), func(tx job.Tx) error {
		return w.services.Diagnoses.Edit(t.Context(), tx, srv.ID, id, func(d *diagnose.Record) { d.End(diagnose.Finished, time.Now(), "") })
	}))
	w.ask("bob", "POST", path, body, 404)
	w.ask("reader of ann", "POST", path, body, 403)
	w.says("POST", path, `{}`, 400, "how you know")
	set(func(s *compute.Server) { s.Power = compute.PowerOff })
	w.says("POST", path, body, 409, "salvor server start "+srv.ID)
	set(func(s *compute.Server) { s.Power, s.Rescue = compute.PowerOn, &rescue.Session{State: rescue.Ready} })
	w.says("POST", path, body, 409, "salvor server unrescue "+srv.ID)
	set(func(s *compute.Server) { s.Rescue = nil })
	if seen := fmt.Sprint(w.ask("ann", "POST", "/servers/"+srv.ID+"/diagnoses/"+id+"/confirm", body, 202)); !strings.Contains(seen, "outcome:works") || !strings.Contains(seen, "secretive runs") {
		t.Errorf("the owner sees %s", seen)
	}
	w.says("POST", path, body, 409, "says already that it works")
	if seen := fmt.Sprint(w.admin("GET", "/servers/web1/diagnoses/newest", "", 200)); strings.Contains(seen, "secretive") || !strings.Contains(seen, "kind:person") {
		t.Errorf("an administrator sees %s", seen)
	}
	events := fmt.Sprint(must.Get(w.s.Latest(t.Context(), compute.Subject(srv.ID), 10))(t))
	if !strings.Contains(events, "confirmed that it works, after diagnosis "+id) || strings.Contains(events, "secretive") {
		t.Errorf("the timeline is %s, want a confirmation without its words", events)
	}
}
