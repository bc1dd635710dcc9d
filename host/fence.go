package host

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"salvor/compute"
	"salvor/durable"
	"salvor/hypervisor"
	wire "salvor/wire/host"
)

// A host whose group fences itself counts its lease from sending the newest renewal that was answered, on a clock that counts the
// machine's sleep. At compute.SelfFenceKill it ends its guests; the watchdog, which is petted by a fresh lease alone, resets the
// machine before compute.SelfFenceWatchdog, whatever has become of this process. Each step looks at the clock first: a process that
// was frozen knows nothing of it.
const (
	guardEvery = 250 * time.Millisecond
	petEvery   = 500 * time.Millisecond
	// watchdogTimeout is what the watchdog is set to; hardware may take up to watchdogDrift longer.
	watchdogTimeout = 8 * time.Second
	watchdogDrift   = 250 * time.Millisecond
	// petUntil is the age of the lease at which a pet would keep the machine past the deadline; petWithin leaves room before it.
	petUntil  = compute.SelfFenceWatchdog - watchdogTimeout - watchdogDrift
	petWithin = petUntil - 250*time.Millisecond
	// doubtLasts is how long a renewal that nobody answered may still be heard.
	doubtLasts = 20 * time.Second
	// endWithin bounds one try to end all guests.
	endWithin = 3 * time.Second
	// armAgain is after how long a watchdog that would not be armed is tried again.
	armAgain = time.Minute
)

// age is that of the lease; false: the clock cannot be read, or no renewal was ever answered.
func (a *Agent) age() (time.Duration, bool) {
	now, err := a.Alive()
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	return now - a.lease.from, err == nil && a.lease.ever
}

// fences tells whether the host's silence may be taken as proof: it was asked to fence itself, or a renewal may have said that it does.
func (a *Agent) fences() bool {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	return a.lease.lastResponse.SelfFence || a.lease.armed
}

// lapsed tells whether a host that fences itself has been silent for too long.
func (a *Agent) lapsed() bool {
	age, known := a.age()
	return a.fences() && (!known || age >= compute.SelfFenceKill)
}

// halted tells whether nothing may be started or changed now.
func (a *Agent) halted() bool {
	a.lease.mu.Lock()
	bound := a.lease.lastResponse.Hold || a.lease.lastResponse.Stop
	a.lease.mu.Unlock()
	return bound || a.lapsed()
}

// mayWork tells whether orders may be pulled: not before the first answer to this run of the agent.
func (a *Agent) mayWork() bool {
	held, _ := a.Leased()
	return held && !a.halted()
}

// applyInstructions begins what an answer asks for beside the lease loop.
func (a *Agent) applyInstructions(ctx context.Context, answer wire.Renewed) {
	if a.halted() {
		a.orders.halt()
	}
	a.cleanUp(ctx, answer.Clean)
	a.lookAt(ctx, answer.Look)
}

// runSelfFence ends the guests of ours when the lease has lapsed or the control plane asks for it, again and again until that is over.
func (a *Agent) runSelfFence(ctx context.Context) {
	lastReason, ended := "", map[string]bool{}
	for wait := guardEvery; sleepContext(ctx, wait); {
		why := a.endWhy()
		if why != lastReason && why != "" {
			a.Log.Error("all guests of ours are ended", "why", why)
		}
		if lastReason = why; why == "" {
			wait = guardEvery
			clear(ended)
			continue
		}
		a.orders.halt()
		quiet := a.orders.isIdle()
		none := a.endGuests(ctx, why, ended)
		a.lease.mu.Lock()
		news := a.lease.stopped != (none && quiet)
		a.lease.stopped = none && quiet
		a.lease.mu.Unlock()
		if wait = 2 * guardEvery; none {
			wait = 4 * guardEvery
		}
		if news {
			a.lease.renewNow()
		}
	}
}

func (a *Agent) endWhy() string {
	if a.lapsed() {
		return "the lease was not renewed for " + compute.SelfFenceKill.String()
	}
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	if a.lease.lastResponse.Stop {
		return "the control plane asks for it"
	}
	return ""
}

