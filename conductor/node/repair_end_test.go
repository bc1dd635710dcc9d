package node

import (
	"context"
	"slices"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
)

// TestRepairWhoseUnrescueFails: the disks are written and the machine cannot be put back. The repair is unproven, and its problem says both.
func TestRepairWhoseUnrescueFails(t *testing.T) {
	t.Parallel()
	b := newRepaired(t, metal.PowerOff)
	b.refuses[driver.Tenant] = problem.Conflictf("the switch refuses the port")
	b.run(t)
	b.beginRepair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
	b.ends(t)
	r := b.newestRepair(t)
	if r.State != metal.RepairUnproven || !strings.Contains(r.Problem, "the disks are written") || !strings.Contains(r.Problem, "the switch refuses the port") || r.IsRunning() {
		t.Errorf("repair %s, problem %q; want %s, and a problem that names the written disks and the switch", r.State, r.Problem, metal.RepairUnproven)
	}
	if !slices.Equal(b.mender.disk, repairedDisk) {
		t.Errorf("disk %q; want %q", b.mender.disk, repairedDisk)
	}
}

// TestUndoWhoseUnrescueFails: the undo is written, so its repair is undone, whatever happens to the machine afterward.
func TestUndoWhoseUnrescueFails(t *testing.T) {
	t.Parallel()
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	b.beginRepair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
	b.ends(t)
	b.mu.Lock()
	b.refuses[driver.Tenant] = problem.Conflictf("the switch refuses the port")
	b.mu.Unlock()
	beginUndo(t, b)
	fixture.PollActing(t, "all jobs have ended", func() { b.poke(); b.consentToAll() }, func() bool { return len(b.open(t)) == 0 }, b.picture)
	all := must.Get(b.repairs().List(context.Background(), nil, b.node))(t)
	if len(all) != 2 || all[0].State != metal.RepairUnproven || all[1].State != metal.RepairUndone || !slices.Equal(b.mender.disk, originalDisk) {
		t.Errorf("%d repairs, the undo %s (%q), its repair %s, disk %q; want 2, %s, %s, %q", len(all), all[0].State, all[0].Problem, all[len(all)-1].State, b.mender.disk,
			metal.RepairUnproven, metal.RepairUndone, originalDisk)
	}
}

// TestRepairAwaitsTheJobThatWrites: nothing is put back before the job that writes has ended, whatever the record says meanwhile. An abort shows the
// failure on the record while the job still takes back what it wrote.
func TestRepairAwaitsTheJobThatWrites(t *testing.T) {
	t.Parallel()
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	b.beginRepair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
	claims := func() int64 { // of the job of the repair, which looks at its record with each
		for _, j := range b.open(t) {
			if j.Kind == metal.JobRepair {
				return j.Fence
			}
		}
		return 0
	}
	shown, until := false, int64(0)
	fixture.PollActing(t, "all jobs have ended", func() {
		b.mu.Lock()
		halfWritten := b.mender.written == 1
		b.mu.Unlock()
		if halfWritten && !shown {
			shown, until = true, claims()+3
			id := b.newestRepair(t).ID
			must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
				return b.repairs().Edit(context.Background(), tx, b.node, id, func(r *metal.Repair) { r.State, r.Problem = metal.RepairFailed, "aborted" })
			}))
		}
		if !shown || claims() >= until {
			b.poke()
		}
	}, func() bool { return len(b.open(t)) == 0 }, b.picture)
	if r := b.newestRepair(t); !shown || r.State != metal.RepairProven || !slices.Equal(b.mender.disk, repairedDisk) {
		t.Errorf("shown %v, repair %s (%q), disk %q; want true, %s, %q", shown, r.State, r.Problem, b.mender.disk, metal.RepairProven, repairedDisk)
	}
}

// TestRepairWhoseRescueTheOwnerEnds: the owner asks for the unrescue right after the writing, before the repair does. The machine has to prove itself
// all the same, and is off in the end, as it was found.
func TestRepairWhoseRescueTheOwnerEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args metal.RepairArgs
		want metal.RepairState
	}{
		"repair":                      {metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()}, metal.RepairProven},
		"repair that kept its rescue": {metal.RepairArgs{Consents: filesConsent, Digest: menderDigest(), KeepRescue: true}, metal.RepairWritten},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRepaired(t, metal.PowerOff)
			var asked error
			b.mender.beforeEnd = func() { asked = b.provision(metal.Unrescue, metal.ProvisionArgs{}) }
			b.run(t)
			r := b.repair(t, c.args)
			b.mu.Lock()
			defer b.mu.Unlock()
			must.OK(t, asked)
			if wantOff := c.want == metal.RepairProven; r.State != c.want || r.IsRunning() || wantOff && b.power != metal.PowerOff {
				t.Errorf("repair %s (%q), running %t, power %s; want %s, ended, off if it is proven", r.State, r.Problem, r.IsRunning(), b.power, c.want)
			}
		})
	}
}

// TestConfirmNeedsTheOwnSystem: a repair that is unproven because its machine never left the rescue cannot be confirmed there.
func TestConfirmNeedsTheOwnSystem(t *testing.T) {
	t.Parallel()
	b := newRepaired(t, metal.PowerOff)
	b.run(t)
	b.start(t, metal.ToRescue)
	b.ends(t)
	b.beginRepair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
	b.ends(t)
	r := b.newestRepair(t)
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		return b.repairs().Edit(context.Background(), tx, b.node, r.ID, func(r *metal.Repair) { r.State = metal.RepairUnproven })
	}))
	if _, err := b.repairs().Confirm(context.Background(), b.node, r.ID, record.Asker{User: "ann"}); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "still in rescue") {
		t.Errorf("confirmed in the rescue: %v; want a conflict that says that the node is still in rescue", err)
	}
	if got := b.newestRepair(t); got.Undo(b.stored(t)) != metal.UndoExact {
		t.Errorf("undo %s in the same rescue; want %s", got.Undo(b.stored(t)), metal.UndoExact)
	}
}
