package examine

import (
	"fmt"
	"regexp"
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

// maxErrorLines bounds what is read of the kernel's log for errors of disks.
const maxErrorLines = 20_000

// unreadSector is what the kernel logs of a sector that a disk did not give. A line that only holds these words, such as one with a label, is none.
var unreadSector = regexp.MustCompile(`^(?:blk_update_request: )?(critical medium|I/O) error, dev (\w+), sector (\d+) op 0x0:\(READ\)`)

// readError is the first sector that a disk did not give. ofMedium: the disk itself says that the sector is lost; any other error may be one of the
// path to the disk.
type readError struct {
	sector   string
	ofMedium bool
}

// readErrors tells of disks, such as sda, that did not give a sector since the last call.
func (k *kernelLog) readErrors() map[string]readError {
	out := map[string]readError{}
	k.each(maxErrorLines, func(line string) {
		m := unreadSector.FindStringSubmatch(line)
		if m == nil {
			return
		}
		if known, ok := out[m[2]]; !ok || !known.ofMedium && m[1] != "I/O" {
			out[m[2]] = readError{sector: m[3], ofMedium: m[1] != "I/O"}
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
