package service_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// release releases the database as after a restore: what hosts told before is compared and carried out.
func (w *world) release() {
	w.t.Helper()
	w.tx(func(tx job.Tx) error {
		found, err := w.HeldDatabase.HeldGuests(w.ctx, tx)
		differs := map[string]compute.HeldGuest{}
		if err == nil {
			err = w.HeldDatabase.EachHeld(w.ctx, tx, func(servers []*compute.Server) error {
				for _, d := range found.Compare(servers) {
					differs[d.Subject.ID] = d
				}
				return nil
			})
		}
		if err == nil {
			err = w.HeldDatabase.ReleaseServers(w.ctx, tx, differs, false)
		}
		if err == nil {
			err = w.HeldDatabase.ReleaseHosts(w.ctx, tx, w.incarnation)
		}
		return err
	})
	w.incarnation = "second"
}

// of is the guest with another incarnation in its mark.
func of(incarnation string, g compute.Guest) compute.Guest {
	g.Incarnation = incarnation
	return g
}

// TestAGuestOfALostHistoryIsNotCleanedUp: by the backup, a server left host-a and its guest there is to be cleaned up. In the lost
// history the server may have come back. Only a guest of that very incarnation that is older than the move is ended.
func TestAGuestOfALostHistoryIsNotCleanedUp(t *testing.T) {
	w := newWorld(t)
	s, there := w.server(alice, compute.Active), w.join("host-b")
	m := w.moved(s, w.host, there, compute.CleanGuest)
	w.pass(2 * time.Minute)
	w.release()
	w.pass(2 * time.Minute)
	for name, c := range map[string]struct {
		guest compute.Guest
		want  compute.CleanUp
	}{
		"it came back in the lost history": {runs(s, m.Epoch+5), compute.CleanAsk},
		"at the epoch of the move":         {runs(s, m.Epoch), compute.CleanAsk},
		"of an unknown incarnation":        {of("", runs(s, m.Epoch-1)), compute.CleanAsk},
		"of another history":               {of("other", runs(s, m.Epoch-1)), compute.CleanAsk},
		"what the move left":               {runs(s, m.Epoch-1), compute.CleanGuest},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.renew(w.host, "boot-1", guests(c.guest)).Clean[s.ID]
			w.renew(w.host, "boot-1", guests(c.guest))
			if got.Do == compute.CleanAsk && strings.Count(w.timeline(s.ID), "virsh undefine "+s.ID) != 1 {
				t.Errorf("an operator is told %q", w.timeline(s.ID))
			}
			if got.Do != c.want {
				t.Fatalf("it is told %+v, want %q", got, c.want)
			}
			if got.Do == compute.CleanGuest && (got.Epoch != m.Epoch || got.Incarnation != "first") {
				t.Errorf("the clean-up is not limited to the history of its move: %+v", got)
			}
		})
	}
}

// TestAFormerGuestOfAnotherIncarnationStays: the server was moved after the release and is seen running. A guest of a lower epoch of
// the present incarnation is ended. A guest of another or of no incarnation is left alone, holds moves and is told with the reason.
func TestAFormerGuestOfAnotherIncarnationStays(t *testing.T) {
	for name, c := range map[string]struct {
		guest, holder, want string
		do                  compute.CleanUp
	}{
		"present":           {"second", "second", "", compute.CleanGuest},
		"former":            {"first", "second", "its epoch is of incarnation first", compute.CleanAsk},
		"unknown":           {"", "second", "its mark names no incarnation", compute.CleanAsk},
		"holder of unknown": {"second", "", "epoch", compute.CleanAsk},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, there, again := w.server(alice, compute.Active), w.join("host-b"), w.join("host-c")
			w.pass(2 * time.Minute)
			w.renew(there, "boot-1")
			w.release()
			m := w.moved(w.read(s.ID), w.host, there, compute.CleanGuest)
			w.pass(2 * time.Minute)
			w.renew(there, "boot-1", guests(of(c.holder, runs(s, m.Epoch))))
			if got := w.renew(again, "boot-1", guests(of(c.guest, runs(s, m.Epoch-1)))).Clean[s.ID]; got.Do != c.do {
				t.Fatalf("it is told %+v, want %q", got, c.do)
			}
			w.pass(time.Minute)
			words, _, err := w.GuestReports.Elsewhere(w.ctx, w.read(s.ID))
			w.no(err)
			if got := strings.Join(words, " "); !strings.Contains(got, c.want) || !strings.Contains(got, "host-c") {
				t.Errorf("it is told as %q, want %q", got, c.want)
			}
		})
	}
}

