package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"salvor/agent/image"
	"salvor/problem"
)

// toRaw writes an image to a new raw file of at least size bytes and has it on the disk; size 0 asks for the image's own, which
// is at most maxRescue. An image that is larger is Invalid. The format is the one that was
// recorded, never guessed from the bytes: a guest could write whatever makes a guess go wrong.
func toRaw(ctx context.Context, from, format, to string, size int64) error {
	var err error
	most := size
	if size == 0 {
		most = maxRescue
	}
	switch format {
	case rawFormat, "iso", "aki", "ari", "":
		err = copySparse(ctx, from, to, most)
	case "qcow2":
		err = convertQcow2Image(ctx, from, to, most)
	default:
		return problem.Unsupportedf("images of format %.20q are not taken; want raw or qcow2", format)
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size > info.Size() {
		if err := f.Truncate(size); err != nil {
			return err
		}
	}
	return f.Sync()
}

func tooLarge(have, size int64) error {
	return problem.Invalidf("the image is a disk of %d bytes and does not fit into %d", have, size)
}

const copyStep = 1 << 20

// copySparse copies a file; what is zero takes no room.
func copySparse(ctx context.Context, from, to string, size int64) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if info.Size() > size {
		return tooLarge(info.Size(), size)
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	buffer, zero := make([]byte, copyStep), make([]byte, copyStep)
	room := roomOf(dst)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := src.ReadAt(buffer, at)
		if n > 0 && !bytes.Equal(buffer[:n], zero[:n]) {
			if err := room(int64(n)); err != nil {
				return err
			}
			if _, err := dst.WriteAt(buffer[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// convertQcow2Image reads a qcow2 image in this process, as the ramdisk's agent does: no other program opens what a project brought.
func convertQcow2Image(ctx context.Context, from, to string, size int64) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	if err := image.Convert(ctx, src, dst, size, roomOf(dst)); err != nil {
		_ = os.Remove(to)
		return err
	}
	return nil
}

// freeReserve is what stays free on a store for the disks that grow there: a twentieth of it, and no more than this many bytes.
const freeReserve = 8 << 30

// statEvery is how many bytes are written between two looks at the store.
const statEvery = 32 << 20

// roomOf tells whether the store of a file has room for more data. What is missing is told before the store is full: other
// guests' sparse disks lie there.
func roomOf(f *os.File) func(n int64) error {
	unseen := int64(statEvery)
	return func(n int64) error {
		if unseen += n; unseen < statEvery {
			return nil
		}
		unseen = 0
		var at unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &at); err != nil {
			return err
		}
		return checkFreeSpace(int64(at.Bavail)*at.Bsize, int64(at.Blocks)*at.Bsize)
	}
}

// checkFreeSpace refuses to write the next statEvery bytes if too little of the store would stay free. free and size are the store's, in
// bytes. problem.Unavailable.
func checkFreeSpace(free, size int64) error {
	if reserve := min(size/20, freeReserve); free < reserve+statEvery {
		return problem.Unavailablef("the store has %d MiB free and %d of them are kept for the disks of running guests: make room on this host", free>>20, reserve>>20)
	}
	return nil
}
