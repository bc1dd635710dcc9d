package host

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/test/must"
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

// failing is a hypervisor that changes a guest's power and then fails; keeps: it fails before that.
type failing struct {
	*guests
	keeps bool
}

func (f failing) SetPower(ctx context.Context, id string, p hypervisor.Power) (bool, error) {
	if !f.keeps {
		_, _ = f.guests.SetPower(ctx, id, p)
	}
	return false, problem.Conflictf("libvirt fails")
}

func offOrder(id string) *compute.Order {
	return &compute.Order{ID: uuid.NewString(), BootID: "boot-1", ServerID: id, Epoch: 1, Verb: compute.SetPower, Within: 60, Args: mustEncodeJSON(compute.Args{Power: compute.PowerOff})}
}

// TestLostMemoryIsTold: that an order gave saved memory up is told although the agent dies after it, or the order fails after it.
func TestLostMemoryIsTold(t *testing.T) {
	w, g := newWorld(t), newGuests()
	c := w.config(g)
	id := ours(g, compute.PowerSaved, 1)
	o := offOrder(id)
	g.after = func(string) { panic(errKilled) }
	if _, killed := life(t, c, o); !killed {
		t.Fatal("the agent was not killed")
	}
	g.after = nil
	if r, _ := life(t, c, o); r.ErrorKind != "" || !r.MemoryLost {
		t.Errorf("killed after the memory was given up: %+v, want memory lost", r)
	}
	if r, _ := life(t, c, offOrder(id)); r.ErrorKind != "" || r.MemoryLost {
		t.Errorf("the next order: %+v, want no memory lost", r)
	}

	for _, keeps := range []bool{false, true} {
		c.Hypervisor = failing{g, keeps}
		id = ours(g, compute.PowerSaved, 1)
		a := must.Get(Open(c))(t)
		r, _ := a.perform(t.Context(), orderTask{order: offOrder(id)})
		did := a.lease.did
		must.OK(t, a.Close())
		if r.ErrorKind == "" || (len(did) == 1 && did[0].ServerID == id) == keeps {
			t.Errorf("memory is kept %v: the order answers %+v, and %+v is told; want a failure, and a word if the memory is gone", keeps, r, did)
		}
	}

	// An order that was broken off and never comes again is told of by the next one.
	c.Hypervisor = g
	id = ours(g, compute.PowerSaved, 1)
	g.after = func(string) { panic(errKilled) }
	life(t, c, offOrder(id))
	g.after = nil
	a := must.Get(Open(c))(t)
	defer a.Close()
	r, _ := a.perform(t.Context(), orderTask{order: offOrder(id)})
	if did := a.lease.did; r.ErrorKind != "" || r.MemoryLost || len(did) != 1 || did[0].ServerID != id {
		t.Errorf("after an order that was broken off: %+v, and %+v is told; want one word on server %s", r, did, id)
	}
}
