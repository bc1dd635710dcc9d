package node

import (
	"context"
	"testing"

	"salvor/metal"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
)

// untilWaitingFor waits until the node's open job waits for what is named.
func (b *bench) untilWaitingFor(t *testing.T, what string) {
	t.Helper()
	fixture.Poll(t, "one job waits for "+what, func() bool { open := b.open(t); return len(open) == 1 && open[0].WaitFor == what }, b.picture)
}

// maintenance puts the node into maintenance, or ends it.
func (b *bench) maintenance(t *testing.T, on bool) {
	t.Helper()
	must.OK(t, b.nodes.SetMaintenance(context.Background(), b.node, on, "by hand", record.Asker{}))
}

// TestUpdatedMaintenanceSignalsTheWaitingJob: an update of the record that begins or ends maintenance reaches the waiting job.
func TestUpdatedMaintenanceSignalsTheWaitingJob(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.GoOnInMaintenance = true
	b.run(t)
	b.start(t, metal.ToRescue)
	b.until(t, metal.RescueWait)
	update := func(on bool) {
		t.Helper()
		must.Get(b.nodes.Update(context.Background(), b.node, record.Asker{}, func(n *metal.Node) error { n.Maintenance = on; return nil }))(t)
	}
	const callback = "rescue ramdisk callback for node"
	b.untilWaitingFor(t, callback)
	b.maintenance(t, true)
	b.untilWaitingFor(t, metal.EndOfMaintenance)
	update(false)
	b.untilWaitingFor(t, callback)
}
