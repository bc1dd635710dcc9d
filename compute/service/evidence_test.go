package service_test

import (
	"errors"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// A proof from before the fenced boot spoke proves nothing of after that.
func TestAnOlderProofDispelsNoDoubt(t *testing.T) {
	for _, e := range []compute.Evidence{compute.PowerCut, compute.Attested} {
		w := newWorld(t)
		w.no(w.forceDown(w.host, true))
		w.pass(compute.Suspect)
		r, err := w.ensure(w.host)
		w.no(err)
		w.pass(5 * time.Second)
		w.renew(w.host, "boot-1")
		old := []compute.Proof{{Evidence: e, Text: "it is off", At: w.now().Add(-time.Second)}}
		w.tx(func(tx job.Tx) error {
			_, err := w.Fences.Give(w.ctx, tx, w.host.ID, old, "root", "")
			return err
		})
		if r, err = w.store.Receipts().Get(w.ctx, nil, r.ID); err != nil || !r.Doubted() {
			t.Errorf("%s: %+v %v", e, r, err)
		}
	}
}

// What a former boot of a host acknowledged is no word of the boot that runs.
func TestAnAcknowledgementIsOfItsBoot(t *testing.T) {
	for name, rebooted := range map[string]bool{"the same boot": false, "another boot": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			there, _ := w.other(0)
			w.group(compute.HostGroup{Require: []compute.Evidence{compute.PowerCut, compute.Acknowledged}})
			w.no(w.forceDown(w.host, true))
			w.renew(w.host, "boot-1")
			if out := w.renew(w.host, "boot-1", stopped); !out.Stop {
				t.Fatalf("%+v", out)
			}
			if rebooted { // another process hears it
				must.Get(there.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-2"}))(w.t)
			}
			w.pass(time.Second)
			_, err := w.fence(w.host, compute.PowerCut)
			if problem.Is(err, problem.Conflict) != rebooted {
				t.Errorf("%v", err)
			}
		})
	}
}

// A move without a receipt gives up nothing that works on the server, also nothing that waits.
func TestAPlannedMoveGivesNothingUp(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.Reboot}, alice)
	before := w.jobs(s.ID)
	if len(before) != 1 {
		t.Fatalf("%+v", before)
	}
	w.run(before[0], job.Waiting) // which locks nothing
	if _, err := w.begin(s.ID, nil); !errors.Is(err, compute.ErrServerBusy) {
		t.Errorf("%v", err)
	}
	if after := w.jobs(s.ID); len(after) != 1 || after[0].ID != before[0].ID {
		t.Errorf("%+v", after)
	}
}

// A server that came back to the source of a finished move is not cleaned up there.
func TestAServerThatCameBackIsNotCleanedUp(t *testing.T) {
	w := newWorld(t)
	s, other := w.server(alice, compute.Active), w.join("host-b")
	m := w.moved(s, w.host, other, compute.CleanDisk)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) { s.HostID, s.Epoch = w.host.ID, s.Epoch+1 })
	})
	w.pass(2 * time.Second)
	if c, told := w.renew(w.host, "boot-1").Clean[s.ID]; told {
		t.Errorf("%+v", c)
	}
	if got, err := w.Moves.Get(w.ctx, m.ID); err != nil || got.State != compute.MoveCompleted {
		t.Errorf("%+v %v", got, err)
	}
}

// What a process chose from what it read a moment ago is looked at again: another one may have given the place away.
func TestAPlaceIsGivenAwayOnce(t *testing.T) {
	w := newWorld(t)
	there, _ := w.other(0)
	big := &compute.Flavor{Name: "big", VCPUs: 1, RAM: 1900, Disk: 2, Public: true}
	w.no(w.Flavors.Create(w.ctx, big, admin.Asker))
	place := func(by *service.Services) error {
		s := w.create(alice, func(c *compute.Creation) { c.Flavor = big.ID })
		return w.store.Do(w.ctx, func(tx job.Tx) error {
			_, _, err := by.Servers.Place(w.ctx, tx, s.ID, compute.CreateArgs{})
			return err
		})
	}
	w.no(w.Leases.FlushLeases(w.ctx))
	w.no(place(there))
	w.no(place(w.Services))
	if err := place(there); err == nil {
		t.Error("a third server of 1900 MiB is on a host of 4096")
	}
	if h := w.hostRow(w.host); h.UsedRAM != 2*1900 {
		t.Errorf("%d MiB are taken", h.UsedRAM)
	}
}

// listener is another process that only listens, once a second.
func (w *world) listener() (there *service.Services, st *ill, listen func(seconds int)) {
	there, st = w.other(0)
	w.no(w.Leases.FlushLeases(w.ctx))
	return there, st, func(seconds int) {
		for range seconds {
			if err := there.Liveness.ListenOnce(w.ctx); err != nil && !st.away {
				w.t.Fatal(err)
			}
			w.pass(time.Second)
		}
	}
}

// TestNobodyIsSilentWhileTheStoreIsAway: silence begins when it is back.
func TestNobodyIsSilentWhileTheStoreIsAway(t *testing.T) {
	w := newWorld(t)
	there, st, listen := w.listener()
	listen(5)
	st.away = true
	listen(10)
	st.away = false
	w.no(there.Liveness.ListenOnce(w.ctx))
	if silent, _, known := there.Liveness.Silence(w.host.ID); !known || silent != 0 {
		t.Errorf("silent for %s, %v", silent, known)
	}
}

// TestWhoStoodStillHeardNothing: a process that did not look for longer than it may counts silence from when it looks again.
func TestWhoStoodStillHeardNothing(t *testing.T) {
	w := newWorld(t)
	there, _, listen := w.listener()
	listen(2)
	w.pass(10 * time.Second)
	w.no(there.Liveness.Listen(w.ctx))
	if silent, _, known := there.Liveness.Silence(w.host.ID); !known || silent != 0 {
		t.Errorf("silent for %s, %v", silent, known)
	}
	if got := there.Liveness.Listening(); got != 0 {
		t.Errorf("it has listened for %s", got)
	}
}
