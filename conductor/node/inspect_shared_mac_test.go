package node

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"salvor/metal"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
)

// TestAMACOfTwoMachines: metal3-docs PR 595, openshift ironic-agent-image PR 195. BMCs list their own USB network adapter among the network
// cards, and all machines of a make have the same address there. The address stays with the node that has it, and the inspection of the
// second machine succeeds.
func TestAMACOfTwoMachines(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, metal.Manageable)
	const shared = "52:54:00:00:00:02"
	other := &metal.Node{ID: uuid.NewString(), Driver: "bench", ProvisionState: metal.Manageable}
	must.OK(t, b.nodes.Create(ctx, other, record.Asker{}))
	must.OK(t, metal.NewPorts(b.store, b.store, b.nodes).Create(ctx, &metal.Port{NodeID: other.ID, Address: shared}, record.Asker{}))
	b.run(t)
	b.start(t, metal.Inspect)
	var n *metal.Node
	fixture.Poll(t, "the inspection has ended", func() bool { n = b.stored(t); return n.ProvisionState != metal.Inspecting && n.Reservation == "" }, b.picture)
	if n.LastError != "" || n.Properties["cpus"] != 2.0 {
		t.Errorf("error %q and properties %v after the inspection, want none and 2 cpus", n.LastError, n.Properties)
	}
	for node, want := range map[string]int{b.node: 1, other.ID: 1} {
		ports := must.Get(b.store.Ports(ctx, metal.PortFilter{NodeID: node}, record.Page{Limit: 10}))(t)
		if len(ports) != want {
			t.Errorf("node %s has %d ports, want %d", node, len(ports), want)
		}
	}
}
