package service_test

import (
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// TestTheFencedBootSpeaksAgain: somebody said that it is down, and it lives with its guests. It is told to end them, and nothing is
// attached elsewhere before it has; what had been attached ends there at once.
func TestTheFencedBootSpeaksAgain(t *testing.T) {
	w := newWorld(t)
	first, second := w.server(alice, compute.Active), w.server(bob, compute.Active)
	other := w.join("host-b")
	w.no(w.forceDown(w.host, true))
	w.pass(compute.Suspect)
	receipt := must.Get(w.ensure(w.host))(w.t)
	w.renew(other, "boot-1")
	begin := func(s *compute.Server) (id string) {
		w.tx(func(tx job.Tx) error {
			srv, err := w.store.Servers().Get(w.ctx, tx, s.ID)
			w.no(err)
			m, err := w.Moves.Begin(w.ctx, tx, srv, &compute.Move{Disposition: compute.Reimage}, receipt, compute.MoveArgs{}, record.Asker{})
			w.no(err)
			id = m.ID
			_, err = w.Moves.Claim(w.ctx, tx, id, compute.MoveArgs{}, nil)
			return err
		})
		return id
	}
	attach := func(id string) error {
		return w.store.Do(w.ctx, func(tx job.Tx) error { return w.Moves.Attach(w.ctx, tx, id) })
	}
	there, waits := begin(first), begin(second)
	w.no(attach(there))
	w.pass(5 * time.Second)
	out := w.renew(w.host, "boot-1", stopped) // of nothing that it was told
	c := out.Clean[first.ID]
	if !out.Hold || !out.Stop || c.Do != compute.CleanGuest || c.Epoch != first.Epoch+1 || c.Spec == nil || out.Clean[second.ID].Do != compute.CleanWait {
		t.Fatalf("%+v", out)
	}
	w.want(attach(waits), problem.Unavailable)
	// That its guest is gone is no word on the disk that is to go when the move is done.
	w.tx(func(tx job.Tx) error {
		return w.Moves.Finish(w.ctx, tx, there, func(s *compute.Server) { s.Settle(compute.PowerOn) })
	})
	out = w.renew(w.host, "boot-1", func(r *compute.Renewal) { r.Cleaned = []compute.Cleaned{{ServerID: first.ID, Epoch: c.Epoch}} })
	if done := out.Clean[first.ID]; done.Do != compute.CleanDisk || done.Epoch <= c.Epoch || !out.Stop {
		t.Fatalf("%+v", out)
	}
	w.want(attach(waits), problem.Unavailable)
	if out = w.renew(w.host, "boot-1", stopped); !out.Hold || out.Stop {
		t.Fatalf("%+v", out)
	}
	w.no(attach(waits))
	w.saw(w.host, "warning", "has told that none of its guests runs")
	if out = w.renew(w.host, "boot-1"); out.Stop {
		t.Fatalf("%+v: told again", out)
	}
}

// TestADoubtEnds by another boot, or by a proof from after it; what was under way when the host was fenced is none.
func TestADoubtEnds(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		end   func(*world)
		want  bool
	}{
		"under way":       {time.Second, func(*world) {}, false},
		"heard":           {5 * time.Second, func(*world) {}, true},
		"another boot":    {5 * time.Second, func(w *world) { w.renew(w.host, "boot-2") }, false},
		"proven again":    {5 * time.Second, func(w *world) { w.pass(time.Second); must.Get(w.fence(w.host, compute.Attested))(w.t) }, false},
		"an older proof":  {5 * time.Second, func(w *world) { must.Get(w.fence(w.host, compute.Acknowledged))(w.t) }, true},
		"the storage too": {5 * time.Second, func(w *world) { w.pass(time.Second); must.Get(w.fence(w.host, compute.StorageRevoked))(w.t) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.no(w.forceDown(w.host, true))
			w.pass(compute.Suspect)
			r := must.Get(w.ensure(w.host))(w.t)
			w.pass(c.after)
			if out := w.renew(w.host, "boot-1"); !out.Hold || !out.Stop {
				t.Fatalf("%+v", out)
			}
			c.end(w)
			r = must.Get(w.store.Receipts().Get(w.ctx, nil, r.ID))(w.t)
			if r.Doubted() != c.want || !r.Open() {
				t.Errorf("%+v", r)
			}
		})
	}
}
