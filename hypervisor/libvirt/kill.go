package libvirt

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"salvor/hypervisor"
	"salvor/problem"
)

var _ hypervisor.Killer = (*Hypervisor)(nil)

// defaultStatus is where libvirt keeps what it knows of each guest that runs, and defaultProc where the kernel shows processes.
const (
	defaultStatus = "/run/libvirt/qemu"
	defaultProc   = "/proc"
)

// qemuProcess is a QEMU process of a guest.
type qemuProcess struct {
	pid      int
	id, name string
}

func (h *Hypervisor) Kill(ctx context.Context, ids []string) error {
	for {
		left, err := h.processes(ids)
		if err != nil || len(left) == 0 {
			return err
		}
		var failed error
		for _, p := range left {
			failed = errors.Join(failed, h.kill(p, ids))
		}
		select {
		case <-ctx.Done():
			return problem.Unavailablef("end guests by their processes: %d of them are there still, such as %s, process %d: %w", len(left), left[0].id, left[0].pid, errors.Join(ctx.Err(), failed))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// kill ends a process for good. It is held on to before it is looked at again, so that its number cannot have become another's.
func (h *Hypervisor) kill(p qemuProcess, ids []string) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if again, ours := h.process(p.pid, ids); !ours || again != p {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// processes are those of our guests that run.
func (h *Hypervisor) processes(ids []string) ([]qemuProcess, error) {
	entries, err := os.ReadDir(h.opts.Proc)
	if err != nil {
		return nil, problem.Unavailablef("list processes: %w", err)
	}
	var out []qemuProcess
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ours := h.process(pid, ids); ours {
			out = append(out, p)
		}
	}
	return out, nil
}

// process reads of which guest a process is; false: of none of ours. One that has ended and that nobody has taken leave of has no
// command line any more.
func (h *Hypervisor) process(pid int, ids []string) (qemuProcess, bool) {
	dir := filepath.Join(h.opts.Proc, strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return qemuProcess{}, false
	}
	id, name := guestOf(line)
	if id == "" {
		return qemuProcess{}, false
	}
	program, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil || !strings.HasPrefix(filepath.Base(program), "qemu-") {
		return qemuProcess{}, false
	}
	return qemuProcess{pid, id, name}, slices.Contains(ids, id) || h.marked(pid, id, name)
}

// guestOf takes a guest's UUID and name from the arguments that libvirt starts QEMU with.
func guestOf(cmdline []byte) (id, name string) {
	args := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
	for i, arg := range args[:max(0, len(args)-1)] {
		switch arg {
		case "-uuid":
			if u, err := uuid.Parse(args[i+1]); err == nil {
				id = u.String()
			}
		case "-name":
			for part := range strings.SplitSeq(strings.ReplaceAll(args[i+1], ",,", "\x00"), ",") {
				if guest, ok := strings.CutPrefix(part, "guest="); ok {
					name = strings.ReplaceAll(guest, "\x00", ",")
				}
			}
		}
	}
	return id, name
}

// marked tells whether libvirt's own note of the guest says that it is that process, and bears our mark.
func (h *Hypervisor) marked(pid int, id, name string) bool {
	if name == "" || name != filepath.Base(name) {
		return false
	}
	text, err := os.ReadFile(filepath.Join(h.opts.Status, name+".xml"))
	if err != nil {
		return false
	}
	m, noted := parseStatus(text)
	return noted == pid && m.ID == id
}

// parseStatus reads our mark and the process from libvirt's note of a running guest.
func parseStatus(text []byte) (domainMetadata, int) {
	var doc struct {
		XMLName xml.Name `xml:"domstatus"`
		PID     int      `xml:"pid,attr"`
		Domain  struct {
			UUID     string `xml:"uuid"`
			Metadata struct {
				Inner string `xml:",innerxml"`
			} `xml:"metadata"`
		} `xml:"domain"`
	}
	if err := xml.Unmarshal(text, &doc); err != nil {
		return domainMetadata{}, 0
	}
	m, ours := parseMark(doc.Domain.Metadata.Inner)
	if u, err := uuid.Parse(doc.Domain.UUID); !ours || err != nil || u.String() != m.ID {
		return domainMetadata{}, 0
	}
	return m, doc.PID
}
