package host

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// lost is a server that this host has of an epoch: a guest, files, a disk of its own, a disk in a shared store, and one that is not proven.
type lost struct {
	*Agent
	g         *guests
	id        string
	spec      *compute.Spec
	own, seen string // disks
	drive     string
	config    Config
}

func loseServer(t *testing.T, w *world, g *guests) *lost {
	t.Helper()
	c := w.config(g)
	shared, local := t.TempDir(), t.TempDir()
	c.Stores = []Store{{Name: "local", Dir: local}, {Name: "nfs", Dir: shared, Shared: true}}
	l := &lost{g: g, config: c}
	l.open(t)
	l.id = ours(g, compute.PowerOn, 1)
	l.spec = specFor(l.id, compute.SpecDisk{Name: "vda", SizeGiB: 1}, compute.SpecDisk{Name: "vdb", Store: "nfs", SizeGiB: 1}, compute.SpecDisk{Name: "vdc", VolumeID: "v"})
	for i, into := range []*string{&l.own, &l.seen} {
		d := l.spec.Disks[i]
		must.OK(t, l.makeDisk(t.Context(), &compute.Order{ID: uuid.NewString(), ServerID: l.id}, l.id, d))
		*into, _ = l.stores.place(l.id, d)
	}
	l.drive = l.identity.path("servers", l.id, driveFile)
	put(t, l.drive, []byte("drive"))
	put(t, l.identity.path("servers", l.id, rescueDrive), []byte("rescue"))
	put(t, l.identity.path("servers", l.id, consoleFile), []byte("console"))
	return l
}

// A server whose live migration to the host was given up does not arrive any more, once that is cleaned up.
func TestACleanUpEndsAnArrival(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	l.leases.setArriving(l.id, true)
	must.OK(t, l.clean(t.Context(), l.id, l.cleanRequest(compute.CleanGuest, 2)))
	if l.leases.arriving[l.id] {
		t.Error("it arrives still")
	}
}

func (l *lost) open(t *testing.T) {
	t.Helper()
	a := must.Get(Open(l.config))(t)
	l.Agent = a
	t.Cleanup(func() { _ = a.Close() })
}

func (l *lost) cleanRequest(do compute.CleanUp, epoch int64) wire.Clean {
	return wire.Clean{Do: string(do), Epoch: epoch, Spec: mustEncodeJSON(l.spec)}
}

func (l *lost) hasGuest() bool { _, ok := l.g.all[l.id]; return ok }

func fileExists(path string) bool { _, err := os.Lstat(path); return err == nil }

// TestCleanUp: by an explicit word the guest goes with all that is this host's own of it, and with another word its local disks too;
// never a disk that others see, and nothing at all by any other word.
func TestCleanUp(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		do                     compute.CleanUp
		guest, files, own, ask bool // what is left; ask: nothing is told
	}{
		{compute.CleanGuest, false, false, true, false},
		{compute.CleanDisk, false, false, false, false},
		{compute.CleanKeep, true, true, true, true},
		{compute.CleanWait, true, true, true, true},
		{compute.CleanAsk, true, true, true, true},
		{"destroy everything", true, true, true, true},
	} {
		t.Run(string(c.do), func(t *testing.T) {
			l := loseServer(t, w, newGuests())
			for range 2 { // as often as it is asked
				answer(t, l.Agent, wire.Renewed{Hold: true, Clean: map[string]wire.Clean{l.id: l.cleanRequest(c.do, 2)}})
				if !c.ask {
					await(t, "the end", func() bool { return len(l.renewal(0).Cleaned) == 1 })
				}
			}
			if got := l.renewal(0).Cleaned; c.ask != (len(got) == 0) || !c.ask && got[0] != (wire.Cleaned{ServerID: l.id, Epoch: 2}) {
				t.Errorf("it is told: %+v", got)
			}
			if l.hasGuest() != c.guest || fileExists(filepath.Dir(l.drive)) != c.files || fileExists(l.own) != c.own || !fileExists(l.seen) {
				t.Errorf("guest %v, files %v, own disk %v, shared disk %v", l.hasGuest(), fileExists(l.drive), fileExists(l.own), fileExists(l.seen))
			}
			answer(t, l.Agent, wire.Renewed{})
			if len(l.renewal(0).Cleaned) != 0 {
				t.Error("it is told though nobody asks any more")
			}
			stale := &compute.Order{ID: uuid.NewString(), HostID: l.ID(), BootID: "boot-1", ServerID: l.id, Epoch: 1, Verb: compute.SetPower, Args: mustEncodeJSON(compute.Args{Power: compute.PowerOn})}
			if r, _ := l.perform(t.Context(), orderTask{order: stale}); !c.ask && r.ErrorKind != problem.Conflict.String() {
				t.Errorf("an order of the former owner: %+v", r)
			}
		})
	}
}

