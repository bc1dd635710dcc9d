package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/diagnose/machine"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/fixture"
)

// TestVerdictOfAProof has each combination of state, power, console log and finding. The verdict is works only if a machine in use is on, its console
// shows the login of its newest boot, and no finding may block.
func TestVerdictOfAProof(t *testing.T) {
	t.Parallel()
	since := time.Unix(1000, 0)
	part := func(text string) metal.ConsolePart {
		return metal.ConsolePart{Since: since, Until: since.Add(time.Minute), Text: text}
	}
	logs := map[string]struct {
		log    metal.ConsoleLog
		proves bool
	}{
		"no log":                           {metal.ConsoleLog{}, false},
		"a login":                          {metal.ConsoleLog{Parts: []metal.ConsolePart{part(panicText), part(loginText)}}, true},
		"a panic":                          {metal.ConsoleLog{Parts: []metal.ConsolePart{part(loginText), part(panicText)}}, false},
		"a login before an interruption":   {metal.ConsoleLog{Parts: []metal.ConsolePart{part(loginText), {Since: since}}}, false},
		"a login of a line that is closed": {metal.ConsoleLog{Problem: "someone else reads the serial line", Parts: []metal.ConsolePart{part(loginText)}}, false},
		"a log of a former release":        {metal.ConsoleLog{Parts: []metal.ConsolePart{{Since: since, Text: loginText}}}, false},
		"a restart":                        {metal.ConsoleLog{Parts: []metal.ConsolePart{part(loginText + "\n[ 9.1] reboot: Restarting system\n")}}, false},
	}
	findings := map[string]struct {
		severity   diagnose.Severity
		confidence float64
	}{
		"none": {}, "info": {diagnose.Info, 1}, "degrades": {diagnose.Degrades, 0.9},
		"blocks the boot": {diagnose.BlocksBoot, 0.9}, "may block the boot": {diagnose.BlocksBoot, 0.3}, "may block the access": {diagnose.BlocksAccess, 0.3},
	}
	works := 0
	for _, state := range []metal.State{metal.Active, metal.Rescue, metal.RescueWait, metal.Cleaning, metal.CleanWait, metal.ServiceWait, metal.Available, metal.Manageable, metal.RescueFailed} {
		for _, power := range []metal.Power{metal.PowerOn, metal.PowerOff, metal.PowerError, metal.PowerUnknown} {
			for _, node := range []string{"", "console disabled", "power changes"} {
				for logName, l := range logs {
					for findingName, f := range findings {
						n := &metal.Node{ProvisionState: state, ConsoleEnabled: node != "console disabled"}
						if node == "power changes" {
							n.TargetPower = metal.PowerOn
						}
						report := diagnose.Report{Proof: diagnosisOperations{}.proof(&managedNode{node: n}, &machine.State{Power: string(power)}, &l.log)}
						if f.severity != "" {
							report.Findings = []diagnose.Finding{{ID: "x", Stage: diagnose.Target, Severity: f.severity, Confidence: f.confidence}}
						}
						report.Judge()
						mayBlock := f.severity == diagnose.BlocksBoot || f.severity == diagnose.BlocksAccess
						want := diagnose.NothingFound
						switch {
						case f.severity == diagnose.BlocksBoot && f.confidence > 0.5:
							want = diagnose.CauseFound
						case state == metal.Active && power == metal.PowerOn && node == "" && l.proves && !mayBlock:
							want = diagnose.Works
							works++
						}
						input := fmt.Sprintf("state %s, power %q, node %q, log: %s, finding: %s", state, power, node, logName, findingName)
						if v := report.Verdict; v.Outcome != want || (v.Proof != nil) != (want == diagnose.Works) {
							t.Errorf("the verdict is %s with proof %v, want %s; %s", v.Outcome, v.Proof, want, input)
						}
					}
				}
			}
		}
	}
	if works != 3 {
		t.Errorf("%d combinations are works, want 3: without a finding, and with one that blocks nothing", works)
	}
}

// TestDiagnoseSaysThatAMachineWorks: the login on a console proves that the machine works, until something else may have booted.
func TestDiagnoseSaysThatAMachineWorks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		then func(t *testing.T, w *consoleWorld)
		args metal.DiagnoseArgs
		want diagnose.Outcome
	}{
		"a login":                     {want: diagnose.Works},
		"a login and an examination":  {args: metal.DiagnoseArgs{Reboot: true}, want: diagnose.Works},
		"a login and a kept rescue":   {args: metal.DiagnoseArgs{Reboot: true, KeepRescue: true}, want: diagnose.Works},
		"a panic behind it":           {then: func(_ *testing.T, w *consoleWorld) { w.says("\n" + panicText) }, want: diagnose.CauseFound},
		"a restart that says nothing": {then: restartsUnseen, want: diagnose.NothingFound},
		"a line that was closed":      {then: losesTheLine, want: diagnose.NothingFound},
		"a ramdisk that came between": {then: func(t *testing.T, w *consoleWorld) { w.enters(t, metal.RescueWait); w.enters(t, metal.Active) }, want: diagnose.NothingFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDiagnosed(t, metal.PowerOn)
			b.agent.examination = strings.ReplaceAll(examined, "blocks-boot", "degrades")
			w := b.readsConsole(t)
			w.says(loginText)
			w.awaitLog(t, loginText)
			if tc.then != nil {
				tc.then(t, w)
			}
			w.stop()
			d := w.diagnose(t, tc.args)
			v := d.Report.Verdict
			if d.State != diagnose.Finished || v.Outcome != tc.want {
				t.Errorf("the diagnosis is %+v, want %s", d, tc.want)
			}
			if proven := tc.want == diagnose.Works; proven != (v.Proof != nil) || proven && (v.Proof.Kind != diagnose.ProofLogin || !strings.Contains(v.Proof.Text, "last wrote at 20")) {
				t.Errorf("the proof is %+v; the verdict is %s", v.Proof, v.Outcome)
			}
		})
	}
}

// restartsUnseen has salvor restart the machine, whose next boot writes nothing.
func restartsUnseen(t *testing.T, w *consoleWorld) {
	change(t, w.bench, func(n *metal.Node) { n.TargetPower = metal.PowerOn })
	w.awaitLook(t, metal.Active)
	change(t, w.bench, func(n *metal.Node) { n.TargetPower = "" })
	w.awaitLook(t, metal.Active)
}

// losesTheLine has the BMC close the console for a moment.
func losesTheLine(t *testing.T, w *consoleWorld) {
	w.reads <- problem.Conflictf("someone else reads the serial line")
	w.says("")
	fixture.Poll(t, "a new part has begun", func() bool {
		log := w.consoleLog(t)
		return log.Problem == "" && len(log.Parts) > 0 && log.Parts[len(log.Parts)-1].Text == ""
	})
}
