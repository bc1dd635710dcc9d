package compute_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
)

// release releases the database as after a restore: what hosts told before is compared and carried out.
func (w *world) release() {
	w.t.Helper()
	w.tx(func(tx job.Tx) error {
		found, err := w.Hosts.HeldGuests(w.ctx, tx)
		differs := map[string]compute.HeldGuest{}
		if err == nil {
			err = w.Servers.EachHeld(w.ctx, tx, func(servers []*compute.Server) error {
				for _, d := range found.Compare(servers) {
					differs[d.Subject.ID] = d
				}
				return nil
			})
		}
		if err == nil {
			err = w.Servers.ReleaseServers(w.ctx, tx, differs)
		}
		if err == nil {
			err = w.Hosts.ReleaseHosts(w.ctx, tx, w.incarnation)
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
			words, _, err := w.Hosts.Elsewhere(w.ctx, w.read(s.ID))
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
