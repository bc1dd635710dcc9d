package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/diagnose/machine"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
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
						proof, _, err := diagnosisOperations{&Conductor{}}.proof(t.Context(), &managedNode{node: n}, &machine.State{Power: string(power)}, &l.log)
						must.OK(t, err)
						report := diagnose.Report{Proof: proof}
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

// panics has the machine's kernel panic after the login.
func panics(t *testing.T, w *consoleWorld) {
	w.says("\n" + panicText)
	w.awaitLog(t, loginText+"\n"+panicText)
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
		"a panic behind it":           {then: panics, want: diagnose.CauseFound},
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

// diskKey is a host key that lies on the disks of the machine of these tests.
const diskKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"

// TestDiagnoseAsksSSHD: sshd at an address of the machine proves that the machine works if it has a host key that a former examination found on the disks.
// Any other sshd is an observation.
func TestDiagnoseAsksSSHD(t *testing.T) {
	t.Parallel()
	const address = "192.0.2.7"
	for name, tc := range map[string]struct {
		known    []string // host keys that a former examination found
		finds    string   // severity of a former finding that the examination makes again
		answer   func(keys []string) error
		change   func(*bench, *metal.Node)
		args     metal.DiagnoseArgs
		want     diagnose.Outcome
		observed string
		asked    bool
	}{
		"its key":                {known: []string{diskKey}, want: diagnose.Works, asked: true},
		"its key, and a restart": {known: []string{diskKey}, args: metal.DiagnoseArgs{Reboot: true}, finds: "degrades", want: diagnose.Works, asked: true},
		"its key, and a cause":   {known: []string{diskKey}, args: metal.DiagnoseArgs{Reboot: true}, finds: "blocks-boot", want: diagnose.CauseFound, asked: true},
		"another key": {known: []string{diskKey}, want: diagnose.NothingFound, asked: true, observed: "with a host key that was on none of the machine's disks",
			answer: func([]string) error { return problem.Conflictf("another host key") }},
		"no key is known": {want: diagnose.NothingFound, asked: true, observed: "no host key of the machine's disks is known",
			answer: func([]string) error { return problem.Conflictf("nothing to compare") }},
		"no key is known, and a program that takes each": {want: diagnose.NothingFound, asked: true, observed: "no sshd of the machine answers"},
		"nobody answers": {known: []string{diskKey}, want: diagnose.NothingFound, asked: true, observed: "no sshd of the machine answers at " + address,
			answer: func([]string) error { return problem.Unavailablef("refused") }},
		"no address": {known: []string{diskKey}, change: func(_ *bench, n *metal.Node) { n.NetworkData = nil }, want: diagnose.NothingFound},
		"off": {known: []string{diskKey}, change: func(b *bench, n *metal.Node) {
			b.power, n.PowerState, n.Maintenance = metal.PowerOff, metal.PowerOff, true
		}, want: diagnose.NothingFound},
		"out of use": {known: []string{diskKey}, change: func(_ *bench, n *metal.Node) { n.ProvisionState = metal.Manageable }, want: diagnose.NothingFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDiagnosed(t, metal.PowerOn)
			hasAddress(t, b)
			var asked []string
			b.con.ProveSSH = func(_ context.Context, at string, keys []string) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.running != "system" || !slices.Equal(keys, tc.known) {
					t.Errorf("sshd is asked while %s runs, with the keys %q; want the system, and %q", b.running, keys, tc.known)
				}
				if asked = append(asked, at); tc.answer != nil {
					return tc.answer(keys)
				}
				return nil
			}
			b.agent.examination = strings.ReplaceAll(examined, "blocks-boot", tc.finds)
			b.keepsDiagnosis(t, diagnose.Report{Systems: []diagnose.SystemSummary{{Root: "/dev/sda1", HostKeys: tc.known}}})
			if tc.change != nil {
				change(t, b, func(n *metal.Node) { tc.change(b, n) })
			}
			d := b.diagnose(t, tc.args)
			v := d.Report.Verdict
			if d.State != diagnose.Finished || v.Outcome != tc.want {
				t.Errorf("the diagnosis is %+v, want %s", d, tc.want)
			}
			if proven := tc.want == diagnose.Works; proven != (v.Proof != nil) || proven && (v.Proof.Kind != diagnose.ProofSSHD || !strings.Contains(v.Proof.Text, "answered at "+address+" with a host key that lies on its disks, at 20")) {
				t.Errorf("the proof is %+v; the verdict is %s", v.Proof, v.Outcome)
			}
			observed := ""
			for _, o := range d.Report.Observed {
				if o.Name == "sshd" {
					observed = o.Text
				}
			}
			if (observed == "") != (tc.observed == "") || !strings.Contains(observed, tc.observed) {
				t.Errorf("observed of sshd: %q, want %q", observed, tc.observed)
			}
			if want := map[bool][]string{true: {address}}[tc.asked]; !slices.Equal(asked, want) {
				t.Errorf("sshd is asked at %q, want %q", asked, want)
			}
		})
	}
}

