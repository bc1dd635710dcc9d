package host

import (
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// overlay writes the head of a qcow2 file that is based on another file, as QEMU's format says.
func overlay(t *testing.T, path, below string) string {
	t.Helper()
	head := make([]byte, 112, 112+len(below))
	copy(head, qcow2Magic)
	binary.BigEndian.PutUint32(head[4:], 3)
	binary.BigEndian.PutUint64(head[8:], uint64(len(head)))
	binary.BigEndian.PutUint32(head[16:], uint32(len(below)))
	put(t, path, append(head, below...))
	return path
}

// use has the guest use files for its first disk: now, and at its next start.
func (l *lost) use(now, next compute.GuestDisk) {
	now.Name, next.Name = "vda", "vda"
	l.g.set(compute.Guest{ID: l.id, Name: "salvor-1", Ours: true, Epoch: 1, Power: compute.PowerOn, Disks: []compute.GuestDisk{now}, NextDisks: []compute.GuestDisk{next}})
}

func (l *lost) listed(t *testing.T) *compute.Guest {
	t.Helper()
	g := must.Get(l.guest(t.Context(), l.id))(t)
	if g == nil {
		t.Fatal("the guest is not listed")
	}
	return g
}

// The agent says which disks lie elsewhere than where it made them, with a command that ends that; and nothing of its own disks.
func TestDisksMovedByOthersAreTold(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	outside := filepath.Join(t.TempDir(), "vda")
	put(t, outside, []byte("data"))
	first := overlay(t, l.own+".ov1", filepath.Base(l.own)) // a relative name, as some tools write it
	second := overlay(t, l.own+".ov2", first)
	loop := overlay(t, l.own+".loop", l.own+".loop")
	foreign := filepath.Join(l.config.Stores[0].Dir, "ffffffff-ffff-4fff-8fff-ffffffffffff", "vda.raw")
	must.OK(t, os.MkdirAll(filepath.Dir(foreign), 0o755))
	put(t, foreign, []byte("data"))
	put(t, foreign+".json", mustEncodeJSON(diskProof{Server: "ffffffff-ffff-4fff-8fff-ffffffffffff", Disk: "vda"}))
	lying := overlay(t, filepath.Join(filepath.Dir(outside), "lies"), l.own) // its guest wrote the head of an overlay
	raw := func(file string) compute.GuestDisk { return compute.GuestDisk{File: file, Format: "raw"} }
	qcow := func(file string) compute.GuestDisk { return compute.GuestDisk{File: file, Format: "qcow2"} }
	copying := raw(l.own)
	copying.Copying = true
	for name, c := range map[string]struct {
		now, next    compute.GuestDisk
		text, remedy string // of the only drift; empty: none
	}{
		"its own":            {raw(l.own), raw(l.own), "", ""},
		"an overlay":         {qcow(first), qcow(first), first + ", an overlay over " + l.own, "virsh blockcommit salvor-1 vda --active --pivot"},
		"two overlays":       {qcow(second), qcow(second), second + ", an overlay over " + l.own, "virsh blockcommit salvor-1 vda --active --pivot"},
		"another file":       {raw(outside), raw(outside), outside + ", and salvor made it in " + l.own, "--dest " + l.own + " --format raw --reuse-external"},
		"another's disk":     {raw(foreign), raw(foreign), foreign + ", and salvor made it in " + l.own, "virsh blockcopy"},
		"its own as qcow2":   {qcow(l.own), qcow(l.own), "is opened as qcow2", "virsh edit salvor-1"},
		"another next start": {raw(l.own), raw(outside), "in use in " + l.own + ", and the next start would use " + outside, "virsh edit salvor-1"},
		"not mounted":        {raw("/srv/old/" + filepath.Base(l.own)), raw("/srv/old/" + filepath.Base(l.own)), "which is not there now, and salvor made it in " + l.own, ""},
		"being copied":       {copying, raw(l.own), "is being copied", "virsh blockjob salvor-1 vda --abort"},
		"based on itself":    {qcow(loop), qcow(loop), loop + ", and salvor made it in", "virsh blockcopy"},
		"a file that is not": {raw(l.own + ".gone"), raw(l.own + ".gone"), l.own + ".gone", ""},
		"a lying raw disk":   {raw(lying), raw(lying), lying + ", and salvor made it in", "virsh blockcopy"},
	} {
		t.Run(name, func(t *testing.T) {
			l.use(c.now, c.next)
			for range 2 { // the second look may remember the first
				g := l.listed(t)
				if c.text == "" {
					if len(g.Drift) != 0 || g.RefusalToLeave() != nil {
						t.Errorf("drift %+v, want none", g.Drift)
					}
					continue
				}
				if len(g.Drift) != 1 || g.Drift[0].Part != "disk vda" || !g.Drift[0].Disk || !strings.Contains(g.Drift[0].Text, c.text) || !strings.Contains(g.Drift[0].Remedy, c.remedy) {
					t.Errorf("drift %+v, want one of disk vda that says %q and names %q", g.Drift, c.text, c.remedy)
				}
				if err := g.RefusalToLeave(); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), c.now.File) {
					t.Errorf("it may leave its host: %v, want a Conflict that names %s", err, c.now.File)
				}
			}
		})
	}
}

