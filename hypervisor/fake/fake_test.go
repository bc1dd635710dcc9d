package fake

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/hypervisortest"
	"salvor/problem"
	"salvor/rescue"
)

// TestContract: what every hypervisor must do.
func TestContract(t *testing.T) {
	h := New()
	hypervisortest.Run(t, hypervisortest.Subject{
		Hypervisor: h, Soft: time.Second, IgnoredSoftOff: 50 * time.Millisecond, Powers: []compute.Power{compute.PowerPaused, compute.PowerSaved},
		Domain: func(_ *testing.T, listens bool) hypervisor.Domain {
			id := uuid.NewString()
			d := hypervisor.Domain{Spec: compute.Spec{
				ServerID: id, GuestName: "guest-" + id, Epoch: 1, VCPUs: 1, RAM: 256, Machine: map[string]string{},
				NICs:  []compute.NIC{{MAC: "fa:16:3e:00:00:01", Bridge: "br0"}},
				Disks: []compute.SpecDisk{{Name: "vda", SizeGiB: 1}},
			}}
			if !listens {
				d.Machine[IgnoresSoftOff] = "yes"
			}
			return d
		},
		Rescue: func(_ *testing.T, d hypervisor.Domain) hypervisor.Domain {
			d.Rescue = &compute.SpecRescue{Source: rescue.Source{Name: "finnix", Kind: rescue.ISO}}
			return d
		},
		Plug: func(_ *testing.T, d hypervisor.Domain) (hypervisor.Domain, string) {
			d.Disks = append([]compute.SpecDisk{{Name: "vdb"}}, d.Disks...)
			return d, "vdb"
		},
		Break: func(*testing.T) func() {
			for _, method := range []string{"Guests", "Define", "SetPower"} {
				h.Break(method, problem.Unavailablef("cut off"))
			}
			return func() {
				for _, method := range []string{"Guests", "Define", "SetPower"} {
					h.Break(method, nil)
				}
			}
		},
	})
}
