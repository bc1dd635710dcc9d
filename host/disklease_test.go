package host

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"salvor/compute"
	"salvor/durable"
	"salvor/hypervisor"
	"salvor/hypervisor/fake"
	"salvor/problem"
	"salvor/test/must"
)

// TestLeaseOfALivingOwnerIsNotBroken: whatever receipt an order brings, a host that renews its lease keeps its disk.
func TestLeaseOfALivingOwnerIsNotBroken(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	w.refused(w.evacuate(b, next(spec), a), a.ID(), a.boot, "epoch 1", spec.ServerID, "renews its lease now")
	for _, verb := range []compute.Verb{compute.Define, compute.Discard, compute.Remove} { // the order alone, without its Prepare
		w.refused(w.order(b, verb, next(spec), compute.Args{Receipt: "r-1"}, a), a.ID(), a.boot)
	}
	if w.round(a, b); !a.runs(spec.ServerID) || b.runs(spec.ServerID) || !fileIsThere(diskOf(w.leasePath(spec))) {
		t.Error("the owner does not run, or the other does, or the disk is gone")
	}
}

// TestLeaseOfADeadOwnerWantsAReceipt: a lease that nobody renews is broken by a receipt, and by nothing else.
func TestLeaseOfADeadOwnerWantsAReceipt(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	w.refused(w.order(b, compute.Define, next(spec), compute.Args{}), "no fencing receipt", a.ID(), w.leasePath(spec))
	if err := b.leases.acquire(t.Context(), w.leasePath(spec), diskLeaseClaim{server: spec.ServerID, receipt: "r-1"}); !problem.Is(err, problem.Forbidden) || !strings.Contains(err.Error(), "newer than epoch 0") {
		t.Errorf("an older owner with a receipt: %v", err)
	}
	w.ok(w.evacuate(b, next(spec)))
	if l := w.lease(spec); l.Host != b.ID() || l.Epoch != 2 {
		t.Errorf("%+v", l)
	}
	// The former owner was not dead: it reads the new owner, and ends its guest at once.
	if w.round(a); a.runs(spec.ServerID) || !b.runs(spec.ServerID) {
		t.Error("the former owner goes on")
	}
	if len(a.renewal(0).Did) != 1 || !strings.Contains(a.renewal(0).Did[0].Text, b.ID()) {
		t.Errorf("it is told: %+v", a.renewal(0).Did)
	}
	w.refused(w.order(a, compute.SetPower, spec, powerOn, b), b.ID())
	if l := w.lease(spec); l.Host != b.ID() {
		t.Errorf("%+v", l)
	}
}

// TestATakerWatchesForLong: a lease is taken only after it stood still for leaseWatch on the taker's clock.
func TestATakerWatchesForLong(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	path := w.leasePath(spec)
	renewals := 0
	look := func() (bool, error) {
		t.Helper()
		l, raw, err := readLease(path)
		if err != nil {
			t.Fatal(err)
		}
		age, renewed, err := b.leases.unchanged(path, l, raw)
		if err != nil {
			t.Fatal(err)
		}
		if renewed {
			renewals++
		}
		return b.leases.mayBreak(path, l, diskLeaseClaim{server: spec.ServerID, epoch: 2, receipt: "r"}, age, renewals)
	}
	silent := func() {
		t.Helper()
		for _, step := range []time.Duration{0, leaseWatch - 1, 1} {
			w.now.now.Add(int64(step))
			if may, err := look(); err != nil || may != (step == 1) {
				t.Errorf("after %s more: %v %v", step, may, err)
			}
		}
	}
	silent()
	w.round(a) // a write that was on its way when its host lost power: the watch begins anew
	silent()
	w.round(a)
	if _, err := look(); !problem.Is(err, problem.Forbidden) {
		t.Errorf("it rose twice: %v", err)
	}
}