// TestACleanUpRemovesADefinitionOfAnotherIncarnation: only if nothing runs, and only the definition. Else the word says what to do.
func TestACleanUpRemovesADefinitionOfAnotherIncarnation(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		power   compute.Power
		do      compute.CleanUp
		removed bool
	}{
		"off":            {compute.PowerOff, compute.CleanGuest, true},
		"crashed":        {compute.PowerCrashed, compute.CleanGuest, true},
		"off, its disks": {compute.PowerOff, compute.CleanDisk, false},
		"running":        {compute.PowerOn, compute.CleanGuest, false},
		"paused":         {compute.PowerPaused, compute.CleanGuest, false},
		"saved":          {compute.PowerSaved, compute.CleanGuest, false},
		"unknown":        {compute.PowerUnknown, compute.CleanGuest, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := loseServer(t, w, newGuests())
			l.g.set(compute.Guest{ID: l.id, Ours: true, Epoch: 5, Power: c.power})
			word := l.cleanRequest(c.do, 2)
			word.Incarnation = "former"
			err := l.clean(t.Context(), l.id, word)
			if (err == nil) != c.removed || l.hasGuest() == c.removed || !fileExists(l.own) {
				t.Fatalf("%v; guest %v, disk %v", err, l.hasGuest(), fileExists(l.own))
			}
			if err != nil && !strings.Contains(err.Error(), "virsh undefine "+l.id) {
				t.Errorf("%q does not say what to do", err)
			}
		})
	}
}

// TestTheDiskOfALostHostGoesIntoQuarantine: a host that never had a server puts the server's disk in a shared store into quarantine. It leaves a disk whose
// lease another host renews, a disk in a store of its own, and all of a server of which it has a guest.
func TestTheDiskOfALostHostGoesIntoQuarantine(t *testing.T) {
	for name, c := range map[string]struct {
		guest, renewed bool
	}{"nobody uses it": {}, "a guest is here": {guest: true}, "another host renews its lease": {renewed: true}} {
		t.Run(name, func(t *testing.T) {
			l := loseServer(t, newWorld(t), newGuests())
			l.leases.watch = 300 * time.Millisecond
			if !c.guest {
				delete(l.g.all, l.id)
			}
			stop, done := make(chan struct{}), make(chan struct{})
			if lease := (diskLease{Version: 1, Host: uuid.NewString(), Name: "vm9", Boot: "b", Server: l.id, Epoch: 1, Nonce: "n", State: leaseHeld, Counter: "00000000000000000000"}); c.renewed {
				must.OK(t, os.WriteFile(l.seen+leaseSuffix, lease.encode(), 0o644))
				go func() {
					defer close(done)
					for {
						select {
						case <-stop:
							return
						case <-time.After(20 * time.Millisecond):
							lease = lease.raised(leaseHeld)
							_ = os.WriteFile(l.seen+leaseSuffix, lease.encode(), 0o644)
						}
					}
				}()
			} else {
				close(done)
			}
			err := l.clean(t.Context(), l.id, l.cleanRequest(compute.CleanOrphan, 2))
			close(stop)
			<-done
			refused := c.guest || c.renewed
			if (err != nil) != refused || fileExists(l.seen) != refused || !fileExists(l.own) || l.hasGuest() != c.guest {
				t.Errorf("error %v, shared disk %v, own disk %v, guest %v; want an error and the shared disk: %v, the own disk, and the guest: %v",
					err, fileExists(l.seen), fileExists(l.own), l.hasGuest(), refused, c.guest)
			}
			disks := must.Get(l.stores.named("nfs").quarantined())(t)
			if (len(disks) == 1) == refused {
				t.Errorf("in quarantine: %+v, want one disk: %v", disks, !refused)
			}
			if !refused {
				must.OK(t, l.clean(t.Context(), l.id, l.cleanRequest(compute.CleanOrphan, 2))) // as often as it is asked
			}
		})
	}
}

