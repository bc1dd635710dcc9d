package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/conductor/conductortest"
	"salvor/diagnose"
	"salvor/driver"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/reportschema"
	"salvor/wire/agent"
)

// examined is what the agent of the tests finds: the second line holds what a hostile machine could answer.
const examined = `{"version": 1, "seconds": 2.5, "disks": [{"path": "/dev/sda", "size": 10, "written": 0}], "not_examined": [], "systems": [{"root": "/dev/sda1",
	"name": "Debian \u001b[31m12", "findings": [{"id": "fstab-device-missing", "stage": "target", "severity": "blocks-boot", "confidence": 0.97, "title": "t",
	"evidence": [{"kind": "file", "path": "/etc/fstab", "line": 3, "text": "password=hunter2"}]}]}]}`

func newDiagnosed(t *testing.T, power metal.Power) *bench {
	t.Helper()
	b := newBench(t, metal.Active)
	b.agent, b.con.StepPoll = newFakeAgent(), 5*time.Millisecond
	b.agent.examination = examined
	b.power = power
	if power == metal.PowerOff {
		b.running = ""
	}
	change(t, b, func(n *metal.Node) { n.PowerState = power })
	return b
}

func (b *bench) diagnosis(t *testing.T) metal.Diagnosis {
	t.Helper()
	all := must.Get(b.nodes.Diagnoses(context.Background(), nil, b.node))(t)
	if len(all) == 0 {
		t.Fatal("no diagnosis is stored")
	}
	return all[0]
}

func (b *bench) diagnose(t *testing.T, args metal.DiagnoseArgs) metal.Diagnosis {
	t.Helper()
	b.run(t)
	must.Get(b.nodes.Diagnose(context.Background(), b.node, args, record.Asker{User: "ann"}))(t)
	b.ends(t)
	d := b.diagnosis(t)
	reportschema.Check(t, "NodeDiagnosis", must.Get(json.Marshal(d))(t))
	return d
}

func gapsOf(d metal.Diagnosis) string {
	var out []string
	for _, g := range d.Report.NotExamined {
		out = append(out, g.What+": "+g.Why)
	}
	return strings.Join(out, "; ")
}

// A machine is put back as it was found, on or off, and the report names the cause.
func TestDiagnosePutsTheMachineBack(t *testing.T) {
	for _, power := range []metal.Power{metal.PowerOn, metal.PowerOff} {
		t.Run(string(power), func(t *testing.T) {
			b := newDiagnosed(t, power)
			d := b.diagnose(t, metal.DiagnoseArgs{Reboot: power == metal.PowerOn})
			if d.State != diagnose.Finished || d.RequestedBy != "ann" || d.Report.Verdict.Finding != "fstab-device-missing" || d.Report.Verdict.Stage != diagnose.Target {
				t.Errorf("diagnosis %+v", d)
			}
			text := string(must.Get(json.Marshal(d))(t))
			if strings.Contains(text, "hunter2") || strings.Contains(text, `\u001b`) {
				t.Errorf("the report passes on what the agent said: %s", text)
			}
			n := b.noSecretLeft(t)
			if n.ProvisionState != metal.Active || b.power != power || n.PowerState != power || n.Rescue != nil || b.media != "" || b.running == "ramdisk" {
				t.Errorf("not as it was found: %s", b.picture(t))
			}
			if b.device.Device != "disk" || !b.device.Persistent {
				t.Errorf("boot device %+v", b.device)
			}
		})
	}
}

// A machine that is on is not touched without consent, and the report says so.
func TestDiagnoseLeavesARunningMachineAlone(t *testing.T) {
	b := newDiagnosed(t, metal.PowerOn)
	d := b.diagnose(t, metal.DiagnoseArgs{})
	if d.State != diagnose.Finished || d.Report.Verdict.Outcome != diagnose.NothingFound || !strings.Contains(gapsOf(d), "only --reboot restarts it") {
		t.Errorf("diagnosis %+v", d)
	}
	if b.running != "system" || b.systemOn != 0 || b.finals != 0 {
		t.Errorf("touched: %s", b.picture(t))
	}
}

