package examine

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxKernelLines bounds what is read of the kernel's log for one mount.
const maxKernelLines = 200

// kernelLog reads what the kernel logs from a moment on.
type kernelLog struct{ fd int }

func openKernelLog() (*kernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's log: %w", err)
	}
	return &kernelLog{fd}, nil
}

func (k *kernelLog) close() { _ = unix.Close(k.fd) }

// skip passes over all that was logged until now.
func (k *kernelLog) skip() { _, _ = unix.Seek(k.fd, 0, unix.SEEK_END) }

// ofFileSystem are lines of the kernel about file systems and the devices below them.
var ofFileSystem = regexp.MustCompile(`(?i)EXT[234]-fs|XFS|BTRFS|FAT-fs|JBD2|I/O error|ISOFS|device-mapper|Buffer I/O`)

// read returns the lines about file systems that were logged since skip, in one line.
func (k *kernelLog) read() string {
	var lines []string
	k.each(maxKernelLines, func(line string) {
		if ofFileSystem.MatchString(line) {
			lines = append(lines, line)
		}
	})
	return strings.Join(lines, "; ")
}

// each takes the lines that were logged since the last call, at most so many.
func (k *kernelLog) each(most int, take func(line string)) {
	record := make([]byte, 8<<10)
	for range most {
		n, err := unix.Read(k.fd, record)
		if err == unix.EPIPE { // older records were overwritten
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		take(kernelLine(string(record[:n])))
	}
}

// Bounds of what is read of the kernel's log for errors of disks.
const (
	maxErrorLines   = 20_000
	maxErrorSectors = 16 // of one disk
)

// unreadSector is what the kernel logs of a sector that a disk did not give. The pattern begins at the start of a line, because a label of a file system
// can hold the same words.
var unreadSector = regexp.MustCompile(`^(?:blk_update_request: )?(?:critical \w+|I/O) error, dev (\w+), sector (\d+) op 0x0:\(READ\)`)

// nvmePath is one of several paths to an NVMe disk, which has the name nvme0n1.
var nvmePath = regexp.MustCompile(`^(nvme\d+)c\d+(n\d+)$`)

// errorSector reads such a line: the disk, such as sda, and the sector. It has no disk for other lines.
func errorSector(line string) (disk string, sector int64) {
	m := unreadSector.FindStringSubmatch(line)
	if m == nil {
		return "", 0
	}
	sector, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil {
		return "", 0
	}
	return nvmePath.ReplaceAllString(m[1], "$1$2"), sector
}

// errorSectors are the sectors that disks did not give since the last call, by disk.
func (k *kernelLog) errorSectors() map[string][]int64 {
	out := map[string][]int64{}
	k.each(maxErrorLines, func(line string) {
		disk, sector := errorSector(line)
		if disk != "" && len(out[disk]) < maxErrorSectors && !slices.Contains(out[disk], sector) {
			out[disk] = append(out[disk], sector)
		}
	})
	return out
}

// kernelLine is the message of a record: "6,1234,5678,-;message" and lines of keys after it.
func kernelLine(record string) string {
	_, message, _ := strings.Cut(record, ";")
	message, _, _ = strings.Cut(message, "\n")
	return message
}
