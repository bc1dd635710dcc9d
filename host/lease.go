package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"salvor/compute"
	"salvor/problem"
	wire "salvor/wire/host"
)

// resendGuestsAfter has the host tell its guests again though nothing changed: the answer says what should be here.
const resendGuestsAfter = 30 * time.Second

// hostLease is what the host knows of its own life in the eyes of the control plane.
type hostLease struct {
	mu sync.Mutex
	// from is when the newest renewal that was answered was sent, in the machine's alive time.
	from time.Duration
	// held: the newest renewal was answered; ever: one was, in this run of the agent.
	held, ever     bool
	ackedInventory []byte // the newest inventory and guests that were answered
	toldHere       []byte
	toldAt         time.Duration
	did            []wire.LocalAction
	// lastWarned is when a failure was last said.
	lastWarned time.Time
	// lastResponse is the newest answer; stopped and cleaned are what came of that.
	lastResponse wire.Renewed
	stopped      bool
	cleaned      map[string]wire.Cleaned
	// looked is what is to be told of neighbours.
	looked []wire.Neighbour
	// watchdog is the identity that renewals name; armed: it is armed, whatever is told. watchdogCleared: the newest renewal that was answered
	// named none, and none that did is under way; unconfirmedAt is when one that did was given up without an answer. leaving: the agent ends.
	watchdog                        string
	armed, watchdogCleared, leaving bool
	unconfirmedAt                   time.Duration
	// attempted is when the newest renewal was begun, on the monotonic clock.
	attempted time.Time
	// wakeup has a renewal sent at once.
	wakeup chan struct{}
}

// renewNow has the control plane hear news before it is time.
func (l *hostLease) renewNow() {
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
}

// maxDeeds bounds what is kept for a control plane that is away.
const maxDeeds = 1000

func (l *hostLease) note(d wire.LocalAction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.did) < maxDeeds {
		l.did = append(l.did, d)
	}
}

// join gets the first certificate where there is none; a control plane that is away is asked again.
func (a *Agent) join(ctx context.Context) error {
	for wait := time.Second; !a.identity.certified(time.Now()); wait = min(2*wait, 30*time.Second) {
		if a.Token.Empty() {
			return problem.Invalidf("this host has not joined, or its certificate has ended: give --join TOKEN, made with: salvor host token create")
		}
		err := a.controlPlane.join(ctx, a.Token, a.Name)
		if err == nil {
			a.Log.Info("joined", "host", a.identity.id, "controller", a.Controller)
			return nil
		}
		if !problem.Is(err, problem.Unavailable) {
			return err
		}
		a.Log.Warn("the control plane does not answer", "error", err)
		if !sleepContext(ctx, wait) {
			return ctx.Err()
		}
	}
	return nil
}

// runLease renews until ctx ends. A control plane that is away changes nothing on this host.
func (a *Agent) runLease(ctx context.Context) error {
	// With the first renewal the control plane should hear what there is: else it would place nothing here until the second.
	for range 20 {
		if inventory, _ := a.observed.latest(); inventory != nil {
			break
		}
		if !sleepContext(ctx, compute.RenewEvery/20) {
			return nil
		}
	}
	for {
		a.lease.markAttempt()
		began, err := a.Alive()
		if err != nil {
			return err
		}
		if err := a.renew(ctx); err != nil {
			a.warnRenewal(err)
		}
		now, err := a.Alive()
		if err != nil {
			return err
		}
		if !a.untilRenewal(ctx, max(0, compute.RenewEvery-(now-began))) {
			return nil
		}
	}
}

func (a *Agent) untilRenewal(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-a.lease.wakeup:
	case <-t.C:
	}
	return true
}

// complainEvery is how often a lasting failure is said again.
const complainEvery = time.Minute

// warnRenewal says that the control plane does not take renewals: at once, and then now and then.
func (a *Agent) warnRenewal(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	a.lease.mu.Lock()
	loud := a.lease.held || time.Since(a.lease.lastWarned) >= complainEvery
	a.lease.held = false
	if loud {
		a.lease.lastWarned = time.Now()
	}
	a.lease.mu.Unlock()
	if loud {
		a.Log.Warn("the lease is not renewed", "controller", a.Controller, "ends guests", a.fences(), "error", err)
	}
}

// renewWithin bounds a renewal of a host that fences itself: one that is lost on the way must leave time for the next.
const renewWithin = 2500 * time.Millisecond

