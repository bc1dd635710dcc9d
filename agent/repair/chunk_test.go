package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"salvor/agent/examine"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

// testDisks are two disks as files below a root, each with an overlay that changes some chunks.
type testDisks struct {
	root   string
	before map[string][]byte
	after  map[string][]byte
	plan   []repair.DiskChange
	chunks []changedChunk
	disks  []examine.CoveredDisk
}

func newTestDisks(t *testing.T) *testDisks {
	t.Helper()
	d := &testDisks{root: t.TempDir(), before: map[string][]byte{}, after: map[string][]byte{}}
	const size = 300*repair.ChunkSize + 512 // the last chunk is short
	for i, name := range []string{"sda", "sdb"} {
		before := bytes.Repeat([]byte{byte('a' + i)}, size)
		after := bytes.Clone(before)
		var offsets []int64
		for _, chunk := range []int64{0, 1, 2, 7, 100, 300} {
			after[chunk*repair.ChunkSize+11] = 'X'
			offsets = append(offsets, chunk*repair.ChunkSize)
		}
		offsets = append(offsets[:4:4], append([]int64{50 * repair.ChunkSize}, offsets[4:]...)...) // equal to the origin
		block := filepath.Join(d.root, "sys/block", name)
		must.OK(t, os.MkdirAll(filepath.Join(block, "device"), 0o755))
		must.OK(t, os.MkdirAll(filepath.Join(d.root, "dev"), 0o755))
		must.OK(t, os.WriteFile(filepath.Join(block, "size"), fmt.Appendf(nil, "%d\n", size/512), 0o644))
		must.OK(t, os.WriteFile(filepath.Join(block, "serial"), []byte("S-"+name+"\n"), 0o644))
		path, overlay := filepath.Join(d.root, "dev", name), filepath.Join(d.root, "overlay-"+name)
		must.OK(t, os.WriteFile(path, before, 0o600))
		must.OK(t, os.WriteFile(overlay, after, 0o600))
		d.before[path], d.after[path] = before, after
		covered := examine.CoveredDisk{Path: path, Serial: "S-" + name, Size: size, Overlay: overlay, Chunks: offsets}
		chunks := must.Get(compareDisk(t.Context(), i, covered, 100))(t)
		if len(chunks) != 6 || chunks[5].length != 512 {
			t.Fatalf("%d chunks", len(chunks))
		}
		d.chunks = append(d.chunks, chunks...)
		d.disks = append(d.disks, covered)
		d.plan = append(d.plan, repair.DiskChange{Path: path, Serial: covered.Serial, Size: size, Chunks: 6})
	}
	return d
}

// images reads all before-images in pages.
func (d *testDisks) images(t *testing.T) wire.RestoreImagesParams {
	t.Helper()
	p := wire.RestoreImagesParams{}
	for _, disk := range d.plan {
		p.Disks = append(p.Disks, wire.RestoreDisk{Path: "/dev/other", Serial: disk.Serial, Size: disk.Size})
	}
	page := must.Get(imagePage(d.chunks, d.plan, ""))(t)
	if page.Next != "" {
		t.Errorf("next %q", page.Next)
	}
	p.Chunks = page.Chunks
	return p
}

// wants compares the disks with what they shall hold.
func (d *testDisks) wants(t *testing.T, when string, contents map[string][]byte) {
	t.Helper()
	for path, want := range contents {
		if !bytes.Equal(must.Get(os.ReadFile(path))(t), want) {
			t.Errorf("%s: %s differs", when, path)
		}
	}
}

// writeUntil writes the repair and ends, as a kill does, before that many runs of chunks were written. Without an end it is done.
func (d *testDisks) writeUntil(t *testing.T, runs int) (done bool) {
	t.Helper()
	killed := errors.New("killed")
	disks := d.writes(t)
	for _, w := range disks {
		content := w.content
		w.content = func(run chunkRun) ([]byte, error) {
			if runs--; runs < 0 {
				return nil, killed
			}
			return content(run)
		}
	}
	_, err := writeDisks(t.Context(), disks, false)
	for _, w := range disks {
		must.OK(t, w.disk.Close())
	}
	if errors.Is(err, killed) {
		return false
	}
	must.OK(t, err)
	return true
}