// A machine that was switched on between the look and the rescue is not interrupted.
func TestDiagnoseOfAMachineThatIsSwitchedOnMeanwhile(t *testing.T) {
	b := newDiagnosed(t, metal.PowerOff)
	reads := 0
	b.reading = func() metal.Power {
		if reads++; reads > 2 {
			return metal.PowerOn
		}
		return metal.PowerOff
	}
	d := b.diagnose(t, metal.DiagnoseArgs{})
	if d.State != diagnose.Failed || !strings.Contains(gapsOf(d), "the machine is on") || d.Report.Verdict.Outcome != diagnose.NothingFound || b.media != "" || b.finals != 0 {
		t.Errorf("diagnosis %+v, %s", d, b.picture(t))
	}
	if n := b.stored(t); n.ProvisionState != metal.Active || n.Rescue != nil || n.LastError != "" {
		t.Errorf("the node is %s, session %v, error %q", n.ProvisionState, n.Rescue, n.LastError)
	}
}

func TestDiagnoseKeepsTheRescue(t *testing.T) {
	b := newDiagnosed(t, metal.PowerOn)
	d := b.diagnose(t, metal.DiagnoseArgs{Reboot: true, KeepRescue: true})
	if n := b.stored(t); d.State != diagnose.Finished || n.ProvisionState != metal.Rescue || b.running != "ramdisk" {
		t.Errorf("diagnosis %+v, %s", d, b.picture(t))
	}
}

// An agent that cannot examine is a gap of the report, and the machine is put back all the same.
func TestDiagnoseByAForeignAgent(t *testing.T) {
	b := newDiagnosed(t, metal.PowerOn)
	b.agent.fails = "diagnose.examine"
	d := b.diagnose(t, metal.DiagnoseArgs{Reboot: true})
	if d.State != diagnose.Finished || d.Report.Verdict.Outcome != diagnose.NothingFound || !strings.Contains(gapsOf(d), "disks: the agent could not examine the disks") {
		t.Errorf("diagnosis %+v", d)
	}
	if n := b.stored(t); n.ProvisionState != metal.Active || b.running != "system" {
		t.Error(b.picture(t))
	}
}

// What was read without a boot is kept where the rescue fails.
func TestDiagnoseWhoseRescueFails(t *testing.T) {
	b := newDiagnosed(t, metal.PowerOn)
	b.refuses[driver.Rescuing] = problem.Invalidf("no such network")
	d := b.diagnose(t, metal.DiagnoseArgs{Reboot: true})
	if d.State != diagnose.Failed || !strings.Contains(d.Problem, "no such network") || len(d.Report.Observed) == 0 || d.Report.Verdict.Outcome != diagnose.NothingFound {
		t.Errorf("diagnosis %+v", d)
	}
	if n := b.stored(t); n.ProvisionState != metal.Active || b.running != "system" {
		t.Errorf("the machine is not put back: %s", b.picture(t))
	}
}

// What cannot be put back as it was found is not booted.
func TestDiagnoseRefusesToBoot(t *testing.T) {
	for name, with := range map[string]func(*bench, *metal.Node){
		"rescue failed":         func(_ *bench, n *metal.Node) { n.ProvisionState = metal.RescueFailed },
		"maintenance":           func(_ *bench, n *metal.Node) { n.Maintenance = true },
		"never switched off":    func(_ *bench, n *metal.Node) { n.DisablePowerOff = true },
		"the hash is in lookup": func(b *bench, _ *metal.Node) { b.con.PasswordInLookup = true },
	} {
		t.Run(name, func(t *testing.T) {
			b := newDiagnosed(t, metal.PowerOn)
			change(t, b, func(n *metal.Node) { with(b, n) })
			d := b.diagnose(t, metal.DiagnoseArgs{Reboot: true})
			if d.State != diagnose.Finished || !strings.Contains(gapsOf(d), "disks: ") || d.Report.Verdict.Outcome != diagnose.NothingFound || b.systemOn != 0 || b.finals != 0 {
				t.Errorf("diagnosis %+v, %s", d, b.picture(t))
			}
		})
	}
}