// renew sends one renewal and does what its answer asks for.
func (a *Agent) renew(ctx context.Context) error {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	sent, err := a.Alive()
	if err != nil {
		return err
	}
	since := a.orders.sequence()
	r := a.renewal(sent)
	within := time.Duration(compute.Suspect)
	if a.fences() {
		within = renewWithin
	}
	// One that is on its way is waited for, even if the agent is about to end: what was told must be known.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	if r.Watchdog == "" {
		cancel()
		bounded, cancel = context.WithTimeout(ctx, within)
	}
	defer cancel()
	var answer wire.Renewed
	if err := a.controlPlane.call(bounded, "POST", wire.RenewPath, r, &answer); err != nil {
		if r.Watchdog != "" {
			a.markUnconfirmed()
		}
		return err
	}
	if err := a.witness.store(answer.Witness); err != nil {
		a.Log.Warn("remember how far the control plane's database has come", "error", err)
	}
	a.renewed(sent, r, answer)
	a.applyInstructions(ctx, answer)
	if r.Guests != nil && answer.Servers != nil {
		a.reconcile(ctx, r.Guests, since, answer.Servers)
	}
	return nil
}

// renewal is what there is to tell.
func (a *Agent) renewal(now time.Duration) wire.Renewal {
	inventory, guests := a.observed.latest()
	r := wire.Renewal{BootID: a.boot, Name: a.Name, Witness: a.witness.current()}
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	if inventory != nil && !bytes.Equal(inventory, a.lease.ackedInventory) {
		r.Inventory = inventory
	}
	if guests != nil && (!bytes.Equal(guests, a.lease.toldHere) || now-a.lease.toldAt >= resendGuestsAfter) {
		r.Guests = guests
	}
	r.Did = a.lease.did
	r.Watchdog, r.Stopped, r.Neighbours = a.lease.watchdog, a.lease.lastResponse.Stop && a.lease.stopped, a.lease.looked
	a.lease.watchdogCleared = a.lease.watchdogCleared && r.Watchdog == ""
	for _, id := range slices.Sorted(maps.Keys(a.lease.cleaned)) {
		r.Cleaned = append(r.Cleaned, a.lease.cleaned[id])
	}
	return r
}

// markUnconfirmed notes that a renewal may be heard that nobody answered.
func (a *Agent) markUnconfirmed() {
	now, err := a.Alive()
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	if err == nil {
		a.lease.unconfirmedAt = now
	}
}

func (a *Agent) renewed(sent time.Duration, r wire.Renewal, answer wire.Renewed) {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	if answer.Held && a.lease.ever {
		answer.Hold, answer.Stop, answer.SelfFence = a.lease.lastResponse.Hold, a.lease.lastResponse.Stop, a.lease.lastResponse.SelfFence
	}
	if !a.lease.held || a.lease.lastResponse.Hold && !answer.Hold {
		a.Log.Info("the lease is held", "host", a.identity.id, "hold", answer.Hold)
		a.orders.wake()
	}
	a.lease.from, a.lease.held, a.lease.ever = sent, true, true
	a.lease.did = a.lease.did[len(r.Did):]
	if r.Inventory != nil {
		a.lease.ackedInventory = r.Inventory
	}
	if r.Guests != nil {
		a.lease.toldHere, a.lease.toldAt = r.Guests, sent
	}
	if answer.Resend {
		a.lease.ackedInventory, a.lease.toldHere = nil, nil
	}
	if len(r.Neighbours) > 0 {
		a.lease.looked = nil
	}
	if answer.Stop && !a.lease.lastResponse.Stop {
		a.lease.stopped = false
	}
	for id := range a.lease.cleaned { // what is not asked for any more was heard
		if _, asked := answer.Clean[id]; !asked && !answer.Held {
			delete(a.lease.cleaned, id)
		}
	}
	answer.Servers = nil
	a.lease.lastResponse = answer
	a.lease.watchdogCleared = r.Watchdog == "" && (a.lease.unconfirmedAt == 0 || sent-a.lease.unconfirmedAt >= doubtLasts)
	if !answer.SelfFence {
		a.lease.watchdog = ""
	}
}

// Leased tells whether the newest renewal was answered, and how long ago it was sent.
func (a *Agent) Leased() (bool, time.Duration) {
	now, err := a.Alive()
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	return err == nil && a.lease.held, now - a.lease.from
}

// SinceAttempt is how long ago the lease loop last began a renewal, whether or not it was answered; zero: it has begun none. Minutes mean
// that the loop hangs.
func (a *Agent) SinceAttempt() time.Duration {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	if a.lease.attempted.IsZero() {
		return 0
	}
	return time.Since(a.lease.attempted)
}

func (l *hostLease) markAttempt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempted = time.Now()
}

// runCertificate renews the certificate at half of its life.
func (a *Agent) runCertificate(ctx context.Context) error {
	for {
		leaf := a.identity.pair.Load().cert.Leaf
		half := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
		wait := min(time.Until(half), time.Hour)
		if wait <= 0 {
			if err := a.controlPlane.recertify(ctx); err != nil {
				a.Log.Warn("the certificate is not renewed yet", "ends", leaf.NotAfter, "error", err)
			} else {
				a.Log.Info("the certificate is renewed", "ends", a.identity.pair.Load().cert.Leaf.NotAfter)
			}
			wait = time.Minute
		}
		if !sleepContext(ctx, wait) {
			return nil
		}
	}
}

// mustEncodeJSON is JSON of what is known to be encodable; guests and inventory are compared by it.
func mustEncodeJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