// writes opens all disks and overlays; the caller closes the disks.
func (d *testDisks) writes(t *testing.T) []*diskWrite {
	t.Helper()
	var out []*diskWrite
	for _, part := range splitByDisk(d.chunks) {
		disk := d.disks[part[0].disk]
		f := must.Get(openDirect(disk.Path, os.O_RDWR))(t)
		overlay := must.Get(openDirect(disk.Overlay, os.O_RDONLY))(t)
		t.Cleanup(func() { _ = overlay.Close() })
		out = append(out, &diskWrite{chunkWriter: chunkWriter{disk: f, name: disk.Path, content: overlayContent(overlay, overlay.buffer, disk.Path)}, chunks: part})
	}
	return out
}

// TestKilledWriteEndsAsBeforeOrAfter: wherever a write is killed, writing again ends as after the repair, and restoring as before it.
func TestKilledWriteEndsAsBeforeOrAfter(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	images := d.images(t)
	for runs := 0; ; runs++ {
		done := d.writeUntil(t, runs)
		must.Get(restoreImages(t.Context(), d.root, images))(t)
		d.wants(t, fmt.Sprintf("restored after %d runs", runs), d.before)
		d.writeUntil(t, runs)
		if !d.writeUntil(t, 1000) {
			t.Fatal("the write does not end")
		}
		d.wants(t, fmt.Sprintf("written after %d runs", runs), d.after)
		if n := must.Get(restoreImages(t.Context(), d.root, images))(t).Chunks; n < int64(len(d.chunks)) {
			t.Errorf("%d of %d chunks are restored", n, len(d.chunks))
		}
		if n := must.Get(restoreImages(t.Context(), d.root, images))(t).Chunks; n != 0 {
			t.Errorf("a second restore writes %d chunks", n)
		}
		d.wants(t, "restored", d.before)
		if done {
			if runs != 8 { // 0-2, 7, 100 and 300 of each disk
				t.Errorf("%d runs", runs)
			}
			return
		}
	}
}

// TestOthersWriteToTheDisk: where a chunk holds a third content, nothing is written at all.
func TestOthersWriteToTheDisk(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	images := d.images(t)
	last := d.plan[1].Path
	b := bytes.Clone(d.before[last])
	b[len(b)-1] = '?'
	must.OK(t, os.WriteFile(last, b, 0o600))
	for _, check := range []bool{true, false} {
		images.Check = check
		if _, err := restoreImages(t.Context(), d.root, images); !problem.Is(err, problem.Conflict) {
			t.Errorf("restore: %v", err)
		}
	}
	// What somebody else wrote to the last disk keeps the first one from being written too.
	writable := func(string) error { return nil }
	if n, err := writeOverlays(t.Context(), d.chunks, d.disks, writable); n != 0 || !problem.Is(err, problem.Conflict) {
		t.Errorf("write: %d, %v", n, err)
	}
	refused := errors.New("no disk may be written")
	if _, err := writeOverlays(t.Context(), d.chunks, d.disks, func(string) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("write to a disk that is read-only: %v", err)
	}
	if _, err := imagePage(d.chunks, d.plan, ""); !problem.Is(err, problem.Conflict) {
		t.Errorf("images: %v", err)
	}
	d.wants(t, "in the end", map[string][]byte{d.plan[0].Path: d.before[d.plan[0].Path], last: b})
}