// A disk that somebody else added is named with the command that detaches it. A disk of the server whose store is away is never to be detached.
func TestAnAddedDiskIsNamedWithItsCommand(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	const detach = "virsh detach-disk salvor-1 vdc --persistent"
	for _, added := range []bool{true, false} {
		g := compute.Guest{ID: l.id, Name: "salvor-1", Ours: true, Epoch: 1, Power: compute.PowerOn, Disks: []compute.GuestDisk{{Name: "vdc", File: "/srv/more", Format: "raw"}}}
		if g.NextDisks = g.Disks; added {
			g.Drift = []compute.Drift{{Part: "disk vdc", Text: compute.DriftAdded}}
		}
		l.g.set(g)
		got := l.listed(t)
		if err := got.RefusalToLeave(); len(got.Drift) != 1 || (got.Drift[0].Remedy == detach) != added || !problem.Is(err, problem.Conflict) || strings.Contains(err.Error(), detach) != added {
			t.Errorf("added %v: drift %+v, it may leave its host: %v; want a Conflict that says %q: %v", added, got.Drift, err, detach, added)
		}
	}
}

// A store that is not mounted accuses nobody: nothing is said of a disk there.
func TestAStoreThatIsAwayTellsNoDrift(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	l.use(compute.GuestDisk{File: l.own, Format: "raw"}, compute.GuestDisk{File: l.own, Format: "raw"})
	dir := l.config.Stores[0].Dir
	must.OK(t, os.Rename(dir, dir+".away"))
	must.OK(t, os.Mkdir(dir, 0o755))
	if g := l.listed(t); len(g.Drift) != 0 || !g.DriftUnknown || !problem.Is(g.RefusalToLeave(), problem.Unavailable) {
		t.Errorf("with the store away: drift %+v, unknown %v, it may leave its host: %v; want no drift, and that nobody knows", g.Drift, g.DriftUnknown, g.RefusalToLeave())
	}
	must.OK(t, os.Remove(dir))
	must.OK(t, os.Rename(dir+".away", dir))
	must.OK(t, os.Remove(l.own+".json"))
	if g := l.listed(t); len(g.Drift) != 1 {
		t.Errorf("with the store back, and a disk without its proof: drift %+v, want one", g.Drift)
	}
}

// Orders that would leave a disk behind, or replace it, are refused while the guest uses another file; nothing is changed.
func TestOrdersThatWouldLeaveADiskAreRefused(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	over := overlay(t, l.own+".ov", l.own)
	for verb, args := range map[compute.Verb]compute.Args{
		compute.MigrateBegin: {Spec: l.spec}, compute.MigratePerform: {Spec: l.spec}, compute.Discard: {Spec: l.spec}, compute.Stage: {Spec: l.spec},
	} {
		disk := compute.GuestDisk{Name: "vda", File: over, Format: "qcow2"}
		l.g.set(compute.Guest{ID: l.id, Name: "salvor-1", Ours: true, Epoch: 1, Power: compute.PowerOff, Disks: []compute.GuestDisk{disk}, NextDisks: []compute.GuestDisk{disk}})
		err := l.carryOut(t, verb, args)
		if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), over) || !strings.Contains(err.Error(), "virsh blockcommit") {
			t.Errorf("%s: %v, want a Conflict that names %s and the command", verb, err, over)
		}
		if !fileExists(l.own) || !fileExists(over) || len(l.quarantineOf(t)) != 0 {
			t.Errorf("%s: disk %v, overlay %v, in quarantine %v", verb, fileExists(l.own), fileExists(over), l.quarantineOf(t))
		}
	}
}