// keepsDiagnosis stores a diagnosis that has ended with a report.
func (b *bench) keepsDiagnosis(t *testing.T, report diagnose.Report) {
	t.Helper()
	kept := []metal.Diagnosis{{Record: diagnose.Record{ID: "former", State: diagnose.Finished, Report: report}}}
	must.OK(t, b.store.Do(t.Context(), func(tx job.Tx) error {
		return b.store.SaveDocument(tx, metal.Document{NodeID: b.node, Kind: metal.Diagnoses, Body: must.Get(json.Marshal(kept))(t)})
	}))
}

// hasAddress gives the node a fixed address, 192.0.2.7.
func hasAddress(t *testing.T, b *bench) {
	t.Helper()
	change(t, b, func(n *metal.Node) {
		n.NetworkData = metal.Object{"networks": []any{map[string]any{"id": "n", "network_id": "n", "type": "ipv4", "link": "l", "ip_address": "192.0.2.7", "netmask": "255.255.255.0"}},
			"links": []any{map[string]any{"id": "l", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}}}
	})
}

// TestDiagnosisKeepsHostKeys: an examination stores the public host keys of each system, and the next diagnosis asks sshd for them.
func TestDiagnosisKeepsHostKeys(t *testing.T) {
	t.Parallel()
	b := newDiagnosed(t, metal.PowerOn)
	hasAddress(t, b)
	b.agent.examination = strings.NewReplacer("blocks-boot", "degrades", `"name": "Debian`, `"ssh_host_keys": ["`+diskKey+`", "-----BEGIN"], "name": "Debian`).Replace(examined)
	b.con.ProveSSH = func(_ context.Context, _ string, keys []string) error {
		if !slices.Equal(keys, []string{diskKey}) {
			return problem.Conflictf("%q", keys)
		}
		return nil
	}
	if d := b.diagnose(t, metal.DiagnoseArgs{Reboot: true}); d.Report.Verdict.Outcome != diagnose.NothingFound || !slices.Equal(d.Report.HostKeys(), []string{diskKey}) {
		t.Errorf("the first diagnosis is %+v, want nothing-found and the key %q", d, diskKey)
	}
	b.ends(t)
	if d := b.diagnose(t, metal.DiagnoseArgs{}); d.Report.Verdict.Outcome != diagnose.Works {
		t.Errorf("the second diagnosis is %+v, want works", d)
	}
}

// TestConfirmDiagnosis: a person may confirm that a node works that is on and in its own system. The timeline says who did, and not in which words.
func TestConfirmDiagnosis(t *testing.T) {
	t.Parallel()
	ann := record.Asker{User: "ann", RequestID: "req-1"}
	for name, tc := range map[string]struct {
		change func(*metal.Node)
		id     string
		kind   problem.Kind
		why    string
	}{
		"the newest":     {id: "newest"},
		"by its id":      {id: "former"},
		"another id":     {id: "d9", kind: problem.NotFound, why: "has no diagnosis d9"},
		"in rescue":      {id: "newest", change: func(n *metal.Node) { n.ProvisionState = metal.Rescue }, kind: problem.Conflict, why: "salvor node unrescue"},
		"rescue failed":  {id: "newest", change: func(n *metal.Node) { n.ProvisionState = metal.RescueFailed }, kind: problem.Conflict, why: "salvor node unrescue"},
		"off":            {id: "newest", change: func(n *metal.Node) { n.PowerState = metal.PowerOff }, kind: problem.Conflict, why: "salvor node power on"},
		"in maintenance": {id: "newest", change: func(n *metal.Node) { n.Maintenance = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDiagnosed(t, metal.PowerOn)
			report := diagnose.Report{}
			report.Judge()
			b.keepsDiagnosis(t, report)
			if tc.change != nil {
				change(t, b, tc.change)
			}
			_, err := b.nodes.ConfirmDiagnosis(t.Context(), b.node, tc.id, "I saw grackle", ann)
			kept := b.diagnosis(t).Report.Verdict
			events := must.Get(b.store.Latest(t.Context(), job.Node(b.node), 10))(t)
			confirmed := slices.ContainsFunc(events, func(e job.Event) bool {
				return e.Text == "confirmed that it works, after diagnosis former" && e.User == "ann" && e.RequestID == "req-1" && e.Type == "request"
			})
			if tc.why != "" {
				if !problem.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.why) || kept.Outcome != diagnose.NothingFound || confirmed {
					t.Errorf("the answer is %v, the verdict %s, with an event: %v; want %v with %q, nothing-found and none", err, kept.Outcome, confirmed, tc.kind, tc.why)
				}
				return
			}
			if err != nil || kept.Outcome != diagnose.Works || !strings.Contains(kept.Proof.Text, "ann confirmed it at 20") || !confirmed || strings.Contains(fmt.Sprint(events), "grackle") {
				t.Errorf("the answer is %v, the verdict %+v, the events %+v; want works, and an event of ann without her words", err, kept, events)
			}
		})
	}
}
