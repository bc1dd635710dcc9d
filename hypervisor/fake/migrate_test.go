package fake

import (
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/hypervisortest"
)

func TestMigratorContract(t *testing.T) {
	from, to := New(), New()
	hypervisortest.Migrate(t, hypervisortest.Pair{
		From: from, To: to, Listen: "192.0.2.1",
		Domain: func(*testing.T) hypervisor.Domain {
			id := uuid.NewString()
			return hypervisor.Domain{Spec: compute.Spec{ServerID: id, GuestName: "salvor-" + id, Epoch: 3, VCPUs: 1, RAM: 64}}
		},
		There: func(_ *testing.T, d hypervisor.Domain) hypervisor.Domain {
			d.Epoch++
			return d
		},
		Up: func(*testing.T, hypervisor.Domain) {},
		Lives: func(t *testing.T, d hypervisor.Domain) {
			for _, h := range []*Hypervisor{from, to} {
				if g, there := h.State(d.ServerID); there && (g.Starts != 1 || g.Runs == nil) {
					t.Errorf("it was started %d times", g.Starts)
				}
			}
		},
	})
}