// One diagnosis goes on at a time, five are kept, and the instance takes them with it.
func TestDiagnosesEndWithTheInstance(t *testing.T) {
	b := newDiagnosed(t, metal.PowerOn)
	ctx := context.Background()
	must.Get(b.nodes.Diagnose(ctx, b.node, metal.DiagnoseArgs{}, record.Asker{}))(t)
	if _, err := b.nodes.Diagnose(ctx, b.node, metal.DiagnoseArgs{}, record.Asker{}); !problem.Is(err, problem.Conflict) {
		t.Errorf("a second diagnosis: %v", err)
	}
	b.run(t)
	b.ends(t)
	for range 6 {
		must.Get(b.nodes.Diagnose(ctx, b.node, metal.DiagnoseArgs{}, record.Asker{}))(t)
		b.ends(t)
	}
	if all := must.Get(b.nodes.Diagnoses(ctx, nil, b.node))(t); len(all) != 5 {
		t.Errorf("%d diagnoses are kept", len(all))
	}
	b.start(t, metal.Delete)
	b.ends(t)
	if all := must.Get(b.nodes.Diagnoses(ctx, nil, b.node))(t); len(all) != 0 {
		t.Errorf("%d diagnoses outlive the instance", len(all))
	}
}

// benchLUKSKeys are one for each container and one for a single one.
func benchLUKSKeys() []diagnose.LUKSKey {
	return []diagnose.LUKSKey{{Key: secret.New("open sesame")}, {UUID: "0dd1e5c4-0000-4000-8000-00000000000a", Key: secret.New("barley")}}
}

// LUKS keys lie in a row of a job until the agent has them, and in no row afterwards, whether the machine is booted or in rescue already.
func TestDiagnoseHandsOverLUKSKeys(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]func(*testing.T) *bench{
		"booted":    func(t *testing.T) *bench { b := newDiagnosed(t, metal.PowerOff); b.run(t); return b },
		"in rescue": func(t *testing.T) *bench { return rescued(t, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fresh(t)
			d := must.Get(b.nodes.Diagnose(context.Background(), b.node, metal.DiagnoseArgs{LUKSKeys: benchLUKSKeys()}, record.Asker{}))(t)
			if len(d.Args.LUKSKeys) != 0 {
				t.Error("the answer has the keys")
			}
			examines := func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.agent.luksKeys == 2 }
			heartbeat := func() {
				if n := b.stored(t); n.ProvisionState == metal.RescueWait && !examines() {
					b.poke()
				}
			}
			fixture.PollActing(t, "the agent has the keys", heartbeat, examines, b.picture)
			// The examination goes on: nobody has looked in on the ramdisk since.
			fixture.Poll(t, "no row has the keys", func() bool {
				for _, j := range b.unended(t) {
					if j.Kind == metal.JobDiagnose && !j.Secret.Empty() {
						return false
					}
					if c, err := rescue.UnpackCredential(j.Secret); j.Kind == "rescue" && (err != nil || !c.LUKSKeys.Empty() || c.Hash.Empty()) {
						return false
					}
				}
				return true
			}, b.picture)
			b.ends(t)
			if d := b.diagnosis(t); d.State != diagnose.Finished || d.Report.Verdict.Finding != "fstab-device-missing" {
				t.Errorf("diagnosis %+v", d)
			}
		})
	}
}

