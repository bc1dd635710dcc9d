//go:build causes

package oddsystem

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"salvor/lab/odd"
)

// bootsAtOnce bounds the machines that start at the same time: each computes all the time until its system is up.
const bootsAtOnce = 3

// A start to the login prompt takes a minute of a processor; other programs may make much more time of it.
const (
	// busyLimit bounds the processor time of a machine without a prompt.
	busyLimit = 4 * time.Minute
	// silentLimit is the processor time within which a machine shows something new.
	silentLimit = time.Minute
	// idleLimit is how long a machine may take that computes next to nothing in the end. systemd waits 90 s for a device that does not come.
	idleLimit = 6 * time.Minute
	// idleTime is how long next to nothing was computed, and idleUse what that is.
	idleTime, idleUse = 40 * time.Second, time.Second
	// reachLimit is how long ssh may fail after the prompt.
	reachLimit = 2 * time.Minute
)

// deadEnds are what a screen shows when a machine will not come up by itself.
var deadEnds = []string{"grub rescue>", "grub>", "No bootable device", "Kernel panic", "(initramfs)", "emergency mode", "rescue mode", "root account is locked"}

// machineArguments describe the machine: a disk and a network card of virtio, and a serial port that shows the screen of firmware and loader too.
var machineArguments = []string{"-M", "pc", "-accel", "tcg,thread=single", "-m", "512", "-smp", "1", "-nographic", "-monitor", "none", "-no-reboot", "-serial", "stdio",
	"-device", "virtio-net-pci,netdev=net,addr=3,mac=52:54:00:12:34:56,romfile="}

// copyDisk copies an installation's disk into a folder of its own, which the caller removes.
func (w *world) copyDisk(i installation) (string, error) {
	dir, err := os.MkdirTemp(w.dir, "boot-")
	if err != nil {
		return "", err
	}
	disk := filepath.Join(dir, "disk")
	if out, err := exec.Command("cp", "--sparse=always", filepath.Join(w.dir, i.image()), disk).CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("cp: %w: %s", err, out), os.RemoveAll(dir))
	}
	return disk, nil
}

// edit mounts the root of a disk for a moment. Times of access stay as they are.
func edit(disk string, do func(place string) error) error { return mounted(disk, "noatime", do) }

// mounted mounts the root of a disk for a moment. access is noatime or relatime. Only the thread that does it sees the mount: a program that
// another worker starts would keep a mount that it sees, and the file system would write into the disk when the machine has started from it.
func mounted(disk, access string, do func(place string) error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this function
		done <- mountedAlone(disk, access, do)
	}()
	return <-done
}

func mountedAlone(disk, access string, do func(place string) error) error {
	place := filepath.Join(filepath.Dir(disk), "root")
	if err := os.MkdirAll(place, 0o700); err != nil {
		return err
	}
	if err := cmp.Or(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		return fmt.Errorf("a namespace of mounts: %w", err)
	}
	if out, err := exec.Command("mount", "-o", fmt.Sprintf("%s,loop,offset=%d", access, rootStart), disk, place).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return errors.Join(do(place), unmount(place))
}

// unmount waits for a mount that is busy: a program that another worker starts holds the files of this process for a moment.
func unmount(place string) error {
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := unix.Unmount(place, 0); !errors.Is(err, unix.EBUSY) || time.Now().After(until) {
			return err
		}
	}
}

// bootTruth starts a machine from a copy of the disk with a change. It fills in the rungs boot and reach.
func (w *world) bootTruth(i installation, change func(place string) error, truth Truth) error {
	w.boots <- struct{}{}
	defer func() { <-w.boots }()
	disk, err := w.copyDisk(i)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(disk))
	if err := edit(disk, change); err != nil {
		return err
	}
	return w.start(i, disk, truth, nil)
}

