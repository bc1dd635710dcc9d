package host

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
)

// TestAwakenedAtOnce: an order reaches a host that waits for it within moments, not with the next poll.
func TestAwakenedAtOnce(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, _ := w.start(w.config(g))
	await(t, "the lease", func() bool { held, _ := a.Leased(); return held })
	id := uuid.NewString()
	g.set(compute.Guest{ID: id, Ours: true, Epoch: 1, Power: compute.PowerOff})
	w.done(orderFor(a, id, compute.Look, compute.Args{}, nil)) // the poll is up
	began := time.Now()
	for range 20 {
		w.done(orderFor(a, id, compute.Look, compute.Args{}, nil))
	}
	if each := time.Since(began) / 20; each > 500*time.Millisecond {
		t.Errorf("an order takes %s", each)
	} else {
		t.Logf("an order takes %s", each)
	}
}

// TestCertificateIsRenewed at half of its life, by the host itself.
func TestCertificateIsRenewed(t *testing.T) {
	w := newWorld(t)
	a := joined(t, w, w.config(newGuests()))
	first := a.identity.pair.Load().cert.Leaf
	if days := time.Until(first.NotAfter).Hours() / 24; days < 29.9 || days > 30.1 {
		t.Errorf("it lasts %.1f days", days)
	}
	// As if half of its life were over.
	old := *first
	old.NotBefore, old.NotAfter = time.Now().Add(-20*24*time.Hour), time.Now().Add(10*24*time.Hour)
	p := *a.identity.pair.Load()
	p.cert.Leaf = &old
	a.identity.pair.Store(&p)
	ctx := t.Context()
	go func() { _ = a.runCertificate(ctx) }()
	await(t, "the next certificate", func() bool { return a.identity.pair.Load().cert.Leaf.SerialNumber.Cmp(first.SerialNumber) != 0 })
	if err := a.renew(ctx); err != nil {
		t.Error(err)
	}
	h, err := w.services.Hosts.Host(ctx, a.ID())
	if err != nil || h.Serial != a.identity.pair.Load().cert.Leaf.SerialNumber.Text(16) {
		t.Errorf("%+v %v", h, err)
	}
}
