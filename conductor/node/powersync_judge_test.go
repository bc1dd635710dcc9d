package node

import (
	"context"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

// judged has power sync judge a reading of the node as it was read before.
func (b *bench) judged(t *testing.T, p PowerSync, read *metal.Node, r powerReading) {
	t.Helper()
	r.at = b.con.Now()
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error { return b.con.powers().judge(context.Background(), tx, p, read, r) }))
}

// TestAGoodReadingEndsNoOperatorsMaintenance: only the maintenance that power sync began ends with the BMC's answer.
func TestAGoodReadingEndsNoOperatorsMaintenance(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	change(t, b, func(n *metal.Node) { n.Maintenance, n.MaintenanceReason = true, "the fan is being replaced" })
	n := b.read(t)
	b.judged(t, everyNode, n, powerReading{state: n.PowerState, health: n.Health})
	if n := b.read(t); !n.Maintenance || n.MaintenanceReason != "the fan is being replaced" {
		t.Errorf("maintenance %v for %q", n.Maintenance, n.MaintenanceReason)
	}
}

// TestFailedReadingsAreForgivenAFewTimes: as many as [conductor]power_state_sync_max_retries.
func TestFailedReadingsAreForgivenAFewTimes(t *testing.T) {
	t.Parallel()
	b, p := newBench(t, metal.Active), everyNode
	p.Retries = 2
	for i := range 3 {
		if n := b.read(t); n.Maintenance {
			t.Fatalf("maintenance after %d failed readings", i)
		}
		b.judged(t, p, b.read(t), powerReading{err: problem.Unavailablef("no answer")})
	}
	if n := b.read(t); !n.Maintenance || n.Fault != metal.PowerFailure {
		t.Errorf("after 3 failed readings: maintenance %v, fault %q", n.Maintenance, n.Fault)
	}
}

// TestAReadingOfAFormerRowDoesNotCount: what changed the node meanwhile may have changed its power.
func TestAReadingOfAFormerRowDoesNotCount(t *testing.T) {
	t.Parallel()
	b, p := newBench(t, metal.Active), everyNode
	p.Force = false
	change(t, b, func(n *metal.Node) { n.PowerState = metal.PowerOn })
	former := b.read(t)
	change(t, b, func(n *metal.Node) { n.Description = "another" })
	off := powerReading{state: metal.PowerOff, health: former.Health}
	b.judged(t, p, former, off)
	if n := b.read(t); n.PowerState != metal.PowerOn {
		t.Errorf("the power is %q by a reading of a former row", n.PowerState)
	}
	b.judged(t, p, b.read(t), off)
	if n := b.read(t); n.PowerState != metal.PowerOff {
		t.Errorf("the power is %q by a reading of this row", n.PowerState)
	}
}

// TestOnlyTheAgentOfThisBootReportsErrors.
func TestOnlyTheAgentOfThisBootReportsErrors(t *testing.T) {
	n := &metal.Node{BootNumber: 2}
	for boot, reports := range map[int64]bool{1: false, 2: true} {
		if err := agentError(n, metal.Contact{AgentBoot: boot, AgentStatus: "error"}); (err != nil) != reports {
			t.Errorf("boot %d: %v", boot, err)
		}
	}
}
