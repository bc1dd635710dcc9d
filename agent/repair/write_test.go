package repair

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"salvor/agent/examine"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
	"salvor/test/must"
)

// faultyDisk is a disk with a cache of its own that is lost with the power: only a flush brings what was written to its medium.
type faultyDisk struct {
	blockDevice
	medium   []byte                                     // what a loss of power leaves
	write    func(b []byte, offset int64) (int, error)  // instead of a write; nil: writes work
	flush    func() error                               // before each flush; nil: flushes work
	readBack func(b []byte, offset int64, flushed bool) // changes what a read gives; nil: reads work
	flushed  bool
}

func (d *faultyDisk) WriteAt(b []byte, offset int64) (int, error) {
	d.flushed = false
	if d.write != nil {
		return d.write(b, offset)
	}
	return d.blockDevice.WriteAt(b, offset)
}

func (d *faultyDisk) ReadAt(b []byte, offset int64) (int, error) {
	n, err := d.blockDevice.ReadAt(b, offset)
	if err == nil && d.readBack != nil {
		d.readBack(b, offset, d.flushed)
	}
	return n, err
}

func (d *faultyDisk) Sync() error {
	if d.flush != nil {
		if err := d.flush(); err != nil {
			return err
		}
	}
	content, err := os.ReadFile(d.Name())
	d.medium, d.flushed = content, err == nil
	return err
}

// faultyWrites opens all disks as disks with caches.
func (d *testDisks) faultyWrites(t *testing.T) ([]*diskWrite, []*faultyDisk) {
	t.Helper()
	writes := d.writes(t)
	var disks []*faultyDisk
	for _, w := range writes {
		f := &faultyDisk{blockDevice: w.disk.blockDevice, medium: d.before[w.name]}
		w.disk.blockDevice = f
		disks = append(disks, f)
		t.Cleanup(func() { _ = f.Close() })
	}
	return writes, disks
}

// TestWrittenOutlivesALossOfPower: a repair that is called written is on the medium of each disk, and so is the undo.
func TestWrittenOutlivesALossOfPower(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	writes, disks := d.faultyWrites(t)
	must.Get(writeDisks(t.Context(), writes, false))(t)
	for _, f := range disks {
		if !bytes.Equal(f.medium, d.after[f.Name()]) {
			t.Errorf("%s: the power went off after the repair was called written, and the disk does not hold the repair", f.Name())
		}
	}
}

// TestDisksThatLoseWrites: a repair is called written only where each disk has flushed its cache and then gives back what was written.
func TestDisksThatLoseWrites(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	for name, c := range map[string]struct {
		fault func(f *faultyDisk)
		want  func(error) bool
	}{
		"a write is dropped": {func(f *faultyDisk) { f.write = func(b []byte, _ int64) (int, error) { return len(b), nil } },
			func(err error) bool { return problem.Is(err, problem.Unavailable) }},
		"a chunk does not read as written once the cache is flushed": {func(f *faultyDisk) {
			f.readBack = func(b []byte, offset int64, flushed bool) {
				if last := int64(300 * repair.ChunkSize); flushed && offset <= last && last < offset+int64(len(b)) {
					b[last-offset] ^= 1
				}
			}
		}, func(err error) bool { return problem.Is(err, problem.Unavailable) }},
		"a write fails":            {func(f *faultyDisk) { f.write = func([]byte, int64) (int, error) { return 0, broken } }, func(err error) bool { return errors.Is(err, broken) }},
		"the cache is not flushed": {func(f *faultyDisk) { f.flush = func() error { return broken } }, func(err error) bool { return errors.Is(err, broken) }},
	} {
		for i, disk := range []string{"sda", "sdb"} {
			d := newTestDisks(t)
			writes, disks := d.faultyWrites(t)
			c.fault(disks[i])
			if _, err := writeDisks(t.Context(), writes, false); !c.want(err) || !strings.Contains(err.Error(), disk) {
				t.Errorf("%s on %s: %v", name, disk, err)
			}
		}
	}
}

