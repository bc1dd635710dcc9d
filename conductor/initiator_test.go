package conductor

import (
	"context"
	"slices"
	"sync"
	"testing"

	"salvor/compute"
	"salvor/problem"
	"salvor/storage"
)

// gate is a storage that notes whom it let in to what.
type gate struct {
	mu     sync.Mutex
	let    []string
	broken error
}

func (g *gate) Allow(_ context.Context, target, initiator string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if word := target + " " + initiator; g.broken == nil && !slices.Contains(g.let, word) {
		g.let = append(g.let, word)
	}
	return g.broken
}

func (g *gate) Revoke(context.Context, ...string) error { return g.broken }

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