// endGuests ends all guests of ours by force, by their processes and by the hypervisor at once, and tells whether a read-back of both
// finds none. What it ended is noted once.
func (a *Agent) endGuests(ctx context.Context, why string, noted map[string]bool) bool {
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	seen, ids := a.observed.ours(), []string{}
	for id := range seen {
		ids = append(ids, id)
	}
	killed := make(chan error, 1)
	go func() {
		k, ok := a.Hypervisor.(hypervisor.Killer)
		if !ok {
			killed <- nil
			return
		}
		killed <- k.Kill(ctx, ids)
	}()
	running, err := a.running(ctx, seen)
	var ending sync.WaitGroup
	for _, id := range running {
		seen[id] = true
		ending.Go(func() {
			_, err := runWithContext(ctx, func() (bool, error) {
				return a.Hypervisor.SetPower(ctx, id, hypervisor.Power{State: compute.PowerOff})
			})
			if err != nil {
				a.Log.Warn("end a guest", "server", id, "error", err)
			}
		})
	}
	ending.Wait()
	killErr := error(nil)
	select {
	case killErr = <-killed:
	case <-ctx.Done():
		killErr = ctx.Err()
	}
	if err == nil {
		running, err = a.running(ctx, seen)
	}
	for id, ran := range seen {
		if ran && !noted[id] {
			noted[id] = true
			a.lease.note(wire.LocalAction{ServerID: id, Text: "ended it: " + why, At: time.Now().UTC()})
		}
	}
	a.observed.look()
	if err != nil || killErr != nil {
		a.Log.Warn("whether all guests are ended is not known", "hypervisor", err, "processes", killErr)
	}
	return err == nil && killErr == nil && len(running) == 0
}

// running lists the guests of ours that run, or may: those known as ours of which nothing is told now.
func (a *Agent) running(ctx context.Context, known map[string]bool) ([]string, error) {
	guests, err := runWithContext(ctx, func() ([]compute.Guest, error) { return a.Hypervisor.Guests(ctx) })
	var out []string
	for _, g := range guests {
		_, ours := known[g.ID]
		switch {
		case !g.Ours && !(ours && g.Power == compute.PowerUnknown):
		case g.Power != compute.PowerOff && g.Power != compute.PowerSaved && g.Power != compute.PowerCrashed:
			out = append(out, g.ID)
		}
	}
	return out, err
}

// ours are the guests of ours as they were last seen, and whether they ran.
func (o *observedState) ours() map[string]bool {
	_, text := o.latest()
	var list []compute.Guest
	_ = json.Unmarshal(text, &list)
	out := map[string]bool{}
	for _, g := range list {
		if g.Ours {
			out[g.ID] = g.Power == compute.PowerOn || g.Power == compute.PowerPaused
		}
	}
	return out
}

