package host

import (
	"context"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
)

// A guest ran on another file than its definition names, and ended. No start goes back to the file of the definition, not even after a restart of the agent,
// until somebody names the file that the guest used, or starts the guest by hand.
func TestAStartUsesTheFilesOfTheLastRun(t *testing.T) {
	w := newWorld(t)
	for _, remedy := range []string{"virsh edit", "virsh start"} {
		l := loseServer(t, w, newGuests())
		over := overlay(t, l.own+".ov", l.own)
		own, used := compute.GuestDisk{Name: "vda", File: l.own, Format: "raw"}, compute.GuestDisk{Name: "vda", File: over, Format: "qcow2"}
		lent := used
		lent.File = over + ".lent"
		l.g.set(compute.Guest{ID: l.id, Name: "salvor-1", Ours: true, Epoch: 1, Power: compute.PowerOn, Disks: []compute.GuestDisk{own, {Name: "vdz", File: lent.File}}, NextDisks: []compute.GuestDisk{own}})
		l.listed(t)
		if used := must.Get(l.usedDisks(l.id))(t); len(used) != 0 {
			t.Errorf("a disk that someone lent is remembered: %v", used)
		}
		l.use(used, own)
		if g := l.listed(t); len(g.Drift) != 1 {
			t.Fatalf("while it runs: drift %+v, want one", g.Drift)
		}
		_ = l.Close()
		l.open(t)
		end := func(next compute.GuestDisk) {
			l.g.set(compute.Guest{ID: l.id, Name: "salvor-1", Ours: true, Epoch: 1, Power: compute.PowerCrashed, Disks: []compute.GuestDisk{next}, NextDisks: []compute.GuestDisk{next}})
		}
		start := func() error { return l.carryOut(t, compute.SetPower, compute.Args{Power: compute.PowerOn}) }
		end(own)
		for range 2 {
			g := l.listed(t)
			if len(g.Drift) != 1 || !strings.Contains(g.Drift[0].Text, "was in use in "+over) || g.RefusalToLeave() == nil {
				t.Errorf("after its end: drift %+v, it may leave its host: %v; want one of %s, and a refusal", g.Drift, g.RefusalToLeave(), over)
			}
			if err := start(); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), over) || !strings.Contains(err.Error(), "virsh edit salvor-1") || l.g.changes(l.id) != 0 {
				t.Errorf("start: %v, want a Conflict that names %s and the commands", err, over)
			}
		}
		if remedy == "virsh edit" {
			end(used)
		} else {
			l.use(own, own)
			l.listed(t)
			end(own)
		}
		must.OK(t, start())
		if l.g.changes(l.id) != 1 {
			t.Errorf("after %s the guest was started %d times, want once", remedy, l.g.changes(l.id))
		}
	}
}

// countedGuests counts the lists of guests that were read.
type countedGuests struct {
	*guests
	lists int
}

func (c *countedGuests) Guests(ctx context.Context) ([]compute.Guest, error) {
	c.lists++
	return c.guests.Guests(ctx)
}

// TestAStartLooksOnceBeforeAndOnceAfter: each look lists all guests of the host, so a start on a host of many guests makes no more of them.
func TestAStartLooksOnceBeforeAndOnceAfter(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	own := compute.GuestDisk{Name: "vda", File: l.seen, Format: "raw"}
	l.g.set(compute.Guest{ID: l.id, Name: "salvor-1", Ours: true, Epoch: 1, Power: compute.PowerOff, Files: []string{l.seen}, Disks: []compute.GuestDisk{own}, NextDisks: []compute.GuestDisk{own}})
	counted := &countedGuests{guests: l.g}
	l.Hypervisor = counted
	must.OK(t, l.carryOut(t, compute.SetPower, compute.Args{Power: compute.PowerOn}))
	if counted.lists != 2 {
		t.Errorf("a start of a guest in a shared store lists the guests %d times, want 2", counted.lists)
	}
}

// TestTheInnerStoreHasTheFile: of two disk stores of which one lies in the other, the inner one has the files in it, in whichever order they are named.
func TestTheInnerStoreHasTheFile(t *testing.T) {
	outer, inner := &diskStore{Store: Store{Name: "outer", Dir: "/srv"}}, &diskStore{Store: Store{Name: "inner", Dir: "/srv/nfs", Shared: true}}
	for _, stores := range []diskStores{{outer, inner}, {inner, outer}} {
		a := &Agent{stores: stores}
		for file, want := range map[string]*diskStore{"/srv/nfs/x-vda": inner, "/srv/x-vda": outer, "/srv/nfs": outer, "/var/x-vda": nil, "/srvx": nil} {
			if got := a.storeWith(file); got != want {
				t.Errorf("%s, stores %s first: %+v, want %+v", file, stores[0].Name, got, want)
			}
			if got := a.sharedStoreWith(file); (got == inner) != (want == inner) || got == outer {
				t.Errorf("%s, stores %s first: shared store %+v, want it only if it is the inner one", file, stores[0].Name, got)
			}
		}
	}
}