// TestAReleasedReceiptEndsNoGuests: by the backup a host is fenced, or forced down. In the lost history it may have been taken back. When it
// speaks after the release, it is not told to end its guests, and nothing is moved away by the old receipt.
func TestAReleasedReceiptEndsNoGuests(t *testing.T) {
	for name, down := range map[string]func(*world) error{
		"fenced": func(w *world) error { _, err := w.fence(w.host, compute.Attested); return err },
		"forced down": func(w *world) error {
			down := true
			_, err := w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{ForcedDown: &down}, admin.Asker)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.server(alice, compute.Active)
			w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
			w.pass(time.Minute)
			w.no(down(w))
			w.release()
			w.pass(10 * time.Second)
			for range 3 {
				w.pass(2 * time.Second)
				if out := w.renew(w.host, "boot-1", guests(runs(s, s.Epoch))); out.Stop || len(out.Clean) > 0 {
					t.Fatalf("after the release the host is told %+v", out)
				}
			}
			if h := w.hostRow(w.host); h.Fenced || h.ForcedDown {
				t.Errorf("the host is still kept out: %+v", h)
			}
		})
	}
}

// TestTwoReleasesOfOneBackup: hosts refuse orders with an epoch below the highest that they have seen. After the same backup was restored a
// second time, the numbers are above those that the first release and the work after it gave.
func TestTwoReleasesOfOneBackup(t *testing.T) {
	w := newWorld(t)
	id := w.server(alice, compute.Active).ID
	restore := func(epoch, fences int64) (seen, fenced int64) {
		w.tx(func(tx job.Tx) error {
			s, err := w.store.Servers().Get(w.ctx, tx, id)
			if err != nil {
				return err
			}
			h, err := w.store.Hosts().Get(w.ctx, tx, w.host.ID)
			if err != nil {
				return err
			}
			seen, fenced, s.Epoch, h.Fences = s.Epoch, h.Fences, epoch, fences
			if err := w.store.Servers().Save(tx, s); err != nil {
				return err
			}
			return w.store.Hosts().Save(tx, h)
		})
		return seen, fenced
	}
	restore(5, 2)
	w.release()
	w.pass(time.Second)
	epoch, fences := restore(5, 2)
	w.release()
	if again, fenced := restore(5, 2); again <= epoch || fenced <= fences {
		t.Errorf("epoch %d and fence %d after %d and %d of an earlier release", again, fenced, epoch, fences)
	}
}

// TestAReleasedReceiptStartsNothingElsewhere: by the backup host-a is fenced. In the lost history it was admitted again, and a server runs
// there under a boot that nobody knows. While the host is silent after the release, its old receipt lets nothing start elsewhere. Only a
// proof from after the release does.
func TestAReleasedReceiptStartsNothingElsewhere(t *testing.T) {
	w := newWorld(t)
	s, later := w.server(alice, compute.Active), w.server(alice, compute.Active)
	there := w.join("host-b")
	w.renew(w.host, "boot-1", guests(runs(s, s.Epoch), runs(later, later.Epoch)))
	w.pass(time.Minute)
	receipt, err := w.fence(w.host, compute.StorageRevoked, compute.Attested)
	w.no(err)
	moveID, err := w.begin(s.ID, receipt)
	w.no(err)
	w.renew(there, "boot-1")
	w.claim(moveID)
	w.release()
	w.pass(time.Minute)
	read := func() *compute.Receipt {
		t.Helper()
		r := must.Get(w.Fences.Receipt(w.ctx, nil, w.host.ID))(w.t)
		return r
	}
	if ok, err := w.Fences.Suffices(w.ctx, nil, read()); err != nil || ok {
		t.Fatalf("the former receipt suffices: %v %v", ok, err)
	}
	if err := w.attach(moveID); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "salvor fence "+w.host.ID) {
		t.Fatalf("the move that continues is told %v", err)
	}
	_, err = w.begin(later.ID, read())
	w.refuses(err, "salvor fence "+w.host.ID)
	_, err = w.ensure(w.host)
	w.refuses(err, "salvor fence")

	_, err = w.fence(w.host, compute.StorageRevoked)
	w.refuses(err, "no cut of its power")
	w.want(w.store.Do(w.ctx, func(tx job.Tx) error {
		old := []compute.Proof{{Evidence: compute.PowerCut, Text: "from before the release", At: w.now().Add(-24 * time.Hour)}}
		_, err := w.Fences.Give(w.ctx, tx, w.host.ID, old, "root", "")
		return err
	}), problem.Conflict)
	again, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	if r := read(); r.ID != again.ID || r.ID != receipt.ID || r.Incarnation != "" || len(r.Proofs) != 1 || !r.Has(compute.PowerCut) {
		t.Fatalf("the host is proven off again, its receipt is %+v", r)
	}
	if ok, err := w.Fences.Suffices(w.ctx, nil, read()); err != nil || !ok {
		t.Fatalf("the new proof does not suffice: %v %v", ok, err)
	}
	w.no(w.attach(moveID))
	_, err = w.begin(later.ID, read())
	w.no(err)
}

