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
	w.admin("POST", "/servers/web1/diagnoses", `{}`, 202)
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