// Keys for a machine that is not booted are kept nowhere.
func TestDiagnoseWithoutABootForgetsLUKSKeys(t *testing.T) {
	t.Parallel()
	b := newDiagnosed(t, metal.PowerOn)
	d := b.diagnose(t, metal.DiagnoseArgs{LUKSKeys: benchLUKSKeys()})
	if b.agent.luksKeys != 0 || !strings.Contains(gapsOf(d), "only --reboot restarts it") || len(b.open(t)) != 0 {
		t.Errorf("%d keys, %+v", b.agent.luksKeys, d)
	}
}

// A rescue under way is used as it is: nothing is booted, and the node stays in rescue. A second diagnosis does not take the first one's findings.
func TestDiagnoseInRescue(t *testing.T) {
	t.Parallel()
	b := rescued(t, nil)
	boots := b.finals
	for i := range 2 {
		d := b.diagnose(t, metal.DiagnoseArgs{Reboot: true})
		if d.State != diagnose.Finished || d.Report.Verdict.Finding != "fstab-device-missing" || len(d.Report.NotExamined) != 0 {
			t.Errorf("diagnosis %+v", d)
		}
		if n := b.stored(t); n.ProvisionState != metal.Rescue || b.running != "ramdisk" || b.finals != boots || b.agent.did[agent.Examine] != i+1 || b.serving == "" {
			t.Errorf("after diagnosis %d: %d examinations, %s", i+1, b.agent.did[agent.Examine], b.picture(t))
		}
	}
}

// An agent that cannot be asked is a gap with what to do next, and the rescue is left alone.
func TestDiagnoseInRescueWithoutAnAgent(t *testing.T) {
	t.Parallel()
	b := rescued(t, func(b *bench) { b.agentVersion = "10.0.0" })
	d := b.diagnose(t, metal.DiagnoseArgs{Reboot: true})
	if d.State != diagnose.Finished || d.Report.Verdict.Outcome != diagnose.NothingFound || !strings.Contains(gapsOf(d), "disks: the rescue ramdisk has another agent") {
		t.Errorf("diagnosis %+v", d)
	}
	if n := b.stored(t); n.ProvisionState != metal.Rescue || b.running != "ramdisk" {
		t.Error(b.picture(t))
	}
}

// An agent that examines the disks may be silent for a while at any time; one that stays silent is a gap. The time begins with its silence and
// not with the examination.
func TestDiagnoseWhoseAgentIsSilent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given      bool // the silence begins after the command was taken
		times      int  // of 25 s
		asked      int  // how many questions are asked
		gap, cause string
	}{
		"for a while":        {given: true, times: 2, asked: 2, cause: "fstab-device-missing"},
		"for good":           {given: true, times: 100, asked: 4, gap: "does not answer at 192.0.2.7"},
		"from the beginning": {times: 100, asked: 2, gap: "does not answer at 192.0.2.7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := rescued(t, func(b *bench) {
				b.con.Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return time.Now().Add(b.later) }
			})
			silent := func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.agentSilent, b.agentSilence = c.times, 25*time.Second
				if c.given {
					b.later += 5 * time.Minute
				}
			}
			if !c.given {
				silent()
			}
			must.Get(b.nodes.Diagnose(context.Background(), b.node, metal.DiagnoseArgs{}, record.Asker{}))(t)
			if c.given {
				fixture.Poll(t, "the agent examines", func() bool {
					b.mu.Lock()
					defer b.mu.Unlock()
					return b.agent.did[agent.Examine] == 1
				}, b.picture)
				silent()
			}
			b.ends(t)
			d := b.diagnosis(t)
			if d.State != diagnose.Finished || d.Report.Verdict.Finding != c.cause || !strings.Contains(gapsOf(d), c.gap) || c.gap == "" && len(d.Report.NotExamined) > 0 {
				t.Errorf("diagnosis %+v", d)
			}
			if b.mu.Lock(); c.times-b.agentSilent != c.asked {
				t.Errorf("%d questions without an answer; want %d", c.times-b.agentSilent, c.asked)
			}
			b.mu.Unlock()
		})
	}
}