// TestWriteStopsAtForeignContent: what somebody writes to a disk while the repair is being written stays, and nothing more is written to that disk.
func TestWriteStopsAtForeignContent(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	writes := d.writes(t)
	foreign := bytes.Repeat([]byte("theirs!!"), repair.ChunkSize/8)
	const at = 100 * repair.ChunkSize // the third run of sda
	content := writes[0].content
	writes[0].content = func(run chunkRun) ([]byte, error) {
		if run[0].offset == 7*repair.ChunkSize {
			must.OK(t, writeRange(writes[0].name, at, foreign))
		}
		return content(run)
	}
	n, err := writeDisks(t.Context(), writes, false)
	if !problem.Is(err, problem.Conflict) || n != 4 {
		t.Errorf("the write after %d chunks: %v", n, err)
	}
	want := bytes.Clone(d.before[writes[0].name])
	copy(want[:8*repair.ChunkSize], d.after[writes[0].name])
	copy(want[at:], foreign)
	d.wants(t, "after a foreign write", map[string][]byte{writes[0].name: want, writes[1].name: d.before[writes[1].name]})
}

// TestWriteRefusesAChangedOverlay: what is written is what the owner agreed to, whatever the overlay holds by then.
func TestWriteRefusesAChangedOverlay(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	must.OK(t, writeRange(d.disks[0].Overlay, 0, []byte("other")))
	if n, err := writeOverlays(t.Context(), d.chunks, d.disks, func(string) error { return nil }); n != 0 || !problem.Is(err, problem.Conflict) {
		t.Errorf("%d chunks, %v", n, err)
	}
	d.wants(t, "in the end", d.before)
}

// TestWriteIsBoundToTheConsent: only the repair that is open, by the digest that its owner agreed to, is written.
func TestWriteIsBoundToTheConsent(t *testing.T) {
	t.Parallel()
	r := &Repairer{Log: slog.New(slog.DiscardHandler), current: &openRepair{id: "r-1", plan: &repair.Plan{Digest: "agreed"}}}
	for _, c := range []struct {
		id, digest string
		want       problem.Kind
	}{{"r-1", "other", problem.Conflict}, {"r-1", "", problem.Conflict}, {"r-2", "agreed", problem.NotFound}} {
		if w, err := r.Write(t.Context(), c.id, c.digest); !problem.Is(err, c.want) || w != nil {
			t.Errorf("write of %s by %q: %+v, %v", c.id, c.digest, w, err)
		}
	}
	if w := must.Get(r.Write(t.Context(), "r-1", "agreed"))(t); w.At.IsZero() || w.SettingsUndo != "" {
		t.Errorf("a plan without changes: %+v", w)
	}
	for name, err := range map[string]error{
		"images": func() error { _, err := r.Images("r-2", ""); return err }(),
		"files":  func() error { _, err := r.Files("r-2"); return err }(),
	} {
		if !problem.Is(err, problem.NotFound) {
			t.Errorf("%s of another repair: %v", name, err)
		}
	}
	must.OK(t, r.End(t.Context(), "r-2"))
	if r.current == nil {
		t.Error("the end of another repair took down the one that is open")
	}
}

// TestFailedSettingIsNotWritten: a setting of the firmware that fails is an error of the write, so that the control plane puts the disks back.
func TestFailedSettingIsNotWritten(t *testing.T) {
	t.Parallel()
	plan := &repair.Plan{Digest: "agreed", Settings: []repair.Setting{{Kind: "unknown"}}}
	r := &Repairer{Log: slog.New(slog.DiscardHandler), current: &openRepair{id: "r-1", plan: plan}}
	if w, err := r.Write(t.Context(), "r-1", "agreed"); err == nil || w != nil {
		t.Errorf("the write is %+v, %v", w, err)
	}
}

// TestCheckOfAnUndoWritesNothing: the comparison before an exact undo leaves all disks as they are, and the undo after it works.
func TestCheckOfAnUndoWritesNothing(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	images := d.images(t)
	if !d.writeUntil(t, 1000) {
		t.Fatal("the write does not end")
	}
	images.Check = true
	if w := must.Get(restoreImages(t.Context(), d.root, images))(t); w.Chunks != 0 || w.At.IsZero() {
		t.Errorf("the check answers %+v", w)
	}
	d.wants(t, "after the check", d.after)
	images.Check = false
	if w := must.Get(restoreImages(t.Context(), d.root, images))(t); w.Chunks != int64(len(d.chunks)) {
		t.Errorf("the undo answers %+v", w)
	}
	d.wants(t, "after the undo", d.before)
}