// start starts a machine from a disk, until its owner has come in over ssh, or nobody will. Then it calls reached, while the machine runs. QEMU
// gets the further arguments in more.
func (w *world) start(i installation, disk string, truth Truth, reached func(), more ...string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	master, slave, err := openTerminal()
	if err != nil {
		return err
	}
	defer master.Close()
	args := append(slices.Clone(machineArguments), "-drive", "file="+disk+",format=raw,if=virtio,cache=unsafe",
		"-netdev", fmt.Sprintf("user,id=net,net=192.0.2.0/24,host=192.0.2.1,hostfwd=tcp:127.0.0.1:%d-192.0.2.10:22", port))
	args = append(args, more...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	// The kernel kills the machine when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	_ = slave.Close()
	if err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	defer func() { cancel(); <-exited }()

	screen := newConsole(master)
	began, prompt, said := time.Now(), time.Time{}, ""
	use := cpuUse{pid: cmd.Process.Pid}
	for {
		if said = w.overSSH(i, port); said == "" {
			truth["boot"], truth["reach"] = "", ""
			if reached != nil {
				reached()
			}
			return nil
		}
		if prompt.IsZero() && screen.await("web login:", exited, time.Second) {
			prompt = time.Now()
		}
		shown := screen.end()
		switch dead := slices.IndexFunc(deadEnds, func(text string) bool { return strings.Contains(shown, text) }); {
		case !prompt.IsZero() && time.Since(prompt) > reachLimit:
			truth["boot"], truth["reach"] = "", said
			return nil
		case prompt.IsZero() && (dead >= 0 || use.isOver(time.Since(began), shown)):
			truth["boot"] = shown
			return nil
		}
		select {
		case <-exited:
			truth["boot"] = "the machine ended: " + shown
			return nil
		case <-time.After(time.Second):
		}
	}
}

// cpuUse watches the processor time of a process.
type cpuUse struct {
	pid   int
	last  time.Duration
	since time.Time // when the process had used last
	shown string
	spoke time.Duration // what the process had used when it first showed that
}

// isOver says whether a machine that began so long ago has computed enough, computes no more, or has long computed without a word on its screen.
func (u *cpuUse) isOver(ago time.Duration, shown string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", u.pid))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if err != nil || len(fields) < 13 {
		return false
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	const ticks = 100 // a second, on every Linux
	used := time.Duration(user+system) * time.Second / ticks
	if used-u.last > idleUse {
		u.last, u.since = used, time.Now()
	}
	if shown != u.shown {
		u.shown, u.spoke = shown, used
	}
	return used > busyLimit || used-u.spoke > silentLimit || ago > idleLimit && time.Since(u.since) > idleTime
}

// overSSH asks for a shell by the owner's key. It says what kept the owner out; empty: a shell answered.
func (w *world) overSSH(i installation, port int) string {
	banner := make([]byte, 4)
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return err.Error()
	}
	_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	_, err = conn.Read(banner)
	_ = conn.Close()
	if err != nil {
		return "no banner of sshd: " + err.Error()
	}
	out, _ := exec.Command("timeout", "-k", "1", "40", "ssh", "-F", "none", "-i", filepath.Join(w.dir, "owner_key"), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-p", fmt.Sprint(port), i.owner+"@127.0.0.1", "echo in $((40+2))").CombinedOutput()
	if strings.Contains(string(out), "in 42") {
		return ""
	}
	return fmt.Sprintf("ssh: %.300s", strings.ToValidUTF8(string(out), "?"))
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// touchedByBoot are the files and folders that the unchanged system reads while it starts, by their times of access. The initramfs mounts the root
// for writing, because nothing is noted before that. What firmware and GRUB read is in QEMU's trace.
func (w *world) touchedByBoot(i installation) (*touched, error) {
	disk, err := w.copyDisk(i)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(disk))
	err = edit(disk, func(place string) error {
		menu := filepath.Join(place, "boot/grub/grub.cfg")
		text, err := os.ReadFile(menu)
		if err != nil {
			return err
		}
		if err := os.WriteFile(menu, []byte(strings.ReplaceAll(string(text), " ro ", " rw ")), 0o644); err != nil {
			return err
		}
		return forgetAccess(place)
	})
	if err != nil {
		return nil, err
	}
	truth := Truth{}
	// The kernel writes times of access to the disk within this time.
	trace := filepath.Join(filepath.Dir(disk), "trace")
	if err := w.start(i, disk, truth, func() { time.Sleep(15 * time.Second) }, "-trace", "blk_co_preadv", "-D", trace); err != nil {
		return nil, err
	}
	if said, ok := truth["reach"]; !ok || said != "" {
		return nil, fmt.Errorf("%s does not start without a change: %v", i.name, truth)
	}
	out := newTouched()
	reads, err := readsOf(trace)
	if err != nil {
		return nil, err
	}
	return out, edit(disk, func(place string) error {
		if err := out.addRead(place, reads); err != nil {
			return err
		}
		return out.addAccessed(place)
	})
}

// longPast is a time of access that no program has set, in seconds since 1970.
const longPast = 1

// forgetAccess sets the times of access of all files and folders to longPast. The kernel notes the first access after that.
func forgetAccess(place string) error {
	past := []unix.Timespec{{Sec: longPast}, {Nsec: unix.UTIME_OMIT}}
	return filepath.WalkDir(place, func(at string, _ fs.DirEntry, err error) error {
		return errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, at, past, unix.AT_SYMLINK_NOFOLLOW))
	})
}

