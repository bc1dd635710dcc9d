package node

import (
	"context"
	"testing"

	"salvor/diagnose"
	"salvor/metal"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
)

// TestAbortOfABorrowedRescue: an abort of a node ends the rescue that a diagnosis or a repair asked for, and not the diagnosis or the repair itself: that
// puts the machine back as it was found, and ends its record with the reason.
func TestAbortOfABorrowedRescue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for what, c := range map[string]struct {
		begin func(b *bench) error
		ended func(t *testing.T, b *bench) (failed bool, problem string)
	}{
		"diagnosis": {func(b *bench) error {
			_, err := b.nodes.Diagnose(ctx, b.node, metal.DiagnoseArgs{Reboot: true}, record.Asker{User: "ann"})
			return err
		}, func(t *testing.T, b *bench) (bool, string) {
			d := b.diagnosis(t)
			return d.State == diagnose.Failed, d.Problem
		}},
		"repair": {func(b *bench) error {
			_, err := metal.NewNodeRepairs(b.nodes).Begin(ctx, b.node, metal.RepairArgs{Reboot: true}, record.Asker{User: "ann"})
			return err
		}, func(t *testing.T, b *bench) (bool, string) {
			r := must.Get(metal.NewNodeRepairs(b.nodes).Newest(ctx, b.node))(t)[0]
			return r.State == metal.RepairFailed && !r.IsRunning(), r.Problem
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newDiagnosed(t, metal.PowerOn)
			b.run(t)
			must.OK(t, c.begin(b))
			fixture.Poll(t, "the rescue waits for its ramdisk", func() bool { return b.stored(t).ProvisionState == metal.RescueWait }, b.picture)
			must.OK(t, b.nodes.Provision(ctx, b.node, metal.Abort, "abort", metal.ProvisionArgs{}, record.Asker{User: "bob"}))
			n := b.ends(t)
			if failed, problem := c.ended(t, b); !failed || problem == "" {
				t.Errorf("the record of the %s: failed %t, problem %q; want it failed, with a reason", what, failed, problem)
			}
			b.mu.Lock()
			power := b.power
			b.mu.Unlock()
			if n.ProvisionState != metal.Active || n.Rescue != nil || n.Maintenance || power != metal.PowerOn {
				t.Errorf("the node is %s, in a rescue session: %t, maintenance %t, its machine is %s; want it active and on as it was found", n.ProvisionState, n.Rescue != nil, n.Maintenance, power)
			}
		})
	}
}
