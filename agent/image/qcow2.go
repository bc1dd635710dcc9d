package image

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/lima-vm/go-qcow2reader/image"
	"github.com/lima-vm/go-qcow2reader/image/qcow2"

	"salvor/problem"
	wire "salvor/wire/agent"
)

// Bounds of a qcow2 header, as qemu's, and what of it is refused.
const (
	minClusterBits = 9
	maxClusterBits = 21
	maxL1          = 32 * mebi
	maxExtensions  = 64
	headerV2       = 72
	headerV3       = 104

	extData  = 0x44415441 // the name of an external data file
	extCrypt = 0x0537be77
)

// features that make an image one that is not converted, by bit; a bit that is not
// here and not 0 (dirty: its reference counts are, which nobody reads) or 3 is unknown.
var refused = map[int]string{
	1: "it is marked as corrupt",
	2: "it has an external data file",
	4: "it has extended L2 entries, which are not read: convert it with qemu-img convert -O qcow2 -o extended_l2=off",
}

// checkQcow2 reads the header with its extensions and refuses what reaches outside of
// the file, what is encrypted, and what nobody here knows. room is the disk's size.
func checkQcow2(r io.ReaderAt, size, room int64) error {
	head := make([]byte, headerV3+1)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n < headerV2 {
		return problem.Invalidf("its header is cut off")
	}
	be := binary.BigEndian
	version, bits := be.Uint32(head[4:]), be.Uint32(head[20:])
	virtual, l1, l1At := be.Uint64(head[24:]), be.Uint32(head[36:]), be.Uint64(head[40:])
	switch {
	case string(head[:4]) != qcow2.Magic:
		return problem.Invalidf("it is no qcow2")
	case version != 2 && version != 3:
		return problem.Invalidf("its version is %d, want 2 or 3", version)
	case be.Uint64(head[8:]) != 0 || be.Uint32(head[16:]) != 0:
		return problem.Invalidf("it has a backing file, which is never read")
	case be.Uint32(head[32:]) != 0:
		return problem.Invalidf("it is encrypted")
	case bits < minClusterBits || bits > maxClusterBits:
		return problem.Invalidf("its clusters are of 2^%d bytes", bits)
	case virtual == 0 || virtual > uint64(room):
		return problem.Invalidf("its virtual size is %d bytes, the disk has %d", virtual, room)
	case int64(l1)*8 > maxL1 || l1At == 0 || l1At%(1<<bits) != 0 || l1At > uint64(size) || uint64(l1)*8 > uint64(size)-l1At:
		return problem.Invalidf("its L1 table of %d entries does not lie in the file of %d bytes", l1, size)
	}
	covered := uint64(1) << (2*bits - 3)
	if uint64(l1) < (virtual+covered-1)/covered {
		return problem.Invalidf("its L1 table of %d entries is too short for %d bytes", l1, virtual)
	}
	length := int64(headerV2)
	if version == 3 {
		if length, err = checkV3(head, n); err != nil {
			return err
		}
	}
	return checkExtensions(r, length, min(size, int64(1)<<bits))
}

func checkV3(head []byte, n int) (int64, error) {
	if n < headerV3 {
		return 0, problem.Invalidf("its header is cut off")
	}
	features, length := binary.BigEndian.Uint64(head[72:]), binary.BigEndian.Uint32(head[100:])
	for bit := range 64 {
		if features>>bit&1 == 0 || bit == 0 || bit == 3 {
			continue
		}
		if why, ok := refused[bit]; ok {
			return 0, problem.Invalidf("%s", why)
		}
		return 0, problem.Invalidf("it needs feature %d, which nobody here knows", bit)
	}
	if length < headerV3 || length > 4096 || length%8 != 0 {
		return 0, problem.Invalidf("its header claims %d bytes", length)
	}
	zstd := length > headerV3 && n > headerV3 && head[104] != 0
	if zstd || features>>3&1 == 1 {
		return 0, problem.Invalidf("its clusters are compressed with another algorithm than zlib: convert it with qemu-img convert -O qcow2 -o compression_type=zlib")
	}
	return int64(length), nil
}

