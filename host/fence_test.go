package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// answer has the agent take an answer to a renewal that was sent just now.
func answer(t testing.TB, a *Agent, renewed wire.Renewed) {
	t.Helper()
	now := must.Get(a.Alive())(t)
	a.renewed(now, a.renewal(now), renewed)
	a.applyInstructions(t.Context(), renewed)
}

// clock is the machine's alive time, as the test says.
type clock struct{ now atomic.Int64 }

func (c *clock) alive() (time.Duration, error) { return time.Duration(c.now.Load()), nil }
func (c *clock) add(d time.Duration)           { c.now.Add(int64(d)) }

// dog is a watchdog in memory, on the test's clock.
type dog struct {
	clock  *clock
	mu     sync.Mutex
	fires  time.Duration // 0: it is not armed
	arms   int
	before func() // of a pet
	refuse error
}

func (d *dog) Arm(timeout time.Duration) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return softWatchdog, d.refuse
	}
	d.arms++
	d.fires = time.Duration(d.clock.now.Load()) + timeout + watchdogDrift
	return "dog", nil
}

func (d *dog) Pet() error {
	if d.before != nil {
		d.before()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fires == 0 {
		return errors.New("not armed")
	}
	d.fires = time.Duration(d.clock.now.Load()) + watchdogTimeout + watchdogDrift
	return nil
}

func (d *dog) Expire() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fires = time.Duration(d.clock.now.Load()) + time.Second
	return nil
}

func (d *dog) Disarm() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fires = 0
	return nil
}

func (d *dog) at() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fires
}

// guarded opens an agent on the test's clock, without its loops.
func guarded(t *testing.T, w *world, c Config) (*Agent, *clock) {
	t.Helper()
	now := &clock{}
	now.add(time.Hour)
	c.Alive = now.alive
	a := must.Get(Open(c))(t)
	t.Cleanup(func() { _ = a.Close() })
	return a, now
}