// TestRestoreRefuses what a page may not say.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	d := newTestDisks(t)
	for name, c := range map[string]struct {
		change func(*wire.RestoreImagesParams)
		want   problem.Kind
	}{
		"no disks":      {func(p *wire.RestoreImagesParams) { p.Disks = nil }, problem.Invalid},
		"no chunks":     {func(p *wire.RestoreImagesParams) { p.Chunks = nil }, problem.Invalid},
		"another disk":  {func(p *wire.RestoreImagesParams) { p.Chunks[0].Disk = 2 }, problem.Invalid},
		"negative":      {func(p *wire.RestoreImagesParams) { p.Chunks[0].Offset = -repair.ChunkSize }, problem.Invalid},
		"not aligned":   {func(p *wire.RestoreImagesParams) { p.Chunks[0].Offset = 512 }, problem.Invalid},
		"past the end":  {func(p *wire.RestoreImagesParams) { p.Chunks[0].Offset = 301 * repair.ChunkSize }, problem.Invalid},
		"other length":  {func(p *wire.RestoreImagesParams) { p.Chunks[0].Length = 512 }, problem.Invalid},
		"no zstd":       {func(p *wire.RestoreImagesParams) { p.Chunks[0].Before = []byte("abc") }, problem.Invalid},
		"short content": {func(p *wire.RestoreImagesParams) { p.Chunks[0].Before = p.Chunks[5].Before }, problem.Invalid},
		"no sum":        {func(p *wire.RestoreImagesParams) { p.Chunks[0].After = nil }, problem.Invalid},
		"named twice":   {func(p *wire.RestoreImagesParams) { p.Chunks[1].Offset = p.Chunks[0].Offset }, problem.Invalid},
		"other serial":  {func(p *wire.RestoreImagesParams) { p.Disks[0].Serial = "T" }, problem.NotFound},
		"other WWN":     {func(p *wire.RestoreImagesParams) { p.Disks[0].WWN = "0x1" }, problem.NotFound},
		"name only":     {func(p *wire.RestoreImagesParams) { p.Disks[0].Serial, p.Disks[0].Path = "", "/dev/sda" }, problem.NotFound},
	} {
		p := d.images(t)
		c.change(&p)
		if _, err := restoreImages(t.Context(), d.root, p); !problem.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := restoreImages(cancelled, d.root, d.images(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	d.wants(t, "in the end", d.before)
}

// TestPagesOfImages: cursors lead through all chunks, and a repair that is too large is refused.
func TestPagesOfImages(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk")
	overlay := path + "-overlay"
	const count = maxPage/repair.ChunkSize + 3
	must.OK(t, os.WriteFile(path, make([]byte, count*repair.ChunkSize), 0o600))
	must.OK(t, os.WriteFile(overlay, bytes.Repeat([]byte{1}, count*repair.ChunkSize), 0o600))
	covered := examine.CoveredDisk{Path: path, Size: count * repair.ChunkSize, Overlay: overlay}
	for i := range int64(count) {
		covered.Chunks = append(covered.Chunks, i*repair.ChunkSize)
	}
	if _, err := compareDisk(t.Context(), 0, covered, count-1); !problem.Is(err, problem.Unsupported) {
		t.Errorf("too many chunks: %v", err)
	}
	chunks := must.Get(compareDisk(t.Context(), 0, covered, count))(t)
	disks := []repair.DiskChange{{Path: path}}
	first := must.Get(imagePage(chunks, disks, ""))(t)
	second := must.Get(imagePage(chunks, disks, first.Next))(t)
	if len(first.Chunks) != maxPage/repair.ChunkSize || len(second.Chunks) != 3 || second.Next != "" || second.Chunks[0].Offset != maxPage {
		t.Errorf("%d and %d chunks, next %q", len(first.Chunks), len(second.Chunks), second.Next)
	}
	for _, cursor := range []string{"x", "-1", "9999999"} {
		if _, err := imagePage(chunks, disks, cursor); !problem.Is(err, problem.Invalid) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

func TestConsents(t *testing.T) {
	t.Parallel()
	if got := must.Get(ParseConsents([]string{"files", "boot", "settings"}))(t); len(got) != 3 || got[1] != diagnose.ConsentBoot {
		t.Errorf("%q", got)
	}
	if _, err := ParseConsents([]string{"data"}); !problem.Is(err, problem.Invalid) {
		t.Errorf("data: %v", err)
	}
}