// TestLeaseAfterRestartsOfItsOwner: an agent that begins anew goes on with its lease, in a new boot after it watched it, and under
// another identity too, as long as the machine has not booted.
func TestLeaseAfterRestartsOfItsOwner(t *testing.T) {
	t.Parallel()
	for what, again := range map[string]func(w *leaseHosts, a *leaseHost){
		"restart":      func(w *leaseHosts, a *leaseHost) { _ = a.Close(); w.begin(a) },
		"new identity": func(w *leaseHosts, a *leaseHost) { w.reinstall(a) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newLeaseHosts(t)
			a, b, spec := w.host(), w.host(), w.spec()
			w.run(a, spec)
			again(w, a)
			w.refused(w.evacuate(b, next(spec), a), "renews its lease now")
			if w.round(a, b); !a.runs(spec.ServerID) || b.runs(spec.ServerID) {
				t.Error("it does not run where it ran")
			}
		})
	}
	t.Run("reboot", func(t *testing.T) {
		t.Parallel()
		w := newLeaseHosts(t)
		a, spec := w.host(), w.spec()
		w.run(a, spec)
		_ = a.Close()
		off(t, a.machine, spec.ServerID)
		a.boot = "boot-9"
		w.begin(a)
		w.ok(w.order(a, compute.SetPower, spec, powerOn))
		if l := w.lease(spec); l.Boot != "boot-9" || l.State != leaseHeld || !a.runs(spec.ServerID) {
			t.Errorf("%+v", l)
		}
	})
	t.Run("a copy of its identity", func(t *testing.T) {
		t.Parallel()
		w := newLeaseHosts(t)
		a, spec := w.host(), w.spec()
		w.run(a, spec)
		twin := &leaseHost{machine: fake.New(), dir: t.TempDir(), boot: "boot-8"}
		put(t, filepath.Join(twin.dir, idFile), []byte(a.ID()+"\n"))
		w.begin(twin)
		w.refused(w.order(twin, compute.Define, spec, compute.Args{}, a), "boot-1", "renews its lease now")
	})
}

func off(t testing.TB, h *fake.Hypervisor, id string) {
	t.Helper()
	must.Get(h.SetPower(t.Context(), id, hypervisor.Power{State: compute.PowerOff}))(t)
}

// TestLeaseIsFreeOnceTheGuestIsOff: whoever turned it off, the next host starts it without a receipt.
func TestLeaseIsFreeOnceTheGuestIsOff(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(w *leaseHosts, a *leaseHost, spec *compute.Spec){
		"by order": func(w *leaseHosts, a *leaseHost, spec *compute.Spec) {
			w.ok(w.order(a, compute.SetPower, spec, compute.Args{Power: compute.PowerOff}))
		},
		"by itself": func(w *leaseHosts, a *leaseHost, spec *compute.Spec) { off(w, a.machine, spec.ServerID); w.round(a) },
		"by itself, while the store could not be written": func(w *leaseHosts, a *leaseHost, spec *compute.Spec) {
			_ = a.leases.heldAt(w.leasePath(spec)).file.Close()
			off(w, a.machine, spec.ServerID)
			w.round(a)
			w.round(a)
		},
		"by removal": func(w *leaseHosts, a *leaseHost, spec *compute.Spec) {
			w.ok(w.order(a, compute.Remove, spec, compute.Args{KeepDisks: true}))
		},
		"before a new boot": func(w *leaseHosts, a *leaseHost, spec *compute.Spec) {
			_ = a.Close()
			off(w, a.machine, spec.ServerID)
			a.boot = "boot-9"
			w.begin(a)
			for range 5 {
				w.round(a)
			}
		},
		"asked again after a new boot": func(w *leaseHosts, a *leaseHost, spec *compute.Spec) {
			_ = a.Close()
			off(w, a.machine, spec.ServerID)
			a.boot = "boot-9"
			w.begin(a)
			w.ok(w.order(a, compute.SetPower, spec, compute.Args{Power: compute.PowerOff}))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newLeaseHosts(t)
			a, b, spec := w.host(), w.host(), w.spec()
			w.run(a, spec)
			end(w, a, spec)
			if l := w.lease(spec); l.State != leaseFree {
				t.Fatalf("%+v", l)
			}
			w.ok(w.order(b, compute.Define, next(spec), compute.Args{}))
			w.ok(w.order(b, compute.SetPower, next(spec), powerOn))
			if w.round(a, b); a.runs(spec.ServerID) || !b.runs(spec.ServerID) || w.lease(spec).Host != b.ID() {
				t.Errorf("%+v", w.lease(spec))
			}
		})
	}
}