// TestAReleasedReceiptNeedsWhatItsGroupRequires: what the lost history may have undone is proven again, all of it.
func TestAReleasedReceiptNeedsWhatItsGroupRequires(t *testing.T) {
	w := newWorld(t)
	w.group(compute.HostGroup{Require: []compute.Evidence{compute.PowerCut, compute.StorageRevoked}})
	_, err := w.fence(w.host, compute.PowerCut, compute.StorageRevoked)
	w.no(err)
	w.release()
	w.pass(time.Minute)
	_, err = w.fence(w.host, compute.PowerCut)
	w.refuses(err, "requires evidence of")
	_, err = w.fence(w.host, compute.PowerCut, compute.StorageRevoked)
	w.no(err)
}

// TestAMoveThatContinuesKeepsItsBound: a move that was open at the release gets new epochs. Its clean-up ends no guest that was given
// to its source in the lost history, whatever epochs the move gets.
func TestAMoveThatContinuesKeepsItsBound(t *testing.T) {
	for name, c := range map[string]struct {
		claimed, released bool // before the release; after it, and claimed again
	}{
		"claimed before the release":            {claimed: true},
		"claimed after it":                      {},
		"destination changed after the release": {claimed: true, released: true},
		"claimed twice after the release":       {released: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.server(alice, compute.Active)
			there := w.join("host-b")
			claim := func(moveID string) {
				w.renew(there, "boot-1")
				w.claim(moveID)
			}
			w.pass(time.Minute)
			receipt := must.Get(w.fence(w.host, compute.PowerCut))(w.t)
			moveID := must.Get(w.begin(s.ID, receipt))(w.t)
			if c.claimed {
				claim(moveID)
			}
			was := must.Get(w.store.Moves().Get(w.ctx, nil, moveID))(w.t)
			w.release()
			w.pass(time.Minute)
			must.Get(w.fence(w.host, compute.PowerCut))(w.t)
			claim(moveID)
			if c.released {
				w.tx(func(tx job.Tx) error { return w.Moves.Release(w.ctx, tx, moveID, "it is full") })
				claim(moveID)
			}
			w.no(w.attach(moveID))
			told := func(epoch int64) compute.Clean {
				t.Helper()
				w.pass(10 * time.Second)
				return w.renew(w.host, "boot-2", guests(runs(s, epoch))).Clean[s.ID]
			}
			// In the lost history the server came back under a higher epoch than the move had.
			if got := told(was.Epoch + 1); got.Do == compute.CleanGuest || got.Do == compute.CleanDisk {
				t.Errorf("while it goes on, the host is told %+v", got)
			}
			w.tx(func(tx job.Tx) error {
				return w.Moves.Finish(w.ctx, tx, moveID, func(s *compute.Server) { s.Settle(compute.PowerOn) })
			})
			w.pass(2 * time.Minute)
			if got := told(was.Epoch + 1); got.Do != compute.CleanAsk {
				t.Errorf("of a guest of the lost history the host is told %+v", got)
			}
			got := told(s.Epoch)
			if got.Do != compute.CleanDisk || got.Epoch != was.Epoch || got.Incarnation != "first" {
				t.Errorf("of the guest that the move left the host is told %+v, want epoch %d", got, was.Epoch)
			}
			w.renew(w.host, "boot-2", func(r *compute.Renewal) { r.Cleaned = []compute.Cleaned{{ServerID: s.ID, Epoch: got.Epoch}} })
			if m, err := w.store.Moves().Get(w.ctx, nil, moveID); err != nil || m.State != compute.MoveCompleted {
				t.Errorf("the host cleaned up, the move is %+v %v", m, err)
			}
		})
	}
}

// TestAReleaseFreesHostsWithAgents: they are not forced down any more, by nobody. A node of a cluster stays so: its receipt is closed only
// when that is taken back.
func TestAReleaseFreesHostsWithAgents(t *testing.T) {
	w := newWorld(t)
	node := w.join("node-b")
	w.tx(func(tx job.Tx) error {
		h := must.Get(w.store.Hosts().Get(w.ctx, tx, node.ID))(w.t)
		h.Kind = compute.GanetiHost
		return w.store.Hosts().Save(tx, h)
	})
	for _, h := range []*compute.Host{w.host, node} {
		w.no(w.forceDown(h, true))
	}
	w.release()
	if h := w.hostRow(w.host); h.ForcedDown || h.ForcedDownBy != "" {
		t.Errorf("the host with an agent is forced down: %v, by %q", h.ForcedDown, h.ForcedDownBy)
	}
	if h := w.hostRow(node); !h.ForcedDown || h.ForcedDownBy == "" {
		t.Errorf("the node of a cluster is forced down: %v, by %q", h.ForcedDown, h.ForcedDownBy)
	}
}