// runWithContext gives up what does not end in time; it may go on by itself.
func runWithContext[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := do()
		done <- answer{value, err}
	}()
	select {
	case got := <-done:
		return got.value, got.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// runWatchdog arms, pets and disarms the watchdog; it is apart from all else that may hang.
func (a *Agent) runWatchdog(ctx context.Context) {
	if a.Watchdog == nil {
		return
	}
	inherited := a.inherits()
	var lastTried time.Time
	for sleepContext(ctx, petEvery) {
		armed, asked, over := a.watchdogTerms()
		switch {
		case over:
			a.disarm()
		case armed:
			a.pet()
		case inherited || asked && time.Since(lastTried) >= armAgain:
			if age, known := a.age(); known && age <= petWithin {
				lastTried, inherited = time.Now(), false
				a.arm()
			}
		}
	}
	if _, _, over := a.watchdogTerms(); over { // it was armed as the agent ended, and nobody heard of it
		a.disarm()
	}
}

// watchdogTerms tells whether the watchdog is armed, whether it should be, and whether it may be disarmed.
func (a *Agent) watchdogTerms() (armed, asked, over bool) {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	armed, asked = a.lease.armed, a.lease.lastResponse.SelfFence && !a.lease.leaving
	return armed, asked, armed && a.lease.watchdog == "" && a.lease.watchdogCleared && !asked
}

// inherits tells whether an agent that was killed left the watchdog armed, in this boot. Until it is petted or disarmed the machine has
// little time; a renewal that named it may still be heard.
func (a *Agent) inherits() bool {
	boot, err := os.ReadFile(a.identity.path(watchdogFile))
	if err != nil || string(boot) != a.boot {
		return false
	}
	a.markUnconfirmed()
	return true
}

// watchdogFile holds the boot in which the watchdog was armed.
const watchdogFile = "watchdog"

func (a *Agent) arm() {
	if age, known := a.age(); !known || age > petWithin {
		return
	}
	if err := durable.Write(a.identity.path(watchdogFile), []byte(a.boot), 0o600); err != nil {
		a.Log.Error("note that the watchdog is armed", "error", err)
		return
	}
	identity, err := a.Watchdog.Arm(watchdogTimeout)
	if err != nil {
		a.Log.Error("no watchdog is armed: the silence of this host proves nothing", "watchdog", identity, "error", err)
		_ = os.Remove(a.identity.path(watchdogFile))
		return
	}
	a.Log.Info("the watchdog is armed", "watchdog", identity, "resets_after", compute.SelfFenceWatchdog)
	a.lease.mu.Lock()
	a.lease.armed = true
	if a.lease.lastResponse.SelfFence && !a.lease.leaving {
		a.lease.watchdog = identity
	}
	a.lease.mu.Unlock()
	a.takeBackLate()
	a.lease.renewNow()
}

// pet has the watchdog wait on, where the lease is fresh.
func (a *Agent) pet() {
	if age, known := a.age(); !known || age > petWithin {
		return
	}
	if err := a.Watchdog.Pet(); err != nil {
		a.Log.Error("pet the watchdog", "error", err)
		a.lease.mu.Lock()
		a.lease.watchdog = ""
		a.lease.mu.Unlock()
		return
	}
	a.takeBackLate()
}

// takeBackLate mends a pet before which this process was frozen, so that it came after the lease's time.
func (a *Agent) takeBackLate() {
	if age, known := a.age(); known && age <= petUntil {
		return
	}
	if err := a.Watchdog.Expire(); err != nil {
		a.Log.Error("the watchdog was petted too late", "error", err)
	}
}

// disarm ends the watchdog's work. The control plane has heard before that it does not count any more.
func (a *Agent) disarm() {
	if err := a.Watchdog.Disarm(); err != nil {
		a.Log.Error("disarm the watchdog", "error", err)
		return
	}
	_ = os.Remove(a.identity.path(watchdogFile))
	a.Log.Info("the watchdog is disarmed")
	a.lease.mu.Lock()
	a.lease.armed = false
	a.lease.mu.Unlock()
}

// leave ends the agent's run without harm to the guests: it says that no watchdog counts any more, and waits until that was heard and
// the watchdog is disarmed. If nobody hears it, this host's silence counts as proof, and it ends as one that is silent.
func (a *Agent) leave(ctx context.Context) {
	a.lease.mu.Lock()
	a.lease.leaving, a.lease.watchdog = true, ""
	a.lease.mu.Unlock()
	end, cancel := context.WithTimeout(ctx, 2*doubtLasts)
	defer cancel()
	for a.stillArmed() && !a.lapsed() {
		if err := a.renew(end); err != nil {
			a.Log.Warn("this host ends and cannot say so", "error", err)
		}
		if !sleepContext(end, petEvery) {
			return
		}
	}
	if a.stillArmed() {
		a.Log.Error("the lease lapsed while this host ended: its guests are ended and the watchdog resets it")
		_ = sleepContext(end, endWithin+2*guardEvery)
	}
}

func (a *Agent) stillArmed() bool {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	return a.lease.armed
}
