package service_test

import (
	"testing"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/record"
	"salvor/test/must"
)

// TestAHeldDatabaseOrdersNothingOfHosts: by records that may be old, a host has lost a server. While the database is held the host
// keeps its lease, and gets no instructions, no clean-ups and no orders. Before and afterwards it gets them.
func TestAHeldDatabaseOrdersNothingOfHosts(t *testing.T) {
	w := newWorld(t)
	s, other := w.server(alice, compute.Active), w.join("host-b")
	w.pass(time.Minute)
	must.Get(w.fence(w.host, compute.Attested))(w.t)
	w.moved(s, w.host, other, compute.CleanGuest)
	w.pass(10 * time.Second)
	tell := guests(runs(s, s.Epoch))
	if out := w.renew(w.host, "boot-2", tell); len(out.Clean) == 0 || !out.Hold {
		t.Fatalf("without a hold it is told %+v", out)
	}
	var held *record.Held
	w.Services = service.New(w.store, w.store, service.Options{QuarantineDays: 14, Held: func() *record.Held { return held }}, w.now)
	held = &record.Held{Code: record.HeldWentBack}
	out := w.renew(w.host, "boot-2", tell)
	if !out.Held || out.Hold || out.Stop || len(out.Clean) != 0 || out.Servers != nil || out.QuarantineDays != 0 {
		t.Errorf("held, it is told %+v", out)
	}
	if may, err := w.Leases.MayAct(w.ctx, other.ID); err != nil || may {
		t.Errorf("orders are handed out: %v", err)
	}
	held = nil
	w.pass(10 * time.Second)
	if out := w.renew(w.host, "boot-2", tell); out.Held || !out.Hold || len(out.Clean) == 0 {
		t.Errorf("released, it is told %+v", out)
	}
	if may, err := w.Leases.MayAct(w.ctx, other.ID); err != nil || !may {
		t.Errorf("no orders are handed out: %v", err)
	}
}