// An agent that ends during the examination is a gap, and never another agent's findings.
func TestDiagnoseWhoseAgentIsRestarted(t *testing.T) {
	t.Parallel()
	b := rescued(t, nil)
	must.Get(b.nodes.Diagnose(context.Background(), b.node, metal.DiagnoseArgs{}, record.Asker{}))(t)
	fixture.Poll(t, "the agent examines", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.agent.did[agent.Examine] == 1
	}, b.picture)
	b.mu.Lock()
	b.agent.reboot()
	b.mu.Unlock()
	b.ends(t)
	if d := b.diagnosis(t); d.State != diagnose.Finished || !strings.Contains(gapsOf(d), "was restarted") || !strings.Contains(gapsOf(d), "diagnose the node again") {
		t.Errorf("diagnosis %+v", d)
	}
}

// A diagnosis in a rescue survives crashes, repetitions and failures, and never ends the rescue.
func TestSweepDiagnoseInRescue(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		b := newDiagnosed(t, metal.PowerOn)
		b.inRescueAlready(t)
		return b.world(metal.JobDiagnose, func(t *testing.T) {
			must.Get(b.nodes.Diagnose(context.Background(), b.node, metal.DiagnoseArgs{LUKSKeys: benchLUKSKeys()}, record.Asker{}))(t)
		}, func(t *testing.T) {
			if n := b.stored(t); n.ProvisionState != metal.Rescue || b.running != "ramdisk" {
				t.Error(b.picture(t))
			}
		})
	})
}

// A diagnosis survives crashes, repetitions and failures, and never leaves a machine in rescue unless something failed.
func TestSweepDiagnose(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		b := newDiagnosed(t, metal.PowerOff)
		return b.world(metal.JobDiagnose, func(t *testing.T) {
			must.Get(b.nodes.Diagnose(context.Background(), b.node, metal.DiagnoseArgs{LUKSKeys: benchLUKSKeys()}, record.Asker{}))(t)
		}, func(t *testing.T) {
			if d := b.diagnosis(t); d.State != diagnose.Failed || d.Problem == "" {
				t.Errorf("diagnosis %s: %q", d.State, d.Problem)
			}
		})
	})
}

// TestDiagnoseOnlyReads: --only-read goes from the request to the agent's command, whether the machine is booted or in rescue already. An agent that ran
// programs all the same is told of.
func TestDiagnoseOnlyReads(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]func(*testing.T) *bench{
		"booted":    func(t *testing.T) *bench { return newDiagnosed(t, metal.PowerOff) },
		"in rescue": func(t *testing.T) *bench { return rescued(t, nil) },
	} {
		for _, onlyRead := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, %v", name, onlyRead), func(t *testing.T) {
				t.Parallel()
				b := fresh(t)
				b.agent.examination = strings.Replace(examined, `"name": "Debian`, `"asked": [{"command": ["sshd", "-t"], "exit": 0, "seconds": 1}], "name": "Debian`, 1)
				b.run(t)
				must.Get(b.nodes.Diagnose(t.Context(), b.node, metal.DiagnoseArgs{OnlyRead: onlyRead}, record.Asker{}))(t)
				b.ends(t)
				d := b.diagnosis(t)
				if !slices.Equal(b.agent.onlyRead, []bool{onlyRead}) || len(d.Report.Asked) != 1 {
					t.Errorf("the agent is told to only read: %v, want once %v; the report is %+v", b.agent.onlyRead, onlyRead, d.Report)
				}
				if told := strings.Contains(gapsOf(d), "they ran although the diagnosis was to read only"); told != onlyRead {
					t.Errorf("the report tells that programs ran: %v, want %v; gaps: %s", told, onlyRead, gapsOf(d))
				}
			})
		}
	}
}