// TestCleanUpLeavesAlone: what is not below the epoch, not ours, or not proven stays, and is said.
func TestCleanUpLeavesAlone(t *testing.T) {
	w := newWorld(t)
	for what, change := range map[string]func(t *testing.T, l *lost) wire.Clean{
		"equal epoch": func(_ *testing.T, l *lost) wire.Clean { return l.cleanRequest(compute.CleanDisk, 1) },
		"no epoch":    func(_ *testing.T, l *lost) wire.Clean { return l.cleanRequest(compute.CleanDisk, 0) },
		"newer guest": func(_ *testing.T, l *lost) wire.Clean {
			l.g.set(compute.Guest{ID: l.id, Ours: true, Epoch: 3, Power: compute.PowerOn})
			return l.cleanRequest(compute.CleanDisk, 2)
		},
		"of another incarnation": func(_ *testing.T, l *lost) wire.Clean {
			l.g.set(compute.Guest{ID: l.id, Ours: true, Epoch: 1, Incarnation: "lost", Power: compute.PowerOn})
			c := l.cleanRequest(compute.CleanDisk, 2)
			c.Incarnation = "former"
			return c
		},
		"of an unknown incarnation": func(_ *testing.T, l *lost) wire.Clean {
			c := l.cleanRequest(compute.CleanDisk, 2)
			c.Incarnation = "former"
			return c
		},
		"not ours": func(_ *testing.T, l *lost) wire.Clean {
			l.g.set(compute.Guest{ID: l.id, Power: compute.PowerOn})
			return l.cleanRequest(compute.CleanDisk, 2)
		},
		"newer order": func(t *testing.T, l *lost) wire.Clean {
			delete(l.g.all, l.id)
			if _, _, err := l.journal.begin(&compute.Order{ID: uuid.NewString(), ServerID: l.id, Epoch: 3}, "boot-1", 0); err != nil {
				t.Fatal(err)
			}
			return l.cleanRequest(compute.CleanDisk, 2)
		},
		"hypervisor down": func(_ *testing.T, l *lost) wire.Clean {
			l.g.setDown(true)
			return l.cleanRequest(compute.CleanDisk, 2)
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := loseServer(t, w, newGuests())
			c := change(t, l)
			_, there := l.g.all[l.id]
			answer(t, l.Agent, wire.Renewed{Clean: map[string]wire.Clean{l.id: c}})
			await(t, "a word on it", func() bool { return len(l.renewal(0).Cleaned) == 1 })
			if got := l.renewal(0).Cleaned[0]; got.Error == "" || l.hasGuest() != there || !fileExists(l.own) || !fileExists(l.drive) {
				t.Errorf("%+v; guest %v, disk %v, files %v", got, l.hasGuest(), fileExists(l.own), fileExists(l.drive))
			}
		})
	}
	t.Run("another's disk", func(t *testing.T) {
		l := loseServer(t, w, newGuests())
		put(t, l.own+".json", mustEncodeJSON(diskProof{Server: uuid.NewString(), Disk: "vda"}))
		if err := l.clean(t.Context(), l.id, l.cleanRequest(compute.CleanDisk, 2)); !problem.Is(err, problem.Conflict) || !fileExists(l.own) {
			t.Errorf("%v", err)
		}
	})
}

// dying is a hypervisor whose agent is killed at one of its calls.
type dying struct {
	*guests
	at, count int
	before    bool
}

func (d *dying) die(before bool) {
	if before {
		d.count++
	}
	if d.count == d.at && d.before == before {
		panic(errKilled)
	}
}

func (d *dying) Guests(ctx context.Context) ([]compute.Guest, error) {
	d.die(true)
	defer d.die(false)
	return d.guests.Guests(ctx)
}

func (d *dying) Remove(ctx context.Context, id string) error {
	d.die(true)
	defer d.die(false)
	return d.guests.Remove(ctx, id)
}

// TestCleanUpKilledAtEachPoint: whenever the agent dies in a clean-up, and whatever of the files it has removed then, the next one ends
// it, and the former owner's orders are void from the begin.
func TestCleanUpKilledAtEachPoint(t *testing.T) {
	w := newWorld(t)
	points := map[string]dying{
		"before it looks": {at: 1, before: true}, "after it looked": {at: 1}, "before the guest is removed": {at: 2, before: true}, "after it was": {at: 2},
	}
	halves := map[string]func(l *lost) error{
		"disk gone, proof there": func(l *lost) error { return os.Remove(l.own) },
		"files gone":             func(l *lost) error { return os.RemoveAll(filepath.Dir(l.drive)) },
		"drive gone":             func(l *lost) error { return os.Remove(l.drive) },
		"disks gone":             func(l *lost) error { return l.stores.erase(context.Background(), l.id, l.spec.Disks[0]) },
	}
	for what, d := range points {
		t.Run(what, func(t *testing.T) {
			l := loseServer(t, w, newGuests())
			d.guests = l.g
			l.Hypervisor = &d
			func() {
				defer func() {
					if p := recover(); p != errKilled {
						t.Fatalf("killed by %v", p)
					}
				}()
				_ = l.clean(t.Context(), l.id, l.cleanRequest(compute.CleanDisk, 2))
			}()
			_ = l.Close()
			l.open(t)
			l.again(t)
		})
	}
	for what, half := range halves {
		t.Run(what, func(t *testing.T) {
			l := loseServer(t, w, newGuests())
			delete(l.g.all, l.id)
			must.OK(t, half(l))
			must.OK(t, l.journal.raise(l.id, 2))
			l.again(t)
		})
	}
}

// again does the clean-up that was cut off.
func (l *lost) again(t *testing.T) {
	t.Helper()
	stale := &compute.Order{ID: uuid.NewString(), ServerID: l.id, Epoch: 1}
	if _, _, err := l.journal.begin(stale, "boot-1", 0); !problem.Is(err, problem.Conflict) {
		t.Errorf("an order of the former owner: %v", err)
	}
	must.OK(t, l.clean(t.Context(), l.id, l.cleanRequest(compute.CleanDisk, 2)))
	if l.hasGuest() || fileExists(filepath.Dir(l.drive)) || fileExists(l.own) || fileExists(l.own+".json") || !fileExists(l.seen) {
		t.Errorf("guest %v, files %v, own %v, shared %v", l.hasGuest(), fileExists(l.drive), fileExists(l.own), fileExists(l.seen))
	}
}