// TestLeaseGoesWithALiveMigration: the source gives it up when all is sent, the destination takes it before the guest runs, and a
// migration that is called off leaves it with the source.
func TestLeaseGoesWithALiveMigration(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		t.Run(fmt.Sprint("cancelled ", cancelled), func(t *testing.T) {
			t.Parallel()
			w := newLeaseHosts(t)
			a, b, spec := w.host(), w.host(), w.spec()
			w.run(a, spec)
			there := next(spec)
			w.ok(w.order(b, compute.Prepare, spec, compute.Args{Found: true}, a, b))
			begun := w.ok(w.order(a, compute.MigrateBegin, spec, compute.Args{}, a, b))
			listens := w.ok(w.order(b, compute.MigratePrepare, spec, compute.Args{Cookie: begun.Cookie}, a, b))
			w.round(a, b)
			if l := w.lease(spec); l.Host != a.ID() || l.State != leaseHeld {
				t.Fatalf("before it is sent: %+v", l)
			}
			sent := w.ok(w.order(a, compute.MigratePerform, spec, compute.Args{Cookie: listens.Cookie, Peer: listens.Peer}, a, b))
			w.round(a, b)
			want := b
			if cancelled {
				want = a
				w.ok(w.order(b, compute.MigrateFinish, there, compute.Args{Cancel: true}, a, b))
				w.ok(w.order(a, compute.MigrateConfirm, spec, compute.Args{Cancel: true}, a, b))
			} else {
				w.ok(w.order(b, compute.MigrateFinish, there, compute.Args{Cookie: sent.Cookie}, a, b))
				w.round(a, b)
				w.ok(w.order(a, compute.MigrateConfirm, there, compute.Args{}, a, b))
				w.ok(w.order(a, compute.Remove, there, compute.Args{KeepDisks: true}, a, b))
			}
			for range 3 {
				w.round(a, b)
			}
			if l := w.lease(spec); l.Host != want.ID() || l.State != leaseHeld || !want.runs(spec.ServerID) || a.runs(spec.ServerID) && b.runs(spec.ServerID) {
				t.Errorf("at the end: %+v", l)
			}
		})
	}
}

// TestFreedLeaseIsNotRenewed: a round that saw the guest run before an order freed its lease writes afterwards. The lease stays free.
func TestFreedLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, spec := w.host(), w.spec()
	w.run(a, spec)
	held := a.leases.allHeld()[0]
	must.OK(t, held.write(leaseFree))
	running := map[string]compute.Guest{spec.ServerID: {ID: spec.ServerID, Ours: true, Power: compute.PowerOn}}
	a.leases.renewOrFree(t.Context(), held, &seenGuests{agent: a.Agent, list: running, known: true})
	if l := w.lease(spec); l.State != leaseFree {
		t.Errorf("after the late renewal: %+v", l)
	}
	if held.replaceFile(nil, diskLease{State: leaseHeld}) {
		t.Error("another file replaces that of a freed lease")
	}
}

// TestRunningGuestsGetALease: guests that ran before there were leases, or whose lease somebody removed.
func TestRunningGuestsGetALease(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	for range 2 {
		must.OK(t, os.Remove(w.leasePath(spec)))
		w.round(a)
		w.round(a)
		if l := w.lease(spec); l.Host != a.ID() || l.State != leaseHeld {
			t.Errorf("%+v", l)
		}
		_ = a.Close()
		w.begin(a)
	}
	w.refused(w.evacuate(b, next(spec), a), "renews its lease now")
}