// loops runs loops of an agent until the test ends.
func loops(t *testing.T, all ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it ends before the agent is closed
	var running sync.WaitGroup
	for _, loop := range all {
		running.Go(func() { loop(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
}

func ours(g *guests, power compute.Power, epoch int64) string {
	id := uuid.NewString()
	g.set(compute.Guest{ID: id, Name: "salvor-" + id[:8], Ours: true, Epoch: epoch, Power: power})
	return id
}

// TestSilenceEndsGuests: at 8 s without an answer all guests of ours are ended, whatever was meant to be started is not, and no other
// guest is touched.
func TestSilenceEndsGuests(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, now := guarded(t, w, w.config(g))
	mine, paused, stopped := ours(g, compute.PowerOn, 1), ours(g, compute.PowerPaused, 1), ours(g, compute.PowerOff, 1)
	foreign := uuid.NewString()
	g.set(compute.Guest{ID: foreign, Power: compute.PowerOn})
	a.readGuests(t.Context())
	loops(t, a.runSelfFence)
	answer(t, a, wire.Renewed{SelfFence: true})
	now.add(compute.SelfFenceKill - 1)
	if !a.mayWork() || a.lapsed() {
		t.Fatal("lapsed too early")
	}
	now.add(1)
	if a.mayWork() {
		t.Error("orders are carried out after the lapse")
	}
	list := must.Get(g.Guests(t.Context()))(t)
	a.reconcile(t.Context(), mustEncodeJSON(list), 0, map[string]wire.Wanted{stopped: {Power: "on", Epoch: 1}})
	await(t, "the end of the guests", func() bool {
		return g.get(mine).Power == compute.PowerOff && g.get(paused).Power == compute.PowerOff
	})
	if g.get(foreign).Power != compute.PowerOn || g.changes(stopped) != 0 {
		t.Errorf("others were touched: %+v, %d", g.get(foreign), g.changes(stopped))
	}
	// What an order that was under way starts after all is ended too.
	ours(g, compute.PowerOff, 1)
	g.set(compute.Guest{ID: mine, Ours: true, Epoch: 1, Power: compute.PowerOn})
	await(t, "the end of a late start", func() bool { return g.get(mine).Power == compute.PowerOff })
	a.lease.mu.Lock()
	told := len(a.lease.did)
	a.lease.mu.Unlock()
	if told != 2 {
		t.Errorf("%d words on it", told)
	}
	// With the next answer, and no Hold in it, work goes on.
	answer(t, a, wire.Renewed{SelfFence: true})
	if !a.mayWork() {
		t.Error("a renewed lease is no lease")
	}
}

// stuck is a hypervisor that hangs, and whose guests can be ended by their processes.
type stuck struct {
	*guests
	hang chan struct{}
}

func (s stuck) Guests(ctx context.Context) ([]compute.Guest, error) {
	<-s.hang
	return s.guests.Guests(ctx)
}

func (s stuck) Kill(_ context.Context, ids []string) error {
	for _, id := range ids {
		guest := s.get(id)
		guest.Power = compute.PowerOff
		s.set(guest)
	}
	return nil
}

// TestSilenceEndsGuestsOfADeadHypervisor: the processes are ended where the hypervisor hangs; and nothing is told that is not known.
func TestSilenceEndsGuestsOfADeadHypervisor(t *testing.T) {
	w, g := newWorld(t), stuck{newGuests(), make(chan struct{})}
	a, now := guarded(t, w, w.config(g.guests))
	a.Hypervisor = g
	mine := ours(g.guests, compute.PowerOn, 1)
	list, _ := g.guests.Guests(t.Context())
	a.observed.guests = mustEncodeJSON(list)
	loops(t, a.runSelfFence)
	answer(t, a, wire.Renewed{SelfFence: true})
	now.add(compute.SelfFenceKill)
	begun := time.Now()
	await(t, "the end of the guest", func() bool { return g.get(mine).Power == compute.PowerOff })
	if took := time.Since(begun); took > compute.SelfFenceWatchdog-compute.SelfFenceKill {
		t.Errorf("that took %s", took)
	}
	answer(t, a, wire.Renewed{Stop: true})
	if a.renewal(0).Stopped {
		t.Error("it is told that none runs, though the hypervisor hangs")
	}
	close(g.hang)
	await(t, "that none runs", func() bool { return a.renewal(0).Stopped })
}

// TestStop: the guests are ended, nothing is started, and that none runs is told for as long as it is asked and true.
func TestStop(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, now := guarded(t, w, w.config(g))
	mine := ours(g, compute.PowerOn, 1)
	loops(t, a.runSelfFence)
	leave, ok := a.orders.admit()
	if !ok {
		t.Fatal("nothing may begin")
	}
	answer(t, a, wire.Renewed{Stop: true, Hold: true})
	await(t, "the end of the guest", func() bool { return g.get(mine).Power == compute.PowerOff })
	if _, ok := a.orders.admit(); ok || a.mayWork() {
		t.Error("something may begin")
	}
	if a.renewal(0).Stopped {
		t.Error("it is told while an order is in hand")
	}
	leave(false) // it was given up, and libvirt may have it still
	answer(t, a, wire.Renewed{Stop: true})
	if a.renewal(0).Stopped {
		t.Error("it is told while what was given up may come")
	}
	now.add(unsureLasts)
	await(t, "that none runs", func() bool { return a.renewal(0).Stopped })
	g.setDown(true)
	await(t, "doubt", func() bool { return !a.renewal(0).Stopped })
	g.setDown(false)
	await(t, "that none runs, again", func() bool { return a.renewal(0).Stopped })
	answer(t, a, wire.Renewed{Hold: true})
	if a.renewal(0).Stopped || a.mayWork() {
		t.Error("it is told unasked, or a held host works")
	}
	answer(t, a, wire.Renewed{})
	if !a.mayWork() {
		t.Error("nothing may begin after all")
	}
}

// TestPetsEndWithTheLease: however renewals come and however long this process is frozen between two of its steps, the watchdog
// resets the machine by 12 s after the newest answered renewal was sent, or at once.
func TestPetsEndWithTheLease(t *testing.T) {
	w := newWorld(t)
	c := w.config(newGuests())
	d := &dog{}
	c.Watchdog = d
	a, now := guarded(t, w, c)
	d.clock = now
	r := rand.New(rand.NewPCG(1, 2))
	answer(t, a, wire.Renewed{SelfFence: true})
	a.arm()
	if d.arms != 1 || a.renewal(0).Watchdog != "dog" {
		t.Fatal("it is not armed, or not named")
	}
	from, _ := a.Alive()
	for n := range 20000 {
		now.add(time.Duration(r.Int64N(int64(time.Second))))
		d.before = nil
		if r.IntN(20) == 0 {
			d.before = func() { now.add(time.Duration(r.Int64N(int64(10 * time.Second)))) }
		}
		if r.IntN(4) == 0 {
			from, _ = a.Alive()
			a.renewed(from, a.renewal(from), wire.Renewed{SelfFence: true})
		}
		a.pet()
		at, _ := a.Alive()
		if fires := d.at(); fires > from+compute.SelfFenceWatchdog && fires > at+time.Second {
			t.Fatalf("step %d: the lease is from %s, it is %s, and the machine is reset at %s", n, from, at, fires)
		}
	}
}

// TestWatchdogIsNamedWhileItCounts: what cannot be armed is not named, and none that was named is disarmed before the control plane has
// heard that.
func TestWatchdogIsNamedWhileItCounts(t *testing.T) {
	w := newWorld(t)
	c := w.config(newGuests())
	d := &dog{refuse: problem.Unsupportedf("soft")}
	c.Watchdog = d
	a, now := guarded(t, w, c)
	d.clock = now
	answer(t, a, wire.Renewed{SelfFence: true})
	a.arm()
	if a.renewal(0).Watchdog != "" || d.at() != 0 {
		t.Fatal("a watchdog of software counts")
	}
	d.refuse = nil
	now.add(petWithin + 1)
	a.arm()
	if d.arms != 0 {
		t.Fatal("it is armed by an old lease")
	}
	answer(t, a, wire.Renewed{SelfFence: true})
	a.arm()
	loops(t, a.runWatchdog)
	answer(t, a, wire.Renewed{SelfFence: true}) // which named it
	if lost := a.renewal(0); lost.Watchdog != "dog" {
		t.Fatal("it is not named")
	}
	a.markUnconfirmed() // nobody answered that one
	answer(t, a, wire.Renewed{})
	if a.renewal(0).Watchdog != "" {
		t.Error("it is named though the host's silence is no proof any more")
	}
	answer(t, a, wire.Renewed{})
	time.Sleep(2 * petEvery)
	if d.at() == 0 {
		t.Fatal("it was disarmed while it may be heard that it is armed")
	}
	now.add(doubtLasts)
	answer(t, a, wire.Renewed{})
	await(t, "that it is disarmed", func() bool { return d.at() == 0 })
	await(t, "that it ends its guests no more", func() bool { return !a.fences() })
}

// TestWatchdogOfAKilledAgent: the next agent of the boot goes on with it, or ends it where nobody asks for it any more.
func TestWatchdogOfAKilledAgent(t *testing.T) {
	for _, asked := range []bool{true, false} {
		w := newWorld(t)
		c := w.config(newGuests())
		d := &dog{}
		c.Watchdog = d
		a, now := guarded(t, w, c)
		d.clock = now
		answer(t, a, wire.Renewed{SelfFence: true})
		a.arm()
		_ = a.Close() // and nothing else, as when it is killed
		now.add(time.Second)
		c = a.Config
		b := must.Get(Open(c))(t)
		t.Cleanup(func() { _ = b.Close() })
		loops(t, b.runWatchdog)
		time.Sleep(2 * petEvery)
		if d.arms != 1 {
			t.Error("it is petted before the control plane has answered")
		}
		answer(t, b, wire.Renewed{SelfFence: asked})
		await(t, "its taking over", func() bool { return b.stillArmed() })
		now.add(doubtLasts)
		answer(t, b, wire.Renewed{SelfFence: asked})
		if !asked {
			await(t, "its end", func() bool { return d.at() == 0 })
			continue
		}
		await(t, "that it is petted", func() bool { return d.at() > time.Hour+doubtLasts+watchdogTimeout })
		if b.renewal(0).Watchdog != "dog" {
			t.Error("it is not named")
		}
	}
}

// TestHardwareWatchdogRefuses: what is no watchdog, or not there, is none; and no device is opened but by Arm.
func TestHardwareWatchdogRefuses(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "none"), "/dev/null"} {
		h := HardwareWatchdog(path)
		if err := h.Pet(); !problem.Is(err, problem.Conflict) {
			t.Errorf("%s is petted: %v", path, err)
		}
		if _, err := h.Arm(watchdogTimeout); !problem.Is(err, problem.Unsupported) {
			t.Errorf("%s: %v", path, err)
		}
		if err := errors.Join(h.Expire(), h.Disarm()); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestOnlyAReliableWatchdogIsArmed: the kernel's own one, and one that cannot be set or petted, count for nothing.
func TestOnlyAReliableWatchdogIsArmed(t *testing.T) {
	const both = unix.WDIOF_SETTIMEOUT | unix.WDIOF_KEEPALIVEPING
	for _, c := range []struct {
		identity string
		options  uint32
		reliable bool
	}{
		{"iTCO_wdt", both, true}, {softWatchdog, both, false},
		{"iTCO_wdt", unix.WDIOF_SETTIMEOUT, false}, {"iTCO_wdt", unix.WDIOF_KEEPALIVEPING, false},
	} {
		if err := checkReliable(c.identity, c.options); c.reliable != (err == nil) || err != nil && !problem.Is(err, problem.Unsupported) {
			t.Errorf("%s with options %#x: %v", c.identity, c.options, err)
		}
	}
}

// TestAgentThatEndsHarmsNobody: an agent of a group that fences itself names its watchdog, and at its end says that it does not count
// any more before it disarms it. The guests run on. Where nobody hears that, its end is as good as silence.
func TestAgentThatEndsHarmsNobody(t *testing.T) {
	for name, heard := range map[string]bool{"heard": true, "unheard": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endAgent(t, heard)
		})
	}
}

func endAgent(t *testing.T, heard bool) {
	w, g := newWorld(t), newGuests()
	c, now := w.config(g), &clock{}
	now.add(time.Hour)
	d := &dog{clock: now}
	c.Watchdog, c.Alive = d, now.alive
	mine := ours(g, compute.PowerOn, 1)
	a := must.Get(Open(c))(t)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- a.Run(ctx) }()
	await(t, "the lease", func() bool { held, _ := a.Leased(); return held })
	group := "ha"
	must.OK(t, w.services.HostGroups.Create(t.Context(), &compute.HostGroup{Name: group, SelfFence: true}, record.Asker{}))
	must.Get(w.services.Hosts.SetService(t.Context(), a.ID(), compute.Service{Group: &group}, record.Asker{}))(t)
	await(t, "that the control plane hears of the watchdog", func() bool {
		_, watchdog, known := w.services.Liveness.Silence(a.ID())
		return known && watchdog == "dog" && d.at() != 0
	})
	if !heard {
		w.away.Store("away", true)
	}
	cancel()
	if !heard {
		await(t, "its leaving", func() bool { a.lease.mu.Lock(); defer a.lease.mu.Unlock(); return a.lease.leaving })
		now.add(compute.SelfFenceKill)
	}
	if err := <-over; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	_ = a.Close()
	_, watchdog, _ := w.services.Liveness.Silence(a.ID())
	if runs := g.get(mine).Power == compute.PowerOn; runs != heard || (d.at() == 0) != heard || (watchdog == "") != heard {
		t.Errorf("heard %v: the guest runs %v, it fires at %s, and %q counts", heard, runs, d.at(), watchdog)
	}
}

// slow is a hypervisor that sets no power until it is told to.
type slow struct {
	*guests
	begun chan struct{}
	may   atomic.Bool
}

func (s *slow) SetPower(ctx context.Context, id string, p hypervisor.Power) (bool, error) {
	if !s.may.Load() {
		s.begun <- struct{}{}
		<-ctx.Done()
		return false, problem.Unavailablef("given up: %w", ctx.Err())
	}
	return s.guests.SetPower(ctx, id, p)
}

// TestHoldBreaksOrdersOff: what is in hand ends when the host is held, without a result; afterwards it is carried out all the same.
func TestHoldBreaksOrdersOff(t *testing.T) {
	w, h := newWorld(t), &slow{guests: newGuests(), begun: make(chan struct{}, 8)}
	c := w.config(h.guests)
	c.Hypervisor = h
	a, _ := w.start(c)
	await(t, "the lease", func() bool { held, _ := a.Leased(); return held })
	id := ours(h.guests, compute.PowerOff, 1)
	o := orderFor(a, id, compute.SetPower, compute.Args{Power: compute.PowerOn}, nil)
	w.post(o)
	<-h.begun
	w.away.Store("away", true)
	a.renewing.Lock() // no answer of before comes between
	a.lease.mu.Lock()
	a.lease.lastResponse.Hold = true
	a.lease.mu.Unlock()
	a.orders.halt()
	await(t, "the end of the order", func() bool {
		a.orders.mu.Lock()
		defer a.orders.mu.Unlock()
		return a.orders.inProgress == 0 && len(a.orders.known) == 0
	})
	if a.orders.isIdle() {
		t.Error("what was given up is taken for done")
	}
	a.renewing.Unlock()
	if h.get(id).Power != compute.PowerOff {
		t.Error("a held host started a guest")
	}
	h.may.Store(true)
	w.away.Delete("away")
	await(t, "the result", func() bool {
		got, err := w.store.Order(t.Context(), nil, o.ID)
		return err == nil && got.Result != nil && got.Result.ErrorKind == ""
	})
	if h.get(id).Power != compute.PowerOn {
		t.Error("the guest does not run")
	}
}
