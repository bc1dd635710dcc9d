package node

import (
	"context"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// TestPowerOnIsRefusedHalfWayThroughARescue: a machine whose rescue or unrescue failed boots by a verb that puts its boot and its networks
// right, and not by a bare power on. It may be switched off.
func TestPowerOnIsRefusedHalfWayThroughARescue(t *testing.T) {
	t.Parallel()
	for _, state := range []metal.State{metal.Rescue, metal.RescueFailed, metal.UnrescueFailed} {
		b := newBench(t, state)
		for _, target := range []metal.PowerTarget{metal.TurnOn, metal.Reboot, metal.SoftReboot} {
			err := b.nodes.SetPower(context.Background(), b.node, target, 0, record.Asker{})
			if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "unrescue") {
				t.Errorf("%s in %s: %v; want a conflict that names unrescue", target, state, err)
			}
		}
		if err := b.nodes.SetPower(context.Background(), b.node, metal.TurnOff, 0, record.Asker{}); err != nil {
			t.Errorf("power off in %s: %v", state, err)
		}
	}
}

// TestPowerOfAnotherGroupIsNotRead: what reads the power of a host asks the BMCs of its own conductor groups alone, and asks for permission.
func TestPowerOfAnotherGroupIsNotRead(t *testing.T) {
	t.Parallel()
	b, ctx := newBench(t, metal.Active), t.Context()
	if power, err := b.con.PowerState(ctx, b.node); power != metal.PowerOn || err != nil {
		t.Errorf("read %q: %v", power, err)
	}
	b.con.Groups = []string{"north"}
	if power, err := b.con.PowerState(ctx, b.node); power != "" || !problem.Is(err, problem.Unsupported) {
		t.Errorf("of another group: %q: %v", power, err)
	}
	b.con.Groups = []string{""}
	b.con.Permission = &job.Permission{Alive: func() error { return problem.Unavailablef("the lease is running out") }}
	if err := driver.CheckLease(b.con.guarded(ctx)); !problem.Is(err, problem.Unavailable) {
		t.Errorf("without a lease: %v", err)
	}
}

// TestLockedPowerStaysOff: no driver switches on a node whose power is locked.
func TestLockedPowerStaysOff(t *testing.T) {
	t.Parallel()
	b, ctx := newBench(t, metal.Active), t.Context()
	b.power = metal.PowerOff
	must.OK(t, b.store.Do(ctx, func(tx job.Tx) error { return b.nodes.LockPower(ctx, tx, b.node, "fenced") }))
	m := must.Get(b.con.machine(ctx, b.node))(t)
	if err := m.power.SetPower(ctx, m.node, metal.PowerOn); !problem.Is(err, problem.Conflict) || b.power != metal.PowerOff {
		t.Errorf("switched on: %v", err)
	}
}