// addAccessed adds what was accessed since forgetAccess.
func (t *touched) addAccessed(place string) error {
	return filepath.WalkDir(place, func(at string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err := errors.Join(err, unix.Lstat(at, &st)); err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(at, place), "/")
		if st.Atim.Sec == longPast || name == "" {
			return nil
		}
		t.Paths[name] = true
		if e.IsDir() {
			t.Listed[name] = true
		}
		return nil
	})
}

// bootSees says whether a start may see a change. GRUB knows no owners and modes, and a file below /boot that GRUB does not read changes nothing.
func bootSees(boot *touched, c odd.SystemChange) bool {
	if strings.HasPrefix(c.Path, "boot/") {
		return c.Kind != odd.ChangeMode && c.Kind != odd.ChangeOwner && boot.Paths[c.Path]
	}
	return boot.by(c)
}

// span is a part of a disk, in bytes: from its first byte up to the one behind its last byte.
type span struct{ from, to int64 }

// readsOf are the parts of its disk that a machine read, by the lines of QEMU's trace: "blk_co_preadv blk 0x.. bs 0x.. offset 1024 bytes 512 flags 0x0".
func readsOf(trace string) ([]span, error) {
	text, err := os.ReadFile(trace)
	if err != nil {
		return nil, err
	}
	var out []span
	for line := range strings.SplitSeq(string(text), "\n") {
		var from, size int64
		if _, said, found := strings.Cut(line, " offset "); found {
			if _, err := fmt.Sscanf(said, "%d bytes %d", &from, &size); err == nil {
				out = append(out, span{from, from + size})
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("QEMU's trace has no read of a disk")
	}
	return out, nil
}

// extentLine is a line of filefrag -v with an extent: "   0:        0..       9:      34816..     34825:     10:             last,eof".
var extentLine = regexp.MustCompile(`^ *[0-9]+: +[0-9]+\.\. *[0-9]+: +([0-9]+)\.\. *([0-9]+):`)

// addRead adds the files below /boot of which a machine read a part. place is where the root of its disk is mounted.
func (t *touched) addRead(place string, reads []span) error {
	const block = 4096
	return filepath.WalkDir(filepath.Join(place, "boot"), func(at string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		out, err := exec.Command("filefrag", "-v", fmt.Sprint("-b", block), at).CombinedOutput()
		if err != nil {
			return fmt.Errorf("filefrag: %w: %s", err, out)
		}
		for line := range strings.SplitSeq(string(out), "\n") {
			m := extentLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			first, _ := strconv.ParseInt(m[1], 10, 64)
			last, _ := strconv.ParseInt(m[2], 10, 64)
			extent := span{rootStart + first*block, rootStart + (last+1)*block}
			if slices.ContainsFunc(reads, func(r span) bool { return r.from < extent.to && extent.from < r.to }) {
				t.Paths[strings.TrimPrefix(at, place+"/")] = true
			}
		}
		return nil
	})
}
