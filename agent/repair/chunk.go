package repair

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"salvor/agent/examine"
	"salvor/problem"
	"salvor/repair"
)

// maxTransfer bounds one request to a disk, in bytes.
const maxTransfer = 1 << 20

// changedChunk is a chunk of a disk with the sums of its two contents.
type changedChunk struct {
	disk          int // in the plan's list
	offset        int64
	length        int
	before, after [sha256.Size]byte
}

// blockDevice is what a repair does with an open disk. It is an *os.File but for tests of disks that lose what they were given.
type blockDevice interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
	Name() string
}

// blockFile is a disk or an overlay. Its reads and writes pass the cache of the kernel by.
type blockFile struct {
	blockDevice
	buffer []byte // aligned in memory, as direct transfers need it
}

// openDirect opens a block device, or a regular file on a file system that takes direct transfers.
func openDirect(path string, flags int) (*blockFile, error) {
	f, err := os.OpenFile(path, flags|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &blockFile{f, alignedBuffer(maxTransfer)}, nil
}

// alignedBuffer returns bytes at an address that every disk takes.
func alignedBuffer(size int) []byte {
	b := make([]byte, size+repair.ChunkSize)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (repair.ChunkSize - 1))
	return b[skip : skip+size]
}

// read returns a range that lies within the buffer's size. It is valid until the next call.
func (f *blockFile) read(offset int64, length int) ([]byte, error) {
	b := f.buffer[:length]
	if _, err := f.ReadAt(b, offset); err != nil {
		return nil, fmt.Errorf("%s: read %d bytes at %d: %w", f.Name(), length, offset, err)
	}
	return b, nil
}

// chunkRun is chunks that follow each other on a disk.
type chunkRun []changedChunk

func (r chunkRun) length() int {
	last := r[len(r)-1]
	return int(last.offset-r[0].offset) + last.length
}

// groupChunks cuts sorted chunks into runs of at most maxTransfer bytes.
func groupChunks(chunks []changedChunk) []chunkRun {
	var runs []chunkRun
	begin := 0
	for i := 1; i <= len(chunks); i++ {
		if i < len(chunks) && chunks[i].disk == chunks[begin].disk && chunks[i].offset == chunks[i-1].offset+repair.ChunkSize && chunks[i].offset-chunks[begin].offset < maxTransfer {
			continue
		}
		runs = append(runs, chunks[begin:i])
		begin = i
	}
	return runs
}

// eachContent calls see with each chunk of a run and its content on a disk.
func (f *blockFile) eachContent(run chunkRun, see func(c *changedChunk, content []byte) error) error {
	b, err := f.read(run[0].offset, run.length())
	if err != nil {
		return err
	}
	for i := range run {
		at := run[i].offset - run[0].offset
		if err := see(&run[i], b[at:at+int64(run[i].length)]); err != nil {
			return err
		}
	}
	return nil
}