// TestAStrayIsEnded: an agent that begins anew finds that a newer owner has the disk of a guest that runs here.
func TestAStrayIsEnded(t *testing.T) {
	t.Parallel()
	for _, again := range []func(*leaseHosts, *leaseHost){func(w *leaseHosts, a *leaseHost) { _ = a.Close(); w.begin(a) }, (*leaseHosts).reinstall} {
		w := newLeaseHosts(t)
		a, b, spec := w.host(), w.host(), w.spec()
		w.run(a, spec)
		w.ok(w.evacuate(b, next(spec))) // nobody renews: the agent of the first host is away
		again(w, a)
		w.round(a)
		await(t, "the stray is ended", func() bool { return !a.runs(spec.ServerID) })
		if w.round(a, b); !b.runs(spec.ServerID) || w.lease(spec).Host != b.ID() {
			t.Errorf("%+v", w.lease(spec))
		}
	}
}

// TestTornLease: bytes that are no lease are no leave to start; with a receipt, and once they stand still, they are replaced.
func TestTornLease(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"version":2,"host":"x"}`, strings.Repeat("x", 2*maxLease)} {
		w := newLeaseHosts(t)
		b, spec := w.host(), w.spec()
		w.ok(w.order(b, compute.Prepare, spec, compute.Args{}))
		put(t, w.leasePath(spec), []byte(text))
		w.refused(w.order(b, compute.Define, spec, compute.Args{}), "not known", "no fencing receipt")
		w.ok(w.order(b, compute.Define, spec, compute.Args{Receipt: "r"}))
		if l := w.lease(spec); l.Host != b.ID() {
			t.Errorf("%q: %+v", text, l)
		}
	}
	w := newLeaseHosts(t)
	b, spec := w.host(), w.spec()
	w.ok(w.order(b, compute.Prepare, spec, compute.Args{}))
	victim := filepath.Join(t.TempDir(), "passwd")
	put(t, victim, []byte("root"))
	must.OK(t, os.Symlink(victim, w.leasePath(spec)))
	if err := b.leases.acquire(t.Context(), w.leasePath(spec), diskLeaseClaim{server: spec.ServerID, epoch: 1, receipt: "r"}); err == nil || string(mustRead(t, victim)) != "root" {
		t.Errorf("a link is followed: %v", err)
	}
}

// TestLateRenewalOverwritesNoNewOwner: an owner that was frozen between its look and its write changes nothing of the new owner's lease.
func TestLateRenewalOverwritesNoNewOwner(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	late := a.leases.heldAt(w.leasePath(spec))
	w.ok(w.evacuate(b, next(spec)))
	for _, state := range []string{leaseHeld, leaseFree} {
		must.OK(t, late.write(state))
		if l := w.lease(spec); l.Host != b.ID() || l.State != leaseHeld {
			t.Errorf("%+v", l)
		}
	}
}

// TestOneOfTwoTakers: of hosts that take one lease at the same time, one owns it and the others find that out before they start anything.
func TestOneOfTwoTakers(t *testing.T) {
	t.Parallel()
	for _, state := range []string{leaseHeld, leaseFree} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			// The time of a bubble stands still while a file is read or written, so none of the takers is held up for longer than the settle
			// time. One that is held up waits for the other's renewal: TestATakerThatWasHeldUp.
			synctest.Test(t, func(t *testing.T) { takeAtOnce(t, state) })
		})
	}
}

func takeAtOnce(t *testing.T, state string) {
	w := newLeaseHosts(t)
	spec := w.spec()
	path := w.leasePath(spec)
	put(t, path, diskLease{Version: 1, Host: "gone", Boot: "x", Server: spec.ServerID, Nonce: "n", State: state, Counter: fmt.Sprintf("%020d", 7)}.encode())
	const n = 4
	results := make(chan error, n)
	for range n {
		h := w.host()
		h.leases.settle, h.leases.watch = leaseSettle, 0
		go func() {
			results <- h.leases.acquire(t.Context(), path, diskLeaseClaim{server: spec.ServerID, epoch: 2, receipt: "r"})
		}()
	}
	won := 0
	for range n {
		if err := <-results; err == nil {
			won++
		} else if !problem.Is(err, problem.Forbidden) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

// TestATakerThatWasHeldUp: after a host has read a free lease, and before it writes its own, another host takes the lease and may start the
// guest. The first host then waits as long as the other one needs to notice the loss.
func TestATakerThatWasHeldUp(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b := w.host(), w.host()
	spec := w.spec()
	w.run(a, spec)
	w.ok(w.order(a, compute.SetPower, spec, compute.Args{Power: compute.PowerOff}))
	path, c := filepath.Join(w.pool, spec.ServerID+"-vda"+leaseSuffix), diskLeaseClaim{server: spec.ServerID, epoch: spec.Epoch}
	b.leases.watch = 3 * time.Second
	alive, calls, acquired := b.Alive, 0, make(chan struct{})
	b.Alive = func() (time.Duration, error) {
		if calls++; calls == 2 { // the first is before the look
			if err := a.leases.acquire(t.Context(), path, c); err != nil {
				t.Error(err)
			}
			w.now.now.Add(int64(time.Second))
			close(acquired)
		}
		return alive()
	}
	type end struct {
		err  error
		both bool
	}
	done := make(chan end, 1)
	go func() {
		err := b.leases.acquire(t.Context(), path, c)
		done <- end{err, a.leases.heldAt(path) != nil}
	}()
	<-acquired
	await(t, "the first host's lease", func() bool { return w.lease(spec).Host == b.ID() })
	time.Sleep(100 * time.Millisecond) // one that does not watch has ended by now
	w.round(a)
	if e := <-done; e.err != nil || e.both {
		t.Errorf("%v; both own the lease: %t", e.err, e.both)
	}
}

// TestAStoreThatCannotBeWritten: nothing starts where no lease can be had; an owner that cannot renew goes on, and says so.
func TestAStoreThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, spec := w.host(), w.spec()
	w.run(a, spec)
	h := a.leases.heldAt(w.leasePath(spec))
	_ = h.file.Close()
	for range 4 {
		w.round(a)
	}
	if !a.runs(spec.ServerID) {
		t.Error("a guest is ended because its store could not be written")
	}
	other := w.spec()
	w.ok(w.order(a, compute.Prepare, other, compute.Args{}))
	must.OK(t, os.Remove(filepath.Join(w.pool, markerFile)))
	if err := a.leases.acquire(t.Context(), w.leasePath(other), diskLeaseClaim{server: other.ServerID, epoch: 1}); err == nil || fileIsThere(w.leasePath(other)) {
		t.Errorf("a lease was made in a store that is not mounted: %v", err)
	}
}

// TestRemovedDisksLeaveNoLease: not by a removal, nor half written ones that a crash left.
func TestRemovedDisksLeaveNoLease(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, spec := w.host(), w.spec()
	w.run(a, spec)
	put(t, w.leasePath(spec)+".LEFT", nil)
	put(t, diskOf(w.leasePath(spec))+".merged"+leaseSuffix, nil) // of an overlay that is gone
	w.ok(w.order(a, compute.Remove, spec, compute.Args{}))
	if left, _ := filepath.Glob(filepath.Join(w.pool, spec.ServerID+"*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	w.round(a)
	if left, _ := filepath.Glob(filepath.Join(w.pool, spec.ServerID+"*")); len(left) != 0 || len(a.leases.allHeld()) != 0 {
		t.Errorf("made anew: %v", left)
	}
}

// TestFiftyRoundsOneWriter: a false attestation with both hosts alive, a host that joined anew under another identity, and a removed host
// that returns, in an order by chance. At no time do two guests of the server run while their agents do.
func TestFiftyRoundsOneWriter(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	w := newLeaseHosts(t)
	for n := range 50 {
		a, b, spec := w.host(), w.host(), w.spec()
		w.run(a, spec)
		one := func(what string) {
			t.Helper()
			w.round(a, b)
			await(t, "strays are ended", func() bool { w.round(a, b); return !a.runs(spec.ServerID) || !b.runs(spec.ServerID) })
			if !a.runs(spec.ServerID) && !b.runs(spec.ServerID) {
				t.Fatalf("round %d: %s: it runs nowhere", n, what)
			}
		}
		switch chance.IntN(3) {
		case 0:
			for range chance.IntN(4) {
				w.round(a)
			}
			w.refused(w.evacuate(b, next(spec), a))
			one("false attestation")
		case 1:
			w.reinstall(a)
			w.refused(w.evacuate(b, next(spec), a))
			one("rejoined identity")
		case 2: // its agent is away; it was fenced and removed; no control plane knows it when its agent is back
			w.ok(w.evacuate(b, next(spec), b))
			_ = a.Close()
			w.begin(a)
			one("removed host")
			if a.runs(spec.ServerID) || a.mayWork() {
				t.Fatal("the host that returned runs it")
			}
			// Somebody starts it there by hand.
			must.Get(a.machine.SetPower(t.Context(), spec.ServerID, hypervisor.Power{State: compute.PowerOn}))(t)
			one("started by hand")
			if !b.runs(spec.ServerID) {
				t.Fatal("the wrong one was ended")
			}
		}
		_, _ = a.Close(), b.Close()
	}
}

// TestReplace: of many that replace a file at a time each leaves it whole, and none leaves another file.
func TestReplacedLeaseIsWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.lease")
	done := make(chan error)
	for n := range 8 {
		go func() {
			var err error
			for i := 0; i < 20 && err == nil; i++ {
				err = durable.Replace(path, diskLease{Version: 1, Host: fmt.Sprint(n), Nonce: "n", State: leaseFree, Counter: fmt.Sprintf("%020d", i)}.encode(), 0o600)
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if l, _, err := readLease(path); err != nil || l.Host == "" {
		t.Errorf("%+v %v", l, err)
	}
	if all, _ := os.ReadDir(filepath.Dir(path)); len(all) != 1 {
		t.Errorf("%v", all)
	}
}

// TestALeaseThatChangesHandsIsNotWaitedForForEver: each owner is a new one, so none is seen to renew, and none stands still.
func TestALeaseThatChangesHandsIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	b, spec := w.host(), w.spec()
	over := make(chan error, 1)
	write := func(n int) {
		l := diskLease{Version: 1, Host: "other", Boot: "x", Server: spec.ServerID, Nonce: fmt.Sprint("n", n), State: leaseHeld, Counter: fmt.Sprintf("%020d", 7)}
		if err := durable.Replace(w.leasePath(spec), l.encode(), 0o600); err != nil {
			t.Error(err)
		}
	}
	write(0)
	go func() {
		over <- b.leases.acquire(t.Context(), w.leasePath(spec), diskLeaseClaim{server: spec.ServerID, epoch: 2, receipt: "r"})
	}()
	for n := 1; n < 10000; n++ {
		select {
		case err := <-over:
			if !problem.Is(err, problem.Forbidden) || !strings.Contains(err.Error(), "still changes") {
				t.Error(err)
			}
			return
		case <-time.After(20 * time.Millisecond):
			write(n)
			w.now.add(leaseRenewEvery)
		}
	}
	t.Error("it is waited for still")
}

// TestACounterRises: for as long as anybody looks, and the lease keeps its length.
func TestACounterRises(t *testing.T) {
	t.Parallel()
	l := diskLease{Version: 1, Host: "h", Nonce: "n", State: leaseFree, Counter: fmt.Sprintf("%020d", 0)}
	length := len(l.encode())
	for range 1000 {
		next := l.raised(leaseHeld)
		if next.Counter <= l.Counter || len(next.encode()) != length {
			t.Fatalf("%s after %s", next.Counter, l.Counter)
		}
		l = next
	}
}
