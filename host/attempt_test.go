package host

import (
	"context"
	"testing"
	"time"

	"salvor/compute"
)

// TestWorking says that the agent works from its join until its end, and that its lease loop comes round while the control plane is away.
func TestWorking(t *testing.T) {
	w := newWorld(t)
	c := w.config(newGuests())
	began, over := make(chan *Agent, 1), make(chan struct{})
	c.Working = func(ctx context.Context, a *Agent) {
		defer close(over)
		began <- a
		<-ctx.Done()
	}
	a, stop := w.start(c)
	if got := <-began; got != a {
		t.Error("another agent works")
	}
	await(t, "the first renewal", func() bool { held, _ := a.Leased(); return held })
	w.away.Store("away", true)
	await(t, "a renewal that fails", func() bool { held, _ := a.Leased(); return !held })
	first := time.Now()
	await(t, "a renewal after it", func() bool { return a.SinceAttempt() < time.Since(first) })
	a.renewing.Lock() // the lease loop cannot go on
	await(t, "a lease loop that hangs", func() bool { return a.SinceAttempt() > 2*compute.RenewEvery })
	a.renewing.Unlock()
	stop()
	<-over
}
