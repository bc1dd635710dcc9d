package host

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// TestOrdersOfAnotherBootAreLeft: an order for another boot, or another host, is not begun; it is asked for again.
func TestOrdersOfAnotherBootAreLeft(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, _ := guarded(t, w, w.config(g))
	id := ours(g, compute.PowerOff, 1)
	runCtx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); a.orders.workers.Wait() })
	for what, change := range map[string]func(o *compute.Order){
		"boot": func(o *compute.Order) { o.BootID = "boot-0" },
		"host": func(o *compute.Order) { o.HostID = o.ServerID },
	} {
		o := orderFor(a, id, compute.SetPower, compute.Args{Power: compute.PowerOn}, nil)
		change(o)
		if a.orders.take(runCtx, wire.Order{Order: mustEncodeJSON(o)}) {
			t.Fatalf("an order of another %s is taken", what)
		}
	}
	if g.changes(id) != 0 || a.orders.sequence() != 0 || len(a.orders.known) != 0 {
		t.Errorf("%d changes of the guest, %d orders", g.changes(id), a.orders.sequence())
	}
	if p, err := a.journal.read(id); err != nil || len(p.Orders) != 0 {
		t.Errorf("the journal: %+v %v", p, err)
	}
}

// TestAClockThatCannotBeReadIsALapse: a host that fences itself, and does not know how old its lease is, ends its guests.
func TestAClockThatCannotBeReadIsALapse(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, now := guarded(t, w, w.config(g))
	mine := ours(g, compute.PowerOn, 1)
	a.readGuests(t.Context())
	answer(t, a, wire.Renewed{SelfFence: true})
	if !a.mayWork() {
		t.Fatal("a fresh lease is none")
	}
	a.Alive = func() (time.Duration, error) { return time.Duration(now.now.Load()), errors.New("no clock") }
	if a.mayWork() || !a.lapsed() {
		t.Error("it works on")
	}
	loops(t, a.runSelfFence)
	await(t, "the end of the guest", func() bool { return g.get(mine).Power == compute.PowerOff })
}

// TestAResultThatCannotBeWrittenIsNotTold: whoever cannot remember that an order was done does not say so; the order runs again.
func TestAResultThatCannotBeWrittenIsNotTold(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, _ := guarded(t, w, w.config(g))
	id := ours(g, compute.PowerOff, 1)
	o := orderFor(a, id, compute.SetPower, compute.Args{Power: compute.PowerOn}, nil)
	blocked := a.journal.path(id) + ".new" // where the journal is written first
	g.after = func(string) {
		if err := os.MkdirAll(blocked, 0o700); err != nil {
			t.Error(err)
		}
		if err := os.MkdirAll(blocked+"/x", 0o700); err != nil { // so that it stays
			t.Error(err)
		}
	}
	if r, ok := a.perform(t.Context(), orderTask{order: o}); ok {
		t.Fatalf("told: %+v", r)
	}
	if p, err := a.journal.read(id); err != nil || len(p.Orders) != 1 || p.Orders[0].Result != nil {
		t.Errorf("the journal: %+v %v", p, err)
	}
	g.after = nil
	must.OK(t, os.RemoveAll(blocked))
	r, ok := a.perform(t.Context(), orderTask{order: o})
	if !ok || r.ErrorKind != "" || g.get(id).Power != compute.PowerOn {
		t.Errorf("again: %+v %v", r, ok)
	}
	if p, err := a.journal.read(id); err != nil || p.Orders[0].Result == nil {
		t.Errorf("the journal: %+v %v", p, err)
	}
	stale := *o
	stale.Epoch = 0
	stale.ID = stale.ServerID
	if r, _ := a.perform(t.Context(), orderTask{order: &stale}); r.ErrorKind != problem.Conflict.String() {
		t.Errorf("a stale epoch: %+v", r)
	}
}
