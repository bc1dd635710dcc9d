package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/store"
)

// TestStaleLooksKeepThePower: what was switched on while the cluster was read is not off because it was before.
func TestStaleLooksKeepThePower(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := c.adopted("web")
	c.turn()
	c.reading = func() {
		c.reading = nil
		err := c.store.Do(t.Context(), func(tx job.Tx) error {
			return c.services.Servers.Edit(t.Context(), tx, id, func(s *compute.Server) {
				s.State, s.Power, s.Wanted = compute.Active, compute.PowerOn, compute.PowerOn
			})
		})
		if err != nil {
			t.Error(err)
		}
		c.change("web", func(g *hypervisor.ClusterGuest) { g.Power = compute.PowerOn })
	}
	c.turn()
	c.want(id, "active on, no session, 0 in use")
}

// counted is a store that counts transactions, but not those of the runner.
type counted struct {
	*store.Store
	writes atomic.Int64
}

func (s *counted) Do(ctx context.Context, fn func(job.Tx) error) error {
	s.writes.Add(1)
	return s.Store.Do(ctx, fn)
}

// TestAQuietTurnWritesNothing, however many instances there are.
func TestAQuietTurnWritesNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	in := c.adopted("off")
	c.adopted("on")
	c.adopted("rescued")
	c.image("a.iso")
	c.change("on", func(g *hypervisor.ClusterGuest) { g.Power = compute.PowerOn })
	c.boots("rescued", "/srv/rescue/a.iso")
	c.hosts[0].Inventory.Firmware = []compute.Firmware{compute.BIOS}
	st := &counted{Store: c.store}
	c.services = service.New(st, st, service.Options{RescueImagePath: "/srv/rescue"}, time.Now)
	c.con = New(Config{Store: st, Compute: c.services, Log: slog.New(slog.DiscardHandler), Now: time.Now, Clusters: c})
	c.turn()
	c.turn()
	if st.writes.Load() == 0 {
		t.Fatal("what changed is not written, or not counted")
	}
	st.writes.Store(0)
	c.turn()
	if n := st.writes.Load(); n != 0 {
		t.Errorf("%d transactions in a turn where nothing changed", n)
	}
	c.change("off", func(g *hypervisor.ClusterGuest) { g.Host = "n2" })
	c.turn()
	if n := st.writes.Load(); n != 1 {
		t.Errorf("%d transactions for one change", n)
	}
	if s := c.server(in); s.Epoch != 2 {
		t.Errorf("it is at epoch %d after its move", s.Epoch)
	}
}
