package repair

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"

	"salvor/agent/disk"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
	wire "salvor/wire/agent"
)

const (
	// maxPage bounds the contents of a page before they are compressed, in bytes.
	maxPage = 2 << 20
	// maxRestoreChunks and maxRestoreDisks bound what one page may name.
	maxRestoreChunks = 4 * maxPage / repair.ChunkSize
	maxRestoreDisks  = 64
)

// harmless is a serial number or a WWN as a plan shows it.
func harmless(text *string) string {
	if text == nil {
		return ""
	}
	return diagnose.Excerpt(*text)
}

// imagePage reads the page of before-images that begins at a chunk.
func imagePage(chunks []changedChunk, disks []repair.DiskChange, cursor string) (*wire.ImagePage, error) {
	begin := 0
	if cursor != "" {
		n, err := strconv.Atoi(cursor)
		if err != nil || n < 0 || n > len(chunks) {
			return nil, problem.Invalidf("cursor %.40q is none of this repair", cursor)
		}
		begin = n
	}
	end := min(begin+maxPage/repair.ChunkSize, len(chunks))
	page := &wire.ImagePage{Chunks: []wire.ImageChunk{}}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer encoder.Close()
	for _, part := range splitByDisk(chunks[begin:end]) {
		d := disks[part[0].disk]
		f, err := openDirect(d.Path, os.O_RDONLY)
		if err != nil {
			return nil, err
		}
		for _, run := range groupChunks(part) {
			err = f.eachContent(run, func(c *changedChunk, content []byte) error {
				if sha256.Sum256(content) != c.before {
					return problem.Conflictf("%s: the %d bytes at %d have changed since the plan was made: plan the repair again", d.Path, c.length, c.offset)
				}
				page.Chunks = append(page.Chunks, wire.ImageChunk{Disk: c.disk, Offset: c.offset, Before: encoder.EncodeAll(content, nil), Length: c.length, After: c.after[:]})
				return nil
			})
			if err != nil {
				break
			}
		}
		_ = f.Close() // it was only read
		if err != nil {
			return nil, err
		}
	}
	if end < len(chunks) {
		page.Next = strconv.Itoa(end)
	}
	return page, nil
}

// restoredImages are the chunks of a page with their contents.
type restoredImages struct {
	chunks   []changedChunk
	contents map[imagePlace][]byte
}

type imagePlace struct {
	disk   int
	offset int64
}

// decodeImages reads a page and checks all that it says.
func decodeImages(p wire.RestoreImagesParams) (*restoredImages, error) {
	switch {
	case len(p.Disks) == 0 || len(p.Disks) > maxRestoreDisks:
		return nil, problem.Invalidf("parameter disks names %d disks, and 1 to %d are taken", len(p.Disks), maxRestoreDisks)
	case len(p.Chunks) == 0 || len(p.Chunks) > maxRestoreChunks:
		return nil, problem.Invalidf("parameter chunks has %d chunks, and 1 to %d are taken", len(p.Chunks), maxRestoreChunks)
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<10))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	out := &restoredImages{contents: map[imagePlace][]byte{}}
	for i, c := range p.Chunks {
		if c.Disk < 0 || c.Disk >= len(p.Disks) {
			return nil, problem.Invalidf("chunk %d is of disk %d of %d", i, c.Disk, len(p.Disks))
		}
		size := p.Disks[c.Disk].Size
		if c.Offset < 0 || c.Offset%repair.ChunkSize != 0 || c.Offset >= size || int64(c.Length) != min(repair.ChunkSize, size-c.Offset) || len(c.After) != sha256.Size {
			return nil, problem.Invalidf("chunk %d: %d bytes at %d are no chunk of a disk of %d bytes", i, c.Length, c.Offset, size)
		}
		content, err := decoder.DecodeAll(c.Before, make([]byte, 0, repair.ChunkSize))
		if err != nil || len(content) != c.Length {
			return nil, problem.Invalidf("chunk %d: its content before is not %d bytes in zstd", i, c.Length)
		}
		at := imagePlace{c.Disk, c.Offset}
		if out.contents[at] != nil {
			return nil, problem.Invalidf("chunk %d is named twice", i)
		}
		out.contents[at] = content
		out.chunks = append(out.chunks, changedChunk{disk: c.Disk, offset: c.Offset, length: c.Length, before: sha256.Sum256(content), after: [sha256.Size]byte(c.After)})
	}
	slices.SortFunc(out.chunks, func(a, b changedChunk) int {
		if a.disk != b.disk {
			return a.disk - b.disk
		}
		return int(min(max(a.offset-b.offset, -1), 1))
	})
	return out, nil
}

// findDisk finds a disk of the plan among those of the machine, by serial, WWN and size, or by its name where it has neither.
func findDisk(found []disk.Found, want wire.RestoreDisk) (string, error) {
	matches := func(f disk.Found) bool {
		if f.Size != want.Size {
			return false
		}
		if want.Serial == "" && want.WWN == "" {
			return f.Name == want.Path && f.Serial == nil && f.WWN == nil
		}
		return harmless(f.Serial) == want.Serial && harmless(f.WWN) == want.WWN
	}
	var names []string
	for _, f := range found {
		if matches(f) {
			names = append(names, f.Name)
		}
	}
	switch len(names) {
	case 0:
		return "", problem.NotFoundf("disk %s (serial %q, WWN %q, %d bytes) is not in this machine", want.Path, want.Serial, want.WWN, want.Size)
	case 1:
		return names[0], nil
	}
	return "", problem.Conflictf("disk %s (serial %q, WWN %q) may be each of %q", want.Path, want.Serial, want.WWN, names)
}

// restoreImages writes a page of before-images back to the disks below root, or only compares. All disks are compared before the first write.
func restoreImages(ctx context.Context, root string, p wire.RestoreImagesParams) (*wire.WrittenRepair, error) {
	images, err := decodeImages(p)
	if err != nil {
		return nil, err
	}
	found, err := disk.List(root)
	if err != nil {
		return nil, err
	}
	var disks []*diskWrite
	for _, part := range splitByDisk(images.chunks) {
		name, err := findDisk(found, p.Disks[part[0].disk])
		if err != nil {
			return nil, err
		}
		f, err := openDirect(filepath.Join("/", root, name), os.O_RDWR|os.O_EXCL) // nobody else uses the disk
		if err != nil {
			return nil, err
		}
		defer f.Close()
		buffer := alignedBuffer(maxTransfer)
		content := func(run chunkRun) ([]byte, error) {
			b := buffer[:run.length()]
			for _, c := range run {
				copy(b[c.offset-run[0].offset:], images.contents[imagePlace{c.disk, c.offset}])
			}
			return b, nil
		}
		disks = append(disks, &diskWrite{chunkWriter: chunkWriter{disk: f, name: name, content: content}, chunks: part})
	}
	answer := &wire.WrittenRepair{}
	if p.Check {
		err = compareDisks(ctx, disks, true)
	} else {
		answer.Chunks, err = writeDisks(ctx, disks, true)
	}
	if err != nil {
		return nil, err
	}
	answer.At = time.Now().UTC()
	return answer, nil
}
