package server

import (
	"context"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/fake"
	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// TestAMoveBringsItsReceipt: the orders that prepare and define a guest at the destination name the receipt, by which alone the former
// host's lease of a disk may be broken. Those of a planned move name none.
func TestAMoveBringsItsReceipt(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	got := map[compute.Verb]compute.Args{}
	for _, o := range s.others {
		o.refuse = func(v compute.Verb, a *compute.Args) error { got[v] = *a; return nil }
	}
	s.fence(t)
	s.evacuate(t)
	s.workAll(t)
	s.livesElsewhere(t, true)
	id := s.lastMove(t).ReceiptID
	if id == "" || got[compute.Prepare].Receipt != id || got[compute.Define].Receipt != id || !got[compute.Define].Fresh {
		t.Errorf("receipt %q: prepare %+v, define %+v", id, got[compute.Prepare], got[compute.Define])
	}
	l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Stopped}})
	for _, o := range l.others {
		o.refuse = func(v compute.Verb, a *compute.Args) error { got[v] = *a; return nil }
	}
	l.requestMigration(t, compute.MigrationRequest{})
	l.finish(t)
	if got[compute.Prepare].Receipt != "" || got[compute.Define].Receipt != "" || !got[compute.Define].Fresh {
		t.Errorf("planned: prepare %+v, define %+v", got[compute.Prepare], got[compute.Define])
	}
}

// TestAGuestInTheWayIsLeftAlone: a guest of the server's UUID that comes to the destination after it was looked at is not redefined.
func TestAGuestInTheWayIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	stray := fake.State{Power: compute.PowerOn, Ours: true, Defined: hypervisor.Domain{Spec: compute.Spec{ServerID: s.server, GuestName: s.now(t).GuestName, Epoch: 1 << 20}}}
	for _, o := range s.others {
		o.refuse = func(v compute.Verb, _ *compute.Args) error {
			if v == compute.Define {
				o.hv.Put(s.server, stray)
			}
			return nil
		}
	}
	s.fence(t)
	s.evacuate(t)
	s.workAll(t)
	for _, o := range s.others {
		if g, there := o.hv.State(s.server); there && g.Defined.Epoch != stray.Defined.Epoch {
			t.Errorf("the guest in the way was made epoch %d", g.Defined.Epoch)
		}
	}
	if now := s.now(t); now.State != compute.Errored || now.Fault == nil || !strings.Contains(now.Fault.Message, "UUID") {
		t.Errorf("left as\n%s", s.whereabouts(t))
	}
}

// TestALeaseEndsTheMove: a destination that finds the disk in use ends the move before anything is attached; no other host is tried, and
// the server stays where it runs.
func TestALeaseEndsTheMove(t *testing.T) {
	t.Parallel()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}, others: 3})
	asked := 0
	for _, o := range s.others {
		o.refuse = func(v compute.Verb, _ *compute.Args) error {
			if v != compute.Prepare {
				return nil
			}
			asked++
			return problem.Forbiddenf("its disk is in use by host vm1, boot b1")
		}
	}
	s.fence(t)
	s.evacuate(t)
	s.workAll(t)
	now, m := s.now(t), s.lastMove(t)
	if asked != 1 || now.HostID != s.host.ID || now.Task != compute.NoTask || m.State == compute.MoveAttached || m.State == compute.MoveDone || !strings.Contains(m.Problem, "in use by host vm1") {
		t.Errorf("asked %d times, move %+v, left as\n%s", asked, m, s.whereabouts(t))
	}
}

// TestASourceThatIsFencedOnTheWay: the receipt of a source that died after it handed the server over goes with the order.
func TestASourceThatIsFencedOnTheWay(t *testing.T) {
	t.Parallel()
	l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	c := &Conductor{Config: Config{Store: l.store, Compute: l.services}}
	host := func() *compute.Host {
		h := must.Get(l.store.Hosts().Get(context.Background(), nil, l.host.ID))(t)
		return h
	}
	if id, err := c.moves().receiptOf(context.Background(), host()); id != "" || err != nil {
		t.Errorf("of a host that lives: %q %v", id, err)
	}
	if id, err := c.moves().receiptOf(context.Background(), nil); id != "" || err != nil {
		t.Errorf("of a host that is gone: %q %v", id, err)
	}
	l.fence(t)
	var want *compute.Receipt
	l.tx(t, func(tx job.Tx) (err error) {
		want, err = l.services.Fences.Receipt(context.Background(), tx, l.host.ID)
		return err
	})
	if id, err := c.moves().receiptOf(context.Background(), host()); id != want.ID || err != nil {
		t.Errorf("of a fenced host: %q %v, want %q", id, err, want.ID)
	}
}
