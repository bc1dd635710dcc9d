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
	record := make([]byte, 8<<10)
	for range maxKernelLines {
		n, err := unix.Read(k.fd, record)
		if err == unix.EPIPE { // older records were overwritten
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		if line := kernelLine(string(record[:n])); ofFileSystem.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// kernelLine is the message of a record: "6,1234,5678,-;message" and lines of keys after it.
func kernelLine(record string) string {
	_, message, _ := strings.Cut(record, ";")
	message, _, _ = strings.Cut(message, "\n")
	return message
}
