package service_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// TestARunningGuestAtTheOtherEndHoldsTheEvacuation: one that is paused there waits for its memory and is ended; one that runs may be
// the server.
func TestARunningGuestAtTheOtherEndHoldsTheEvacuation(t *testing.T) {
	w := newWorld(t)
	s, there := w.server(alice, compute.Active), w.join("host-b")
	w.join("host-c")
	must.Get(w.Moves.Migrate(w.ctx, s.ID, compute.MigrationRequest{}, admin))(w.t)
	w.run(w.jobs(s.ID)[0], job.Waiting)
	w.tx(func(tx job.Tx) error {
		open := must.Get(w.store.Moves().List(w.ctx, tx, compute.MoveFilter{ServerID: s.ID, Open: true}, record.Page{}))(w.t)
		open[0].Kind, open[0].State, open[0].DestID = compute.LiveMigration, compute.MovePreparing, there.ID
		return w.store.Moves().Save(tx, open[0])
	})
	w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
	w.renew(there, "boot-7", guests(runs(s, s.Epoch)))
	against := must.Get(w.Fences.Contradictions(w.ctx, w.hostRow(w.host)))(w.t)
	if len(against) != 1 || against[0].Code != compute.GuestSeenRunning {
		t.Errorf("against the end of its host speaks: %+v", against)
	}
	must.Get(w.fence(w.host, compute.PowerCut))(w.t)
	p := must.Get(w.Plans.Draft(w.ctx, compute.PlanRequest{Host: w.host.ID, Consent: []string{s.ID}}, admin))(w.t)
	if i := p.Items[0]; i.Disposition != compute.Cannot || !strings.Contains(i.Why, "boot-7") || !strings.Contains(i.Why, there.ID) {
		t.Errorf("planned: %+v", i)
	}
}

// TestAPlanIsHeldByAnotherBootOfTheFencedHost: the receipt proves the end of one boot.
func TestAPlanIsHeldByAnotherBootOfTheFencedHost(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.join("host-b")
	w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
	w.no(w.forceDown(w.host, true)) // which keeps it from being admitted
	must.Get(w.fence(w.host, compute.PowerCut))(w.t)
	w.pass(10 * time.Second)
	w.renew(w.host, "boot-2", guests(runs(s, s.Epoch)))
	p := must.Get(w.Plans.Draft(w.ctx, compute.PlanRequest{Host: w.host.ID, Consent: []string{s.ID}}, admin))(w.t)
	if i := p.Items[0]; i.Disposition != compute.Cannot || !strings.Contains(i.Why, "boot-2") {
		t.Errorf("planned: %+v", i)
	}
}

// TestNothingIsEndedForAGuestOfBeforeTheMove: the server's host reports a guest that is older than the move there, so nobody has seen
// what the move made run.
func TestNothingIsEndedForAGuestOfBeforeTheMove(t *testing.T) {
	w := newWorld(t)
	s, there, again := w.server(alice, compute.Active), w.join("host-b"), w.join("host-c")
	w.tx(func(tx job.Tx) error {
		return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) { s.Epoch += 3 })
	})
	s = w.read(s.ID)
	w.moved(s, w.host, there, compute.CleanGuest)
	w.pass(2 * time.Minute)
	w.renew(there, "boot-1", guests(runs(s, s.Epoch)))
	if c := w.renew(again, "boot-1", guests(runs(s, s.Epoch-1))).Clean[s.ID]; c.Do != compute.CleanAsk {
		t.Errorf("%+v", c)
	}
	w.renew(there, "boot-1", guests(runs(s, s.Epoch+1)))
	if c := w.renew(again, "boot-1", guests(runs(s, s.Epoch-1))).Clean[s.ID]; c.Do != compute.CleanGuest {
		t.Errorf("beside the guest that the move made: %+v", c)
	}
}

// TestALostHostNamesNoMachine: another host may be that machine by now, and what is fenced is not to be that one.
func TestALostHostNamesNoMachine(t *testing.T) {
	w := newWorld(t)
	w.tx(func(tx job.Tx) error {
		h, err := w.store.Hosts().Get(w.ctx, tx, w.host.ID)
		if err != nil {
			return err
		}
		h.NodeID = newID()
		return w.store.Hosts().Save(tx, h)
	})
	w.pass(time.Minute)
	w.no(w.Hosts.Remove(w.ctx, w.host.ID, "burnt", admin.Asker))
	if row := w.hostRow(w.host); !row.Lost || row.NodeID != "" {
		t.Errorf("%+v", row)
	}
}

// TestAStartThatFailedIsNotTriedAgainOnAFencedHost: the server may be on its way to another one.
func TestAStartThatFailedIsNotTriedAgainOnAFencedHost(t *testing.T) {
	for name, change := range map[string]func(*compute.Host){
		"it lives": func(*compute.Host) {}, "it is fenced": func(h *compute.Host) { h.Fenced = true }, "it is forced down": func(h *compute.Host) { h.ForcedDown = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.server(alice, compute.Active)
			w.tx(func(tx job.Tx) error {
				h, err := w.store.Hosts().Get(w.ctx, tx, w.host.ID)
				if err != nil {
					return err
				}
				change(h)
				return w.store.Hosts().Save(tx, h)
			})
			w.tx(func(tx job.Tx) error { return w.Observer.RestartLater(w.ctx, tx, s.ID, "no memory") })
			if jobs := w.jobs(s.ID); len(jobs) != map[bool]int{true: 1}[name == "it lives"] {
				t.Errorf("%+v", jobs)
			}
		})
	}
}

// TestNoMoveBeginsByAClosedReceipt: the receipt was open when it was read, and its host has been admitted again meanwhile.
func TestNoMoveBeginsByAClosedReceipt(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.pass(time.Minute)
	receipt, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	w.tx(func(tx job.Tx) error {
		now, err := w.store.Receipts().Get(w.ctx, tx, receipt.ID)
		if err != nil {
			return err
		}
		now.ClosedAt, now.Closed = w.now(), "returned"
		return w.store.Receipts().Save(tx, now)
	})
	_, err = w.begin(s.ID, receipt)
	w.want(err, problem.Conflict)
	if now := w.read(s.ID); now.Epoch != s.Epoch || now.Task != compute.NoTask {
		t.Errorf("the server was touched: %+v", now)
	}
}

// TestAMoveEndsTheOrdersOfItsSource: a host that comes back is not told to start what lives elsewhere.
func TestAMoveEndsTheOrdersOfItsSource(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	id := w.order(s, compute.SetPower)
	w.pass(time.Minute)
	receipt := must.Get(w.fence(w.host, compute.PowerCut))(w.t)
	must.Get(w.begin(s.ID, receipt))(w.t)
	o := must.Get(w.store.Order(w.ctx, nil, id))(w.t)
	if o.Result == nil || o.Result.ErrorKind != problem.Conflict.String() || !o.Secret.Empty() {
		t.Errorf("the order is still there: %+v", o)
	}
}