// compareDisk returns the chunks of a disk whose content differs from the overlay's. most bounds their number.
func compareDisk(ctx context.Context, number int, d examine.CoveredDisk, most int64) (changed []changedChunk, err error) {
	origin, err := openDirect(d.Path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer origin.Close()
	overlay, err := openDirect(d.Overlay, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer overlay.Close()
	written := make([]changedChunk, 0, len(d.Chunks))
	for _, offset := range d.Chunks {
		written = append(written, changedChunk{disk: number, offset: offset, length: int(min(repair.ChunkSize, d.Size-offset))})
	}
	for _, run := range groupChunks(written) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		after, err := overlay.read(run[0].offset, run.length())
		if err != nil {
			return nil, err
		}
		err = origin.eachContent(run, func(c *changedChunk, before []byte) error {
			at := c.offset - run[0].offset
			content := after[at : at+int64(c.length)]
			if bytes.Equal(before, content) {
				return nil
			}
			c.before, c.after = sha256.Sum256(before), sha256.Sum256(content)
			if int64(len(changed)) == most {
				return problem.Unsupportedf("%s: the repair changes more than %d chunks of %d bytes", d.Path, most, repair.ChunkSize)
			}
			changed = append(changed, *c)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// chunkWriter writes chunks to one disk.
type chunkWriter struct {
	disk *blockFile
	name string
	// content returns what a run shall hold.
	content func(run chunkRun) ([]byte, error)
}

// wantedSum is the sum of what a chunk shall hold: as before the repair with restore, otherwise as after it.
func wantedSum(restore bool) func(*changedChunk) [sha256.Size]byte {
	return func(c *changedChunk) [sha256.Size]byte {
		if restore {
			return c.before
		}
		return c.after
	}
}

// diskWrite is what is written to one disk.
type diskWrite struct {
	chunkWriter
	chunks []changedChunk
	dirty  []chunkRun // which differ from what they shall hold
}

// compareDisks finds what is to be written. problem.Conflict: a chunk of any disk holds neither of its two contents.
func compareDisks(ctx context.Context, disks []*diskWrite, restore bool) error {
	wanted := wantedSum(restore)
	for _, d := range disks {
		d.dirty = nil
		for _, run := range groupChunks(d.chunks) {
			differs, err := d.compare(ctx, run, wanted)
			if err != nil {
				return err
			}
			if differs {
				d.dirty = append(d.dirty, run)
			}
		}
	}
	return nil
}

// writeDisks brings all chunks of all disks to what they shall hold, and reads them back. Nothing is written to any disk where a chunk of one holds
// anything but its two contents. It returns how many chunks it wrote.
func writeDisks(ctx context.Context, disks []*diskWrite, restore bool) (int64, error) {
	if err := compareDisks(ctx, disks, restore); err != nil {
		return 0, err
	}
	var written int64
	for _, d := range disks {
		n, err := d.write(ctx, restore)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// write writes the dirty runs of a disk and reads all of its chunks back.
func (d *diskWrite) write(ctx context.Context, restore bool) (int64, error) {
	wanted := wantedSum(restore)
	var written int64
	for _, run := range d.dirty {
		// Each run is compared again, because time has passed.
		if _, err := d.compare(ctx, run, wanted); err != nil {
			return written, err
		}
		content, err := d.content(run)
		if err != nil {
			return written, err
		}
		if _, err := d.disk.WriteAt(content, run[0].offset); err != nil {
			return written, fmt.Errorf("%s: write %d bytes at %d: %w", d.name, len(content), run[0].offset, err)
		}
		written += int64(len(run))
	}
	if err := d.disk.Sync(); err != nil {
		return written, fmt.Errorf("%s: flush its cache: %w", d.name, err)
	}
	for _, run := range groupChunks(d.chunks) {
		err := d.disk.eachContent(run, func(c *changedChunk, content []byte) error {
			if sha256.Sum256(content) != wanted(c) {
				return problem.Unavailablef("%s: the %d bytes at %d do not read as they were written: the disk may be failing", d.name, c.length, c.offset)
			}
			return nil
		})
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// compare says whether a run holds anything that is to be written. problem.Conflict: it holds neither content.
func (w chunkWriter) compare(ctx context.Context, run chunkRun, wanted func(*changedChunk) [sha256.Size]byte) (differs bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	err = w.disk.eachContent(run, func(c *changedChunk, content []byte) error {
		sum := sha256.Sum256(content)
		if sum != c.before && sum != c.after {
			return problem.Conflictf("%s: the %d bytes at %d are neither what they were before the repair nor what it writes: something else wrote to the disk, and nothing more is written", w.name, c.length, c.offset)
		}
		differs = differs || sum != wanted(c)
		return nil
	})
	return differs, err
}

// overlayContent reads what a repair writes from the overlay of a disk.
func overlayContent(overlay io.ReaderAt, buffer []byte, name string) func(chunkRun) ([]byte, error) {
	return func(run chunkRun) ([]byte, error) {
		b := buffer[:run.length()]
		if _, err := overlay.ReadAt(b, run[0].offset); err != nil {
			return nil, fmt.Errorf("%s: read its overlay: %w", name, err)
		}
		for _, c := range run {
			at := c.offset - run[0].offset
			if sha256.Sum256(b[at:at+int64(c.length)]) != c.after {
				return nil, problem.Conflictf("%s: the overlay has changed since the plan was made: plan the repair again", name)
			}
		}
		return b, nil
	}
}

// splitByDisk cuts chunks that are sorted by disk into those of each disk.
func splitByDisk(chunks []changedChunk) [][]changedChunk {
	var out [][]changedChunk
	begin := 0
	for i := 1; i <= len(chunks); i++ {
		if i < len(chunks) && chunks[i].disk == chunks[begin].disk {
			continue
		}
		out = append(out, chunks[begin:i])
		begin = i
	}
	return out
}
