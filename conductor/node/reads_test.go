package node

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// The tests of this file fail each read of the store once in operations that no sweep covers, or covers in one form only.

// repairForms are forms of a repair beside that of TestSweepRepair. before runs to its end ahead of the operation under test.
var repairForms = map[string]struct {
	power  metal.Power
	before func(t *testing.T, b *bench)
	begin  func(t *testing.T, b *bench)
}{
	"a plan only": {metal.PowerOff, nil, func(t *testing.T, b *bench) { b.beginRepair(t, metal.RepairArgs{Consents: filesConsent}) }},
	"of a machine that is on": {metal.PowerOn, nil, func(t *testing.T, b *bench) {
		b.beginRepair(t, metal.RepairArgs{Consents: filesConsent, WaitForConsent: true, Reboot: true})
	}},
	"in a rescue under way": {metal.PowerOff, func(t *testing.T, b *bench) { b.start(t, metal.ToRescue) }, func(t *testing.T, b *bench) {
		b.beginRepair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
	}},
	"an exact undo": {metal.PowerOff, func(t *testing.T, b *bench) {
		b.beginRepair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest(), KeepRescue: true})
	}, beginUndo},
	"an undo of files": {metal.PowerOff, func(t *testing.T, b *bench) {
		b.beginRepair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
	}, beginUndo},
}

func (b *bench) beginRepair(t *testing.T, args metal.RepairArgs) {
	t.Helper()
	must.Get(b.repairs().Begin(context.Background(), b.node, args, record.Asker{User: "ann"}))(t)
}

func beginUndo(t *testing.T, b *bench) {
	t.Helper()
	args := metal.RepairArgs{WaitForConsent: true, Consents: filesConsent}
	must.Get(b.repairs().BeginUndo(context.Background(), b.node, b.newestRepair(t).ID, args, record.Asker{User: "ann"}))(t)
}

// consentToAll consents to the newest repair while it waits for that.
func (b *bench) consentToAll() {
	ctx := context.Background()
	all, err := b.repairs().List(ctx, nil, b.node)
	if err == nil && len(all) > 0 && all[0].State == metal.RepairAwaitingConsent && all[0].Consent == nil {
		_, _ = b.repairs().Consent(ctx, b.node, all[0].ID, metal.RepairConsent{Digest: all[0].Digest, Consents: filesConsent}, record.Asker{User: "ann"})
	}
}

func TestReadsOfRepairs(t *testing.T) {
	t.Parallel()
	for name, form := range repairForms {
		t.Run(name, func(t *testing.T) {
			conductortest.SweepReads(t, func(t *testing.T) *jobtest.World {
				b := newRepaired(t, form.power)
				if form.before != nil {
					stop := b.run(t)
					form.before(t, b)
					b.ends(t)
					stop()
				}
				w := b.world(metal.JobRepair, func(t *testing.T) { form.begin(t, b) }, nil)
				w.Poke = func() { b.poke(); b.consentToAll() }
				return w
			})
		})
	}
}

func TestReadsOfDiagnosisWithReboot(t *testing.T) {
	t.Parallel()
	conductortest.SweepReads(t, func(t *testing.T) *jobtest.World {
		b := newDiagnosed(t, metal.PowerOn)
		return b.world(metal.JobDiagnose, func(t *testing.T) {
			must.Get(b.nodes.Diagnose(context.Background(), b.node, metal.DiagnoseArgs{Reboot: true}, record.Asker{}))(t)
		}, nil)
	})
}

// TestReadsOfDeviceCalls: each question and each command of a user to a machine. A machine that cannot do it refuses it as before.
func TestReadsOfDeviceCalls(t *testing.T) {
	t.Parallel()
	for _, call := range deviceCalls() {
		t.Run(string(call.kind), func(t *testing.T) {
			conductortest.SweepReads(t, func(t *testing.T) *jobtest.World {
				b := newBench(t, metal.Active)
				return b.world(call.kind, func(t *testing.T) {
					must.Get(b.nodes.Ask(context.Background(), b.node, metal.Question{Class: call.class, Kind: call.kind, Args: struct{}{}}, record.Asker{}))(t)
				}, nil)
			})
		})
	}
}

func TestReadsOfForcePowerOff(t *testing.T) {
	t.Parallel()
	conductortest.SweepReads(t, func(t *testing.T) *jobtest.World {
		b := newBench(t, metal.Active)
		return b.world(metal.JobForcePowerOff, func(t *testing.T) {
			must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
				return b.nodes.CutPower(context.Background(), tx, b.node, uuid.NewString(), job.Subject{})
			}))
		}, nil)
	})
}

func TestReadsOfPowerEvent(t *testing.T) {
	t.Parallel()
	conductortest.SweepReads(t, func(t *testing.T) *jobtest.World {
		b, nova := withNova(t)
		change(t, b, func(n *metal.Node) { n.InstanceUUID = "a-server" })
		w := b.world(metal.JobPowerEvent, func(t *testing.T) {
			change(t, b, func(n *metal.Node) { n.PowerState = metal.PowerOff })
		}, nil)
		w.Picture = func(t *testing.T) string { return b.picture(t) + nova.received() }
		return w
	})
}

// TestReadsOfPowerSync: a change of power that power sync finds, and mends.
func TestReadsOfPowerSync(t *testing.T) {
	t.Parallel()
	conductortest.SweepReads(t, func(t *testing.T) *jobtest.World {
		b := newBench(t, metal.Active)
		return b.world("power", func(t *testing.T) {
			args := must.Get(json.Marshal(metal.PowerArgs{Target: metal.TurnOff, Sync: true}))(t)
			must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
				return b.store.Insert(tx, &job.Job{Kind: "power", Class: job.Command, Subject: job.Node(b.node), Args: args})
			}))
		}, nil)
	})
}
