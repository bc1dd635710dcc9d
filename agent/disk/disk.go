// Package disk knows the disks of the machine that the ramdisk runs in. It lists them, chooses the one that a system goes to, reads and
// changes partition tables, and wipes disks. It reads and writes everything through the whole disk, so it needs neither udev nor device
// nodes of partitions. In tests a disk is a file. The package must not know images, steps or the server.
package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30
	// zeroChunk bounds one request to zero, so that a caller can be stopped between two.
	zeroChunk = 64 * mebi
)

// Device is an open disk.
type Device struct {
	name   string // /dev/sda, without the agent's root
	file   *os.File
	block  bool
	size   int64
	sector int64
}

// Open opens the disk called name (/dev/sda) below root, for nobody else: a disk of
// which a part is mounted or in use by LVM or RAID is a problem.Conflict.
func Open(root, name string) (*Device, error) {
	return open(root, name, unix.O_RDWR|unix.O_EXCL)
}

// OpenRead is for looking only.
func OpenRead(root, name string) (*Device, error) {
	return open(root, name, unix.O_RDONLY)
}

func open(root, name string, mode int) (*Device, error) {
	path := filepath.Join("/", root, filepath.Clean("/"+name))
	info, err := os.Stat(path)
	if err != nil {
		return nil, problem.NotFoundf("disk %s: %w", name, err)
	}
	block := info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0
	if !block && (root == "" || !info.Mode().IsRegular()) {
		return nil, problem.Invalidf("disk %s: not a block device", name)
	}
	if !block {
		mode &^= unix.O_EXCL
	}
	file, err := os.OpenFile(path, mode, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, problem.Conflictf("disk %s: in use in this ramdisk: unmount it and stop its RAID or volume group", name)
	}
	if err != nil {
		return nil, fmt.Errorf("disk %s: %w", name, err)
	}
	d := &Device{name: name, file: file, block: block, size: info.Size(), sector: 512}
	if block {
		if err := d.measure(); err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("disk %s: %w", name, err)
		}
	}
	return d, nil
}

func (d *Device) measure() error {
	size, err := d.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	sector, err := unix.IoctlGetInt(int(d.file.Fd()), unix.BLKSSZGET)
	if err != nil {
		return fmt.Errorf("ask for its sector size: %w", err)
	}
	d.size, d.sector = size, int64(sector)
	return nil
}

// Name is the device's path, as /dev/sda.
func (d *Device) Name() string { return d.name }

// Size is in bytes.
func (d *Device) Size() int64 { return d.size }

// Sector is the size of a logical sector in bytes.
func (d *Device) Sector() int64 { return d.sector }

// ReadAt reads; past the end it is io.EOF.
func (d *Device) ReadAt(p []byte, off int64) (int, error) { return d.file.ReadAt(p, off) }

// WriteAt writes inside of the disk only: a file would grow instead of being full.
func (d *Device) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > d.size || int64(len(p)) > d.size-off {
		return 0, problem.Invalidf("disk %s: %d bytes at %d do not fit into its %d", d.name, len(p), off, d.size)
	}
	return d.file.WriteAt(p, off)
}

// Zero makes a range read as zeros, by the disk's own means where it has them.
func (d *Device) Zero(off, n int64) error {
	if off < 0 || n < 0 || off > d.size || n > d.size-off {
		return problem.Invalidf("disk %s: cannot zero %d bytes at %d of %d", d.name, n, off, d.size)
	}
	for n > 0 {
		part := min(n, zeroChunk)
		if err := d.zero(off, part); err != nil {
			return fmt.Errorf("disk %s: zero %d bytes at %d: %w", d.name, part, off, err)
		}
		off, n = off+part, n-part
	}
	return nil
}

func (d *Device) zero(off, n int64) error {
	if !d.block {
		if unix.Fallocate(int(d.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n) == nil {
			return nil
		}
	} else if off%d.sector == 0 && n%d.sector == 0 && d.rangeIoctl(unix.BLKZEROOUT, off, n) == nil {
		return nil
	}
	zeros := make([]byte, min(n, mebi))
	for n > 0 {
		part := min(n, int64(len(zeros)))
		if _, err := d.file.WriteAt(zeros[:part], off); err != nil {
			return err
		}
		off, n = off+part, n-part
	}
	return nil
}

// rangeIoctl is for BLKZEROOUT, BLKDISCARD and BLKSECDISCARD.
func (d *Device) rangeIoctl(request uintptr, off, n int64) error {
	span := [2]uint64{uint64(off), uint64(n)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), request, uintptr(unsafe.Pointer(&span)))
	if errno != 0 {
		return errno
	}
	return nil
}

// Sync returns once all that was written is on the disk.
func (d *Device) Sync() error {
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("disk %s: sync: %w", d.name, err)
	}
	return nil
}

// Reread has the kernel look at the partition table again. That it cannot is no
// failure: nothing here uses the nodes of partitions.
func (d *Device) Reread() {
	if d.block {
		_ = unix.IoctlSetInt(int(d.file.Fd()), unix.BLKRRPART, 0)
	}
}

// Close gives the disk free.
func (d *Device) Close() error { return d.file.Close() }

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
