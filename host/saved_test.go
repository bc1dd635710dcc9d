package host

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

// plugger counts the disks that are attached and detached.
type plugger struct {
	*guests
	plugs int
}

func (p *plugger) Plug(context.Context, hypervisor.Domain, string, bool) error { p.plugs++; return nil }

// TestDisksOfASavedGuestStay: a guest whose memory is saved goes on with the disks that it had, so none is attached or detached meanwhile.
func TestDisksOfASavedGuestStay(t *testing.T) {
	w := newWorld(t)
	p := &plugger{guests: newGuests()}
	c := w.config(p.guests)
	c.Hypervisor = p
	for power, plugs := range map[compute.Power]int{compute.PowerSaved: 0, compute.PowerOn: 1, compute.PowerOff: 1} {
		for _, verb := range []compute.Verb{compute.Attach, compute.Detach} {
			id := ours(p.guests, power, 1)
			p.plugs = 0
			disk := compute.SpecDisk{Name: "vdb", VolumeID: uuid.NewString()}
			o := &compute.Order{ID: uuid.NewString(), BootID: "boot-1", ServerID: id, Epoch: 1, Verb: verb, Within: 60, Args: mustEncodeJSON(compute.Args{Spec: specFor(id), Disk: &disk})}
			r, _ := life(t, c, o)
			refused := r.ErrorKind == problem.Conflict.String() && strings.Contains(r.Error, "resume the server first")
			if p.plugs != plugs || refused != (plugs == 0) {
				t.Errorf("%s of a guest that is %s: %d disks changed, answer %q; want %d", verb, power, p.plugs, r.Error, plugs)
			}
		}
	}
}