// A deleted server leaves no overlay behind, also when the first try was cut short. A file that salvor did not name stays.
func TestOverlaysGoWithTheirDisk(t *testing.T) {
	w := newWorld(t)
	for _, cut := range []bool{false, true} {
		l := loseServer(t, w, newGuests())
		shared := filepath.Join(l.config.Stores[0].Dir, "golden.img")
		put(t, shared, []byte("of many guests"))
		below := overlay(t, l.own+".ov1", shared)
		over := overlay(t, l.own+".ov2", below)
		l.use(compute.GuestDisk{File: over, Format: "qcow2", Chain: []string{below, shared}}, compute.GuestDisk{File: over, Format: "qcow2"})
		if cut {
			_, _, err := l.rememberOverlays(t.Context(), l.id, l.listed(t), l.spec.Disks)
			must.OK(t, err)
			must.OK(t, l.g.Remove(t.Context(), l.id))
		}
		must.OK(t, l.carryOut(t, compute.Remove, compute.Args{Spec: l.spec}))
		if fileExists(l.own) || fileExists(over) || fileExists(below) || !fileExists(shared) {
			t.Errorf("cut short %v: disk %v, overlays %v %v, the image of many guests %v; want the last one only", cut, fileExists(l.own), fileExists(over), fileExists(below), fileExists(shared))
		}
	}
}

// What a returned host gives up goes into quarantine with its overlays.
func TestOverlaysGoIntoQuarantine(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	over := overlay(t, l.own+".ov", l.own)
	l.use(compute.GuestDisk{File: over, Format: "qcow2", Chain: []string{l.own}}, compute.GuestDisk{File: over, Format: "qcow2"})
	must.OK(t, l.clean(t.Context(), l.id, l.cleanRequest(compute.CleanDisk, 2)))
	var names []string
	for _, d := range l.quarantineOf(t) {
		names = append(names, d.Disk)
	}
	if strings.Join(names, " ") != "vda overlay0" && strings.Join(names, " ") != "overlay0 vda" || fileExists(over) {
		t.Errorf("in quarantine %v, overlay in its place %v; want vda and overlay0", names, fileExists(over))
	}
}

// A server was deleted while its host was away. When the host is back, its disk goes from a shared store too, unless another host uses the disk.
func TestDiskOfADeletedServerGoesFromASharedStore(t *testing.T) {
	t.Parallel()
	for _, usedElsewhere := range []bool{false, true} {
		w := newLeaseHosts(t)
		a, b, spec := w.host(), w.host(), w.spec()
		w.run(a, spec)
		owner := []*leaseHost{}
		if usedElsewhere {
			off(t, a.machine, spec.ServerID)
			w.round(a)
			later := next(spec)
			w.run(b, later)
			owner = append(owner, b)
		}
		erase := wire.Clean{Do: string(compute.CleanDisk), Epoch: spec.Epoch + 1, Erase: true, Spec: mustEncodeJSON(spec)}
		err := w.meanwhile(func() error { return a.clean(t.Context(), spec.ServerID, erase) }, owner...)
		left, _ := filepath.Glob(filepath.Join(w.pool, spec.ServerID+"*"))
		if usedElsewhere && (err == nil || !b.runs(spec.ServerID) || !fileExists(filepath.Join(w.pool, spec.ServerID+"-vda"))) {
			t.Errorf("a disk that another host uses: %v, it runs there %v, left %v; want a refusal, and the disk", err, b.runs(spec.ServerID), left)
		}
		if !usedElsewhere && (err != nil || len(left) > 0) {
			t.Errorf("a disk that nobody uses: %v, left %v; want nothing left", err, left)
		}
	}
}

// An examination reads the files that the guest used last, not those that its record names.
func TestAnExaminationReadsTheOverlay(t *testing.T) {
	d := hypervisor.Domain{Paths: map[string]hypervisor.DiskFile{"vda": {Path: "/pool/vda", Format: "raw"}, "vdb": {Path: "/pool/vdb", Format: "raw"}}}
	useGuestDisks(&d, &compute.Guest{Disks: []compute.GuestDisk{{Name: "vda", File: "/pool/vda.ov", Format: "qcow2"}, {Name: "vdb", File: "/pool/vdb"}, {Name: "vdz", File: "/other"}}})
	want := map[string]hypervisor.DiskFile{"vda": {Path: "/pool/vda.ov", Format: "qcow2"}, "vdb": {Path: "/pool/vdb", Format: "raw"}}
	if !maps.Equal(d.Paths, want) {
		t.Errorf("the examination reads %v, want %v", d.Paths, want)
	}
}
