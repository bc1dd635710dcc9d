package host

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
)

// hangMarker puts a pipe in the place of a store's marker: who opens it waits until somebody writes.
func hangMarker(t *testing.T, dir string) (release func()) {
	t.Helper()
	path := filepath.Join(dir, markerFile)
	kept := mustRead(t, path)
	must.OK(t, os.Remove(path))
	must.OK(t, syscall.Mkfifo(path, 0o600))
	release = func() {
		if err := os.Rename(path, path+".pipe"); err != nil {
			return
		}
		put(t, path, kept)
		for range stuckStore + 1 { // whoever waits is let go
			if f, err := os.OpenFile(path+".pipe", os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				_ = f.Close()
			}
		}
	}
	t.Cleanup(release)
	return release
}

// probeAgent has two stores, fast and nfs.
func probeAgent(t *testing.T, w *world, g *guests) (a *Agent, fast, nfs string) {
	t.Helper()
	c := w.config(g)
	fast, nfs = t.TempDir(), t.TempDir()
	c.Stores = []Store{{Name: "fast", Dir: fast}, {Name: "nfs", Dir: nfs, Shared: true}}
	a = must.Get(Open(c))(t)
	t.Cleanup(func() { _ = a.Close() })
	return a, fast, nfs
}

func (a *Agent) probes(t *testing.T, list ...compute.DiskProbe) []compute.DiskSight {
	t.Helper()
	r, err := a.do(t.Context(), orderTask{order: &compute.Order{ID: uuid.NewString(), ServerID: a.ID(), Verb: compute.Probe, Args: mustEncodeJSON(compute.Args{Probes: list})}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sights) != len(list) {
		t.Fatalf("%d answers to %d questions", len(r.Sights), len(list))
	}
	return r.Sights
}

func (a *Agent) withDisk(t *testing.T, store string) compute.DiskProbe {
	t.Helper()
	id := uuid.NewString()
	d := compute.SpecDisk{Name: "vda", Store: store, SizeGiB: 1}
	must.OK(t, a.makeDisk(t.Context(), &compute.Order{ID: uuid.NewString(), ServerID: id}, id, d))
	d.Store, d.Image = "another name of it", &compute.SpecImage{Digest: "sha256:other"}
	return compute.DiskProbe{ServerID: id, GuestName: "salvor-" + id[:8], Marker: a.stores.named(store).knownMarker, Disk: &d}
}

// TestProbe: a disk is the same by its store's marker and its own proof, and by nothing else.
func TestProbe(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, _, nfs := probeAgent(t, w, g)
	same := a.withDisk(t, "nfs")
	absent, missing, unproven := same, same, a.withDisk(t, "nfs")
	absent.Marker = uuid.NewString()
	missing.ServerID, missing.GuestName = uuid.NewString(), "other"
	put(t, filepath.Join(nfs, unproven.ServerID, "vda.raw.json"), mustEncodeJSON(diskProof{Server: same.ServerID, Disk: "vda"}))
	byID, byName, none := a.withDisk(t, "fast"), a.withDisk(t, "fast"), compute.DiskProbe{ServerID: uuid.NewString(), GuestName: "none"}
	g.set(compute.Guest{ID: byID.ServerID, Name: "x", Ours: true, Epoch: 7, Power: compute.PowerOff})
	g.set(compute.Guest{ID: uuid.NewString(), Name: byName.GuestName, Power: compute.PowerOn})
	escape := same
	escape.Disk = &compute.SpecDisk{Name: "vda", File: "../../etc/passwd"}
	unmarked := same
	unmarked.Marker = ""
	got := a.probes(t, same, absent, missing, unproven, byID, byName, none, escape, unmarked)
	for i, want := range []compute.Sight{
		compute.SightSame, compute.SightAbsent, compute.SightMissing, compute.SightMissing, compute.SightGuest, compute.SightGuest, compute.SightAbsent,
		compute.SightMissing, compute.SightUnknown,
	} {
		if got[i].Sight != want || want != compute.SightSame && got[i].Text == "" {
			t.Errorf("%d: %+v, want %s", i, got[i], want)
		}
	}
	g.setDown(true)
	if got := a.probes(t, same); got[0].Sight != compute.SightUnknown {
		t.Errorf("without the hypervisor: %+v", got)
	}
}

// TestProbeOfAStoreThatHangs: it is unknown, in time, whatever may be in it; the other store answers; and after a few that never come
// back nobody is sent there any more, until it is back.
func TestProbeOfAStoreThatHangs(t *testing.T) {
	w := newWorld(t)
	a, _, nfs := probeAgent(t, w, newGuests())
	far, near := a.withDisk(t, "nfs"), a.withDisk(t, "fast")
	elsewhere := far
	elsewhere.Marker = uuid.NewString() // it may be the one that hangs, by now
	a.stores.named("nfs").within = time.Second
	release := hangMarker(t, nfs)
	begun, sent := time.Now(), int32(0)
	for n := range stuckStore + 1 {
		if n == stuckStore {
			// Each probe waits a second for the store. The rest is for a busy machine: without a bound no probe would end.
			if took := time.Since(begun); took > stuckStore*20*time.Second {
				t.Errorf("%d probes of a store that hangs took %s, want %s at most", n, took, stuckStore*20*time.Second)
			}
			sent = a.stores.named("nfs").stuck.Load()
		}
		got := a.probes(t, far, near, elsewhere)
		if got[0].Sight != compute.SightUnknown || got[1].Sight != compute.SightSame || got[2].Sight != compute.SightUnknown {
			t.Errorf("%+v", got)
		}
		if n == 0 {
			// The inventory does not wait for it either, and what it had is not forgotten.
			if all := a.stores.describe(t.Context()); all[1].Marker != far.Marker || all[1].FreeGiB != 0 || all[0].Marker != near.Marker {
				t.Errorf("described as %+v", all)
			}
		}
	}
	if now := a.stores.named("nfs").stuck.Load(); now != sent || sent < stuckStore {
		t.Errorf("%d hang in the store, before %d: someone was sent there again", now, sent)
	}
	if err := (&orderExecution{Agent: a}).found(t.Context(), specFor(far.ServerID, compute.SpecDisk{Name: "vda", Store: "nfs"})); !problem.Is(err, problem.Unavailable) {
		t.Errorf("found: %v", err)
	}
	release()
	await(t, "the store's return", func() bool { return a.probes(t, far)[0].Sight == compute.SightSame })
}

// TestStoreThatIsUnmounted: it keeps no marker and takes no disk; its disks are unknown, not absent; and an agent that starts without
// it makes no marker in its mount point.
func TestStoreThatIsUnmounted(t *testing.T) {
	w := newWorld(t)
	a, _, nfs := probeAgent(t, w, newGuests())
	far := a.withDisk(t, "nfs")
	hidden := nfs + ".hidden"
	must.OK(t, os.Rename(nfs, hidden))
	for _, dir := range []bool{false, true} { // no directory; an empty one
		if dir {
			must.OK(t, os.Mkdir(nfs, 0o700))
		}
		_ = a.Close()
		b := must.Get(Open(a.Config))(t)
		for _, now := range []*Agent{a, b} {
			if got := now.probes(t, far); got[0].Sight != compute.SightUnknown {
				t.Errorf("%+v", got)
			}
			if all := now.stores.describe(t.Context()); all[1].Marker != "" || all[0].Marker == "" {
				t.Errorf("described as %+v", all)
			}
			d := compute.SpecDisk{Name: "vda", Store: "nfs", SizeGiB: 1}
			if err := now.makeDisk(t.Context(), &compute.Order{}, uuid.NewString(), d); !problem.Is(err, problem.Conflict) {
				t.Errorf("a disk in the mount point: %v", err)
			}
		}
		_ = b.Close()
	}
	must.OK(t, os.Remove(nfs))
	must.OK(t, os.Rename(hidden, nfs))
	if got := a.probes(t, far); got[0].Sight != compute.SightSame {
		t.Errorf("after its return: %+v", got)
	}
}

// TestFoundAndFresh: a destination makes no disk that it should find, and takes nobody's place.
func TestFoundAndFresh(t *testing.T) {
	w, g := newWorld(t), newGuests()
	a, _, _ := probeAgent(t, w, g)
	p := a.withDisk(t, "nfs")
	there := specFor(p.ServerID, compute.SpecDisk{Name: "vda", Store: "nfs", SizeGiB: 1})
	there.Epoch = 4
	do := func(verb compute.Verb, args compute.Args) error {
		_, err := a.do(t.Context(), orderTask{order: &compute.Order{ID: uuid.NewString(), ServerID: args.Spec.ServerID, Epoch: args.Spec.Epoch, Verb: verb, Args: mustEncodeJSON(args)}})
		return err
	}
	if err := do(compute.Prepare, compute.Args{Spec: there, Found: true}); err != nil {
		t.Errorf("what is there is not found: %v", err)
	}
	gone := specFor(uuid.NewString(), compute.SpecDisk{Name: "vda", Store: "nfs", SizeGiB: 1})
	elsewhere := specFor(p.ServerID, compute.SpecDisk{Name: "vda", Store: "none", SizeGiB: 1})
	for _, s := range []*compute.Spec{gone, elsewhere} {
		if err := do(compute.Prepare, compute.Args{Spec: s, Found: true}); !problem.Is(err, problem.Conflict) {
			t.Errorf("found: %v", err)
		}
	}
	if path, _ := a.stores.place(gone.ServerID, gone.Disks[0]); fileExists(path) {
		t.Error("a disk was made")
	}
	define := func() error { return do(compute.Define, compute.Args{Spec: there, Fresh: true}) }
	for range 2 { // again after a crash: it finds its own
		must.OK(t, define())
	}
	for what, other := range map[string]compute.Guest{
		"another epoch": {ID: there.ServerID, Name: there.GuestName, Ours: true, Epoch: 3}, "not ours": {ID: there.ServerID, Name: there.GuestName, Epoch: 4},
		"another server": {ID: uuid.NewString(), Name: there.GuestName, Ours: true, Epoch: 4},
	} {
		clear(g.all)
		g.set(other)
		if err := define(); !problem.Is(err, problem.Conflict) || g.get(other.ID).Epoch != other.Epoch {
			t.Errorf("%s: %v", what, err)
		}
	}
}
