package image

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/lima-vm/go-qcow2reader/image/qcow2"

	"salvor/problem"
)

// Convert writes the content of a qcow2 file to an empty file, sparse, with the disk's virtual size as its length. It refuses
// (Invalid) what is larger than most, reaches outside of the file, or is broken. room is asked before each part that holds data:
// tables that name the same cluster again and again make much data out of a small file. No other program opens the image.
func Convert(ctx context.Context, from *os.File, to *os.File, most int64, room func(n int64) error) (err error) {
	defer func() { // the reader is not ours and the file may be made to break it
		if r := recover(); r != nil {
			err = problem.Invalidf("the qcow2 image is broken: %v", r)
		}
	}()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := checkQcow2(from, info.Size(), most); err != nil {
		return fmt.Errorf("the qcow2 image is not taken: %w", err)
	}
	source, err := qcow2.Open(paddedReader{from, info.Size()}, noBacking)
	if err == nil {
		err = source.Readable()
	}
	if err != nil {
		return problem.Invalidf("the qcow2 image is broken: %w", err)
	}
	end := source.Size()
	if err := to.Truncate(end); err != nil {
		return err
	}
	buffer := make([]byte, mebi)
	for at := int64(0); at < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		extent, err := source.Extent(at, min(end-at, zeroStep))
		if err != nil || extent.Length <= 0 {
			return problem.Invalidf("the qcow2 image is broken at %d: %w", at, unexpectedEOFIfNil(err))
		}
		n := min(extent.Length, end-at)
		if extent.Zero || !extent.Allocated {
			at += n
			continue
		}
		part := buffer[:min(n, mebi)]
		if m, err := source.ReadAt(part, at); m < len(part) {
			return problem.Invalidf("the qcow2 image is broken at %d: %w", at, unexpectedEOFIfNil(err))
		}
		if err := writeData(to, part, at, room); err != nil {
			return err
		}
		at += int64(len(part))
	}
	return nil
}

// dataStep is the unit in which zeros are left out.
const dataStep = 64 << 10

func writeData(to *os.File, part []byte, at int64, room func(n int64) error) error {
	for len(part) > 0 {
		step := part[:min(dataStep, len(part))]
		if !isAllZeros(step) {
			if err := room(int64(len(step))); err != nil {
				return err
			}
			if _, err := to.WriteAt(step, at); err != nil {
				return err
			}
		}
		part, at = part[len(step):], at+int64(len(step))
	}
	return nil
}

func isAllZeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func unexpectedEOFIfNil(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}
