package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// TestInspectSharedMAC: an inspection leaves out a MAC that is a port of another node, takes the others, and says so in the history with the
// other node's name for readers who see every node.
func TestInspectSharedMAC(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"bench", "ramdisk"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			b := benched(t, metal.Manageable)
			shared := "52:54:00:00:00:02" // the bench's BMC tells this one
			if by == "ramdisk" {
				b.agent.findings, b.con.AddPorts = true, "all"
				shared = "52:54:00:00:00:07"
				change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"inspect": "ramdisk"} })
			}
			other := &metal.Node{ID: uuid.NewString(), Name: "the-other", Driver: "bench", ProvisionState: metal.Manageable}
			must.OK(t, b.nodes.Create(t.Context(), other, record.Asker{}))
			must.OK(t, metal.NewPorts(b.store, b.store, b.nodes).Create(t.Context(), &metal.Port{NodeID: other.ID, Address: shared}, record.Asker{}))
			b.run(t)
			b.withSteps(t, metal.Inspect, "")
			if n := b.pokes(t, metal.Manageable); n.LastError != "" {
				t.Errorf("last_error %q, want none", n.LastError)
			}
			ports := must.Get(b.store.Ports(t.Context(), metal.PortFilter{Address: shared}, record.Page{Limit: 10}))(t)
			if len(ports) != 1 || ports[0].NodeID != other.ID {
				t.Errorf("ports with the shared MAC: %+v; want that of the other node alone", ports)
			}
			text := "the NIC " + shared + " gets no port, because another node has a port with this address: "
			var found string
			for _, e := range must.Get(b.store.Events(t.Context(), job.Node(b.node), 0, 1000))(t) {
				if strings.Contains(e.Text, text) {
					found = e.Text
				}
			}
			if !strings.Contains(found, "the-other") || strings.Contains(problem.Redact(found), "the-other") {
				t.Errorf("history says %q; want %q with the other node's name in quotation marks", found, text)
			}
		})
	}
}

// TestOneFullStop: a cause that ends with a full stop gets no second one before what may be asked next.
func TestOneFullStop(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Manageable)
	b.refuse(problem.Conflictf("A port with MAC address x already exists."))
	b.run(t)
	must.OK(t, b.ask(t, metal.Inspect))
	if n := b.until(t, metal.InspectFailed); strings.Contains(n.LastError, "..") || !strings.Contains(n.LastError, "already exists. Once") {
		t.Errorf("%s; want one full stop", fmt.Sprintf("%q", n.LastError))
	}
}
