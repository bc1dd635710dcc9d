package hypervisortest

import (
	"context"
	"testing"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/test/must"
)

// Pair is two hosts between which running guests are moved, with nothing of ours on them.
type Pair struct {
	From, To hypervisor.Hypervisor
	// Domain makes a server of its own as it is at the source; There the same as it is at the destination, one epoch later.
	Domain func(t *testing.T) hypervisor.Domain
	There  func(t *testing.T, d hypervisor.Domain) hypervisor.Domain
	// Up waits until its system runs; Lives until it shows that it went on, and was not begun anew.
	Up, Lives func(t *testing.T, d hypervisor.Domain)
	// Listen is an address of the destination.
	Listen string
	// Through leaves all out but the way that succeeds.
	Through bool
}

// way is one move in the making.
type way struct {
	Pair
	*testing.T
	ctx      context.Context
	from, to hypervisor.Migrator
	here     hypervisor.Domain
	there    hypervisor.Domain
	cookie   []byte
	peer     string
}

// Migrate proves the contract of a Migrator.
func Migrate(t *testing.T, p Pair) {
	for _, part := range []struct {
		name string
		run  func(*way)
	}{{"there", (*way).through}, {"taken back", (*way).back}, {"off", (*way).off}} {
		if p.Through && part.name != "there" {
			continue
		}
		t.Run(part.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*waitTimeout)
			defer cancel()
			w := &way{Pair: p, T: t, ctx: ctx, from: p.From.(hypervisor.Migrator), to: p.To.(hypervisor.Migrator)}
			w.here = p.Domain(t)
			w.there = p.There(t, w.here)
			w.must(p.From.Define(ctx, w.here))
			t.Cleanup(func() {
				for _, h := range []hypervisor.Hypervisor{p.From, p.To} {
					if err := h.Remove(context.Background(), w.here.ServerID); err != nil {
						t.Error(err)
					}
				}
			})
			part.run(w)
		})
	}
}

func (w *way) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *way) start() {
	w.Helper()
	must.Get(w.From.SetPower(w.ctx, w.here.ServerID, hypervisor.Power{State: compute.PowerOn}))(w)
	w.Up(w.T, w.here)
}

// send is all that goes before the guest changes its side.
func (w *way) send() {
	w.Helper()
	w.prepare()
	var err error
	w.cookie, err = w.from.Perform(w.ctx, w.here.ServerID, w.peer, w.cookie)
	w.must(err)
	w.is(w.From, compute.PowerPaused)
	w.is(w.To, compute.PowerPaused)
}

func (w *way) prepare() {
	w.Helper()
	begun, err := w.from.Begin(w.ctx, w.here.ServerID)
	w.must(err)
	w.cookie, w.peer, err = w.to.Prepare(w.ctx, w.there, w.Listen, begun)
	w.must(err)
}

// is tells how the guest is on one side; the empty power: it is not there.
func (w *way) is(h hypervisor.Hypervisor, want compute.Power) {
	w.Helper()
	all := must.Get(h.Guests(w.ctx))(w)
	is := compute.Power("")
	for _, g := range all {
		if g.ID == w.here.ServerID {
			is = g.Power
			if want == compute.PowerOn && h == w.To && (!g.Ours || g.Epoch != w.there.Epoch) {
				w.Errorf("what came is marked ours %v, epoch %d, want %d", g.Ours, g.Epoch, w.there.Epoch)
			}
		}
	}
	if is != want {
		w.Fatalf("the guest is %q, want %q", is, want)
	}
}

// through: it runs on there, it is gone here, and each last step may be asked again.
func (w *way) through() {
	w.start()
	w.send()
	answer := must.Get(w.to.Finish(w.ctx, w.there, w.cookie, false))(w)
	w.is(w.To, compute.PowerOn)
	must.Get(w.to.Finish(w.ctx, w.there, w.cookie, false))(w)
	w.must(w.from.Confirm(w.ctx, w.here.ServerID, answer, false))
	w.must(w.from.Confirm(w.ctx, w.here.ServerID, answer, false))
	w.is(w.From, "")
	w.is(w.To, compute.PowerOn)
	w.Lives(w.T, w.there)
	if _, err := w.To.SetPower(w.ctx, w.here.ServerID, hypervisor.Power{State: compute.PowerOff}); err != nil {
		w.Error(err)
	}
	w.is(w.To, compute.PowerOff) // its definition came with it
}

// back: an attempt that was prepared, and one whose memory was sent, leave the guest running where it was.
func (w *way) back() {
	w.start()
	for _, step := range []func(){w.prepare, w.send} {
		step()
		for range 2 {
			must.Get(w.to.Finish(w.ctx, w.there, nil, true))(w)
		}
		w.is(w.To, "")
		w.must(w.from.Confirm(w.ctx, w.here.ServerID, nil, true))
		w.is(w.From, compute.PowerOn)
	}
	w.Lives(w.T, w.here)
}

func (w *way) off() {
	_, err := w.from.Begin(w.ctx, w.here.ServerID)
	if !problem.Is(err, problem.Conflict) {
		w.Errorf("begin with a guest that is off: %v, want a conflict", err)
	}
}