// TestUndoFindsItsDisks: before-images go to the disk that they came from. A disk of another size with the same serial number is another disk, and two
// disks that both match are none.
func TestUndoFindsItsDisks(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	larger := d.images(t)
	larger.Disks[0].Size += repair.ChunkSize
	larger.Chunks = larger.Chunks[:4] // without the short one at the end
	if _, err := restoreImages(t.Context(), d.root, larger); !problem.Is(err, problem.NotFound) {
		t.Errorf("a disk of another size: %v", err)
	}
	must.OK(t, os.WriteFile(filepath.Join(d.root, "sys/block/sdb/serial"), []byte("S-sda\n"), 0o644))
	twice := d.images(t)
	if _, err := restoreImages(t.Context(), d.root, twice); !problem.Is(err, problem.Conflict) {
		t.Errorf("two disks with one serial number: %v", err)
	}
	d.wants(t, "in the end", d.before)
}

// TestUndoNeedsTheDiskAlone: nothing is put back on a disk that a mounted file system or an array holds.
func TestUndoNeedsTheDiskAlone(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	images := d.images(t)
	if !d.writeUntil(t, 1000) {
		t.Fatal("the write does not end")
	}
	path := d.plan[0].Path
	out, err := exec.Command("losetup", "--find", "--show", "--direct-io=off", path).CombinedOutput()
	if err != nil {
		t.Skipf("this machine lets nobody make loop devices: %v: %s", err, out)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() { must.OK(t, exec.Command("losetup", "--detach", loop).Run()) })
	must.OK(t, os.Rename(path, path+"-file"))
	must.OK(t, os.Symlink(loop, path))
	holder := must.Get(os.OpenFile(loop, os.O_RDONLY|unix.O_EXCL, 0))(t) // as a mounted file system holds a disk
	if _, err := restoreImages(t.Context(), d.root, images); !errors.Is(err, unix.EBUSY) {
		t.Errorf("an undo on a disk that is in use: %v", err)
	}
	d.wants(t, "while the disk is in use", map[string][]byte{path + "-file": d.after[path], d.plan[1].Path: d.after[d.plan[1].Path]})
	must.OK(t, holder.Close())
	must.Get(restoreImages(t.Context(), d.root, images))(t)
	d.wants(t, "once the disk is free", map[string][]byte{loop: padded(d.before[path]), d.plan[1].Path: d.before[d.plan[1].Path]})
}

// padded is what a loop device shows of a file: whole sectors.
func padded(b []byte) []byte { return b[:len(b)/512*512] }

// TestUnaccountedChunksAreRefused: a plan whose overlays hold a change that it does not show is not offered.
func TestUnaccountedChunksAreRefused(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	noted := func(name string, length int64) repair.BlockChange {
		return repair.BlockChange{Device: name, Length: length}
	}
	one, two := d.disks[0], d.disks[1]
	for name, c := range map[string]struct {
		blocks []repair.BlockChange
		most   int64
		want   problem.Kind
	}{
		"all blocks are shown":             {[]repair.BlockChange{noted(one.Path, one.Size), noted(two.Path, two.Size)}, 12, 0},
		"the last chunks are not":          {[]repair.BlockChange{noted(one.Path, one.Size), noted(two.Path, 200*repair.ChunkSize)}, 12, problem.Conflict},
		"a whole disk is not":              {[]repair.BlockChange{noted(one.Path, one.Size)}, 12, problem.Conflict},
		"all disks have more than allowed": {[]repair.BlockChange{noted(one.Path, one.Size), noted(two.Path, two.Size)}, 11, problem.Unsupported},
	} {
		p := newPlanner(diagnose.Examination{}, diagnose.Examination{})
		p.MaxChanged = c.most * repair.ChunkSize
		p.plan.Blocks = c.blocks
		e, _ := newTestEditor(t)
		e.mounted.Devices = []diagnose.Device{{Path: one.Path, Kind: diagnose.DiskDevice, Size: one.Size}, {Path: two.Path, Kind: diagnose.DiskDevice, Size: two.Size}}
		e.node = func(device string) (string, error) { return device, nil }
		p.editors = []*systemEditor{e}
		chunks, disks, err := p.collectFrom(t.Context(), []examine.CoveredDisk{two, one})
		if c.want != 0 {
			if !problem.Is(err, c.want) || chunks != nil {
				t.Errorf("%s: %d chunks, %v", name, len(chunks), err)
			}
			continue
		}
		must.OK(t, err)
		if len(chunks) != 12 || len(disks) != 2 || len(p.plan.Disks) != 2 || p.plan.Disks[1].Serial != "S-sdb" || p.plan.Digest == "" {
			t.Errorf("%s: %d chunks of %d disks, plan %+v", name, len(chunks), len(disks), p.plan.Disks)
		}
	}
}