// checkExtensions walks the header extensions, which end in the first cluster.
func checkExtensions(r io.ReaderAt, at, end int64) error {
	for range maxExtensions {
		head := make([]byte, 8)
		if at+8 > end {
			return nil
		}
		if _, err := r.ReadAt(head, at); err != nil {
			return fmt.Errorf("header extensions: %w", err)
		}
		kind, length := binary.BigEndian.Uint32(head), int64(binary.BigEndian.Uint32(head[4:]))
		switch kind {
		case 0:
			return nil
		case extData:
			return problem.Invalidf("it names an external data file, which is never read")
		case extCrypt:
			return problem.Invalidf("it is encrypted")
		}
		if length > end-at-8 {
			return problem.Invalidf("a header extension claims %d bytes", length)
		}
		at += 8 + (length+7)/8*8
	}
	return problem.Invalidf("it has more than %d header extensions", maxExtensions)
}

// qcow2 has the file verified before it looks into it, in memory or from the server.
func (j *imageWrite) qcow2(ctx context.Context, s *imageStream, text string) error {
	file, err := j.spool(ctx, s, text)
	if err != nil {
		return err
	}
	defer file.close()
	return j.convert(ctx, file, file.size)
}

// convert writes the content of a verified file.
func (j *imageWrite) convert(ctx context.Context, file io.ReaderAt, size int64) (err error) {
	defer func() { // the reader is not ours and the file may be made to break it
		if r := recover(); r != nil {
			err = newFailure(wire.ErrImage, "image %s: its qcow2 is broken: %v", j.info.ID, r)
		}
	}()
	err = checkQcow2(file, size, j.to.Size())
	if problem.Is(err, problem.Invalid) {
		return newFailure(wire.ErrImage, "image %s: %w", j.info.ID, err)
	}
	if err != nil {
		return j.broken(0, err)
	}
	source, err := qcow2.Open(paddedReader{file, size}, noBacking)
	if err == nil {
		err = source.Readable()
	}
	if err != nil {
		return j.broken(0, err)
	}
	end := source.Size()
	for at := int64(held); at < end; at += zeroStep {
		j.reached = min(at+zeroStep, end)
		if err := j.copyOut(ctx, source, at, j.reached); err != nil {
			return err
		}
	}
	head := make([]byte, min(held, end))
	if n, err := source.ReadAt(head, 0); n < len(head) {
		return j.broken(0, err)
	}
	j.reached = max(j.reached, int64(len(head)))
	return j.finish(head)
}

// zeroStep is the part of an image that is looked at in one go.
const zeroStep = 32 * mebi

// copyOut copies one part; what the image does not hold is zero on the disk too.
func (j *imageWrite) copyOut(ctx context.Context, source *qcow2.Qcow2, at, end int64) error {
	buffer := make([]byte, mebi)
	for at < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		extent, err := source.Extent(at, end-at)
		if err != nil || extent.Length <= 0 {
			return j.broken(at, err)
		}
		n := min(extent.Length, end-at)
		if extent.Zero || !extent.Allocated {
			if err := j.to.Zero(at, n); err != nil {
				return newFailure(wire.ErrWrite, "image %s: %w", j.info.ID, err)
			}
			at += n
			continue
		}
		part := buffer[:min(n, mebi)]
		if m, err := source.ReadAt(part, at); m < len(part) {
			return j.broken(at, err)
		}
		if _, err := j.to.WriteAt(part, at); err != nil {
			return newFailure(wire.ErrWrite, "image %s: %w", j.info.ID, err)
		}
		at += int64(len(part))
	}
	return nil
}

// broken says that content cannot be read: of a verified file, so it was made that
// way, or because the server fails the second time.
func (j *imageWrite) broken(at int64, err error) error {
	var again *transientError
	if errors.As(err, &again) {
		return again
	}
	var known *Failure
	if errors.As(err, &known) {
		return known
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return newFailure(wire.ErrImage, "image %s: its qcow2 is broken or cut off: at %d: %w", j.info.ID, at, err)
}

func noBacking(io.ReaderAt, image.Type) (image.Image, error) {
	return nil, errors.New("a backing file is never read")
}

// paddedReader reads zeros in the rest of the file's last sector, which compressed clusters
// may claim, and nothing beyond it.
type paddedReader struct {
	io.ReaderAt
	size int64
}

func (p paddedReader) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off >= p.size {
		return 0, io.EOF
	}
	have := min(int64(len(b)), p.size-off)
	n, err := p.ReaderAt.ReadAt(b[:have], off)
	if int64(n) < have || int64(len(b)) == have {
		if int64(n) == have {
			err = nil
		}
		return n, err
	}
	whole := (p.size + 511) / 512 * 512
	more := min(int64(len(b)), whole-off)
	clear(b[have:more])
	if more < int64(len(b)) {
		return int(more), fmt.Errorf("%d bytes at %d are past its end at %d: %w", len(b), off, p.size, io.EOF)
	}
	return int(more), nil
}
