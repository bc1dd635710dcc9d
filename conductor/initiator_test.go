package conductor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/storage"
)

// gate is a storage that notes whom it let in to what.
type gate struct {
	mu     sync.Mutex
	let    []string
	broken error
	mute   error // of what takes leave away
}

func (g *gate) Allow(_ context.Context, target, initiator string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if word := target + " " + initiator; g.broken == nil && !slices.Contains(g.let, word) {
		g.let = append(g.let, word)
	}
	return g.broken
}

func (g *gate) Revoke(_ context.Context, initiators ...string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mute == nil {
		g.let = slices.DeleteFunc(g.let, func(word string) bool { _, name, _ := strings.Cut(word, " "); return slices.Contains(initiators, name) })
	}
	return g.mute
}

func (g *gate) Sessions(context.Context) ([]storage.Session, error) { return nil, g.broken }

// TestAdmitted: a host is let in to a volume before the guest is told of it, by its own name or the guest's; where the storage says no,
// the guest is told nothing.
func TestAdmitted(t *testing.T) {
	t.Parallel()
	h := newHouse(t, quarters{state: compute.Active})
	g := &gate{}
	h.con.Config.Storage = g
	h.con = New(h.con.Config)
	attach := func() { h.act(t, compute.Act{Action: compute.AttachVolume, VolumeID: h.volume}); h.work(t) }
	attach()
	if want := []string{"iqn.2026-11.test:v iqn.2026-11.test:east"}; !slices.Equal(g.let, want) {
		t.Errorf("let in: %v, want %v", g.let, want)
	}
	own := *h.host
	own.Inventory.InitiatorIQN = ""
	if err := h.con.admitInitiators(t.Context(), &guest{server: h.now(t), host: &own}); err != nil || len(g.let) != 2 || g.let[1] != "iqn.2026-11.test:v "+compute.GuestInitiator(own.ID, h.server) {
		t.Errorf("let in: %v, %v", g.let, err)
	}
	if a, b := compute.GuestInitiator("a", "s"), compute.GuestInitiator("b", "s"); a == b {
		t.Errorf("the guest has the name %s on two hosts", a)
	}

	h = newHouse(t, quarters{state: compute.Active})
	h.con.Config.Storage = &gate{broken: problem.NotFoundf("there is no such target")}
	h.con = New(h.con.Config)
	attach()
	if slices.Contains(h.did, compute.Attach) || len(h.now(t).Disks) != 2 {
		t.Errorf("attached though the storage refused: %v", h.did)
	}
}

// TestFencedIsKeptOut: a user's command lets a fenced host in to nothing, and what a job had let in meanwhile is shut out before the
// server has its volumes elsewhere. Only where the fence rests on the storage alone, one that says no stops the move.
func TestFencedIsKeptOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		proofs []compute.Evidence
		mute   error
		stays  bool
	}{
		"by the storage":              {proofs: []compute.Evidence{compute.StorageRevoked}},
		"by the storage, that errs":   {proofs: []compute.Evidence{compute.StorageRevoked}, mute: problem.Conflictf("it is back"), stays: true},
		"by power, the storage errs":  {proofs: []compute.Evidence{compute.PowerCut, compute.StorageRevoked}, mute: problem.Conflictf("it is back")},
		"by a word, the storage errs": {proofs: []compute.Evidence{compute.Attested}, mute: problem.Conflictf("it is back")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreet(t, yard{quarters: quarters{state: compute.Active, volumes: true}, others: 1})
			west := s.others[0].host
			s.tx(t, func(tx job.Tx) error {
				west.Inventory.InitiatorIQN = "iqn.2026-11.test:west"
				if err := s.store.Hosts().Save(tx, west); err != nil {
					return err
				}
				var proofs []compute.Proof
				for _, e := range c.proofs {
					proofs = append(proofs, compute.Proof{Evidence: e, Text: "proven", At: time.Now()})
				}
				_, err := s.services.Hosts.GiveReceipt(t.Context(), tx, s.host.ID, proofs, "", "")
				return err
			})
			g := &gate{mute: c.mute}
			s.con.Config.Storage = g
			s.con = New(s.con.Config)
			s.act(t, compute.Act{Action: compute.RebootHard})
			s.waitsFor(t, "which is fenced, to be admitted")
			if len(g.let) > 0 {
				t.Fatalf("let in: %v", g.let)
			}
			const volume = "iqn.2026-11.test:v "
			for _, late := range []string{"iqn.2026-11.test:east", compute.GuestInitiator(s.host.ID, s.server)} {
				g.let = append(g.let, volume+late)
			}
			s.evacuate(t)
			s.workAll(t)
			if m := s.lastMove(t); (m.State == compute.MoveFailed) != c.stays {
				t.Fatalf("the move has ended as %s: %s", m.State, m.Problem)
			}
			if want := []string{volume + "iqn.2026-11.test:west"}; c.mute == nil && !slices.Equal(g.let, want) {
				t.Errorf("let in: %v, want %v", g.let, want)
			}
		})
	}
}

// waitsFor runs a conductor until a job of the server waits for this.
func (h *house) waitsFor(t *testing.T, what string) {
	t.Helper()
	stop := h.conduct(t)
	defer stop()
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		var open []job.Job
		h.tx(t, func(tx job.Tx) (err error) { open, err = h.store.Unended(tx, compute.Subject(h.server)); return err })
		if len(open) > 0 && open[0].State == job.Waiting && strings.Contains(open[0].WaitFor, what) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no job waits for %q: %+v", what, open)
		}
	}
}
