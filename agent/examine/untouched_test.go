package examine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
	"salvor/problem"
	"salvor/test/must"
)

// newLoop shows a file of that size as a loop device; the test is skipped where nobody may make one.
func newLoop(t *testing.T, size int64) (file, loop string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "disk")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	must.OK(t, os.Truncate(file, size))
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("this machine lets nobody make loop devices: %v: %s", err, out)
	}
	loop = strings.TrimSpace(string(out))
	t.Cleanup(func() { must.OK(t, exec.Command("losetup", "--detach", loop).Run()) })
	return file, loop
}

// TestMountFlags: nothing that an examination mounts can be written, run, or used as a device. What is mended can be written alone, and its programs
// run in the sandbox.
func TestMountFlags(t *testing.T) {
	const never = unix.MS_NODEV | unix.MS_NOSUID
	if got := (&examinationRun{}).mountFlags(); got != never|unix.MS_RDONLY|unix.MS_NOEXEC {
		t.Errorf("an examination mounts with %#x", got)
	}
	if got := (&examinationRun{mending: true}).mountFlags(); got != never {
		t.Errorf("a repair mounts with %#x", got)
	}
}

// TestExaminationMountsReadOnly: a file system that an examination has mounted takes no file, and no byte of its device changes.
func TestExaminationMountsReadOnly(t *testing.T) {
	file, loop := newLoop(t, 8<<20)
	if out, err := exec.Command("mkfs.ext4", "-q", file).CombinedOutput(); err != nil {
		t.Skipf("this machine makes no ext4: %v: %s", err, out)
	}
	before := string(must.Get(os.ReadFile(file))(t))
	x := &examinationRun{Request: Request{Log: slog.New(slog.DiscardHandler)}, loops: map[string]bool{filepath.Base(loop): true}, mounted: map[string]bool{}}
	var err error
	if x.kernel, err = openKernelLog(); err != nil {
		t.Skip(err)
	}
	defer x.kernel.close()
	place := t.TempDir()
	d := &device{Device: diagnose.Device{Path: "/dev/sda1", FS: "ext4"}, node: loop}
	if err := x.mountAt(t.Context(), d, place, ""); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
		t.Skipf("this machine lets nobody mount ext4: %v", err)
	} else if err != nil {
		t.Fatalf("mount: %v, %+v", err, d)
	}
	err = os.WriteFile(filepath.Join(place, "written"), []byte("x"), 0o600)
	must.OK(t, unix.Unmount(place, 0))
	if !errors.Is(err, unix.EROFS) {
		t.Errorf("a file written to an examined file system: %v", err)
	}
	if string(must.Get(os.ReadFile(file))(t)) != before {
		t.Error("the examination changed its disk")
	}
}

// TestUsedDisksAreNotProtected: a disk that something holds or writes to is left alone with a reason, so that its user does not lose it.
func TestUsedDisksAreNotProtected(t *testing.T) {
	_, loop := newLoop(t, 1<<20)
	d := &examinedDisk{ExaminedDisk: diagnose.ExaminedDisk{Path: loop}}
	for name, flags := range map[string]int{"it is held": os.O_RDONLY | unix.O_EXCL, "it is open for writing": os.O_WRONLY} {
		user := must.Get(os.OpenFile(loop, flags, 0))(t)
		if _, err := protectDisk(d); !problem.Is(err, problem.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
		if on := must.Get(unix.IoctlGetInt(int(user.Fd()), unix.BLKROGET))(t); on != 0 {
			t.Errorf("%s, and it was set read-only", name)
		}
		must.OK(t, user.Close())
	}
	if _, err := protectDisk(&examinedDisk{ExaminedDisk: diagnose.ExaminedDisk{Path: "/dev/disk/by-id/../loop0"}}); !problem.Is(err, problem.Unsupported) {
		t.Errorf("a disk with a name of another kind: %v", err)
	}
}

// TestDisksOutsideOfASession: the overlays of a repair are all that its second examination sees, and only their disks become writable.
func TestDisksOutsideOfASession(t *testing.T) {
	s := &OverlaySession{kept: []*keptDisk{}}
	x := newRun(Request{Log: slog.New(slog.DiscardHandler)}, s)
	d := &examinedDisk{ExaminedDisk: diagnose.ExaminedDisk{Path: "/dev/vdzz"}}
	if node, err := s.coverDisk(t.Context(), x, d, ""); !problem.Is(err, problem.Unsupported) {
		t.Errorf("a disk that came after the repair was mounted: %q, %v", node, err)
	}
	if err := s.SetWritable("/dev/vdzz"); !problem.Is(err, problem.NotFound) {
		t.Errorf("writes to a disk of no overlay: %v", err)
	}
	if _, err := s.Mount(t.Context(), nil); !problem.Is(err, problem.Conflict) {
		t.Errorf("a second mount: %v", err)
	}
	s.mending = x
	if _, err := s.Examine(t.Context()); !problem.Is(err, problem.Conflict) {
		t.Errorf("an examination while systems are mounted: %v", err)
	}
	if _, err := s.Changes(t.Context()); !problem.Is(err, problem.Conflict) {
		t.Errorf("the changes while systems are mounted: %v", err)
	}
}

// TestNodesOfMountedSystems: a mend gets no device on which a file system is mounted, and none that has no overlay.
func TestNodesOfMountedSystems(t *testing.T) {
	m := &MountedSystem{nodes: map[string]string{"/dev/sda": "/dev/loop1", "/dev/sda1": "/dev/loop1p1"}, inUse: map[string]bool{"/dev/loop1p1": true}}
	if node, err := m.Node("/dev/sda"); node != "/dev/loop1" || err != nil {
		t.Errorf("%q, %v", node, err)
	}
	if node, err := m.Node("/dev/sda1"); !problem.Is(err, problem.Conflict) {
		t.Errorf("a mounted device: %q, %v", node, err)
	}
	if node, err := m.Node("/dev/sdb"); !problem.Is(err, problem.NotFound) {
		t.Errorf("a device without an overlay: %q, %v", node, err)
	}
}

// TestKeysAreCleared: neither an examination nor a session leaves a key in memory.
func TestKeysAreCleared(t *testing.T) {
	r := Request{Keys: []Key{Key("opensesame")}, KeysByUUID: map[string][]Key{"a": {Key("friend")}}}
	must.OK(t, (&OverlaySession{request: r}).Close(t.Context()))
	for _, k := range append(r.KeysByUUID["a"], r.Keys...) {
		if strings.Trim(string(k), "\x00") != "" {
			t.Errorf("a key of %d bytes stays in memory", len(k))
		}
	}
}

// TestUnreadIsNoFault: what a disk or this machine fails at is no fault of a file.
func TestUnreadIsNoFault(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EIO, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		if err := unread(&fs.PathError{Op: "open", Path: "etc/fstab", Err: errno}); !errors.Is(err, diagnose.ErrUnread) || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	for _, err := range []error{nil, fs.ErrNotExist, unix.EACCES, io.EOF, unix.ELOOP} {
		if got := unread(err); errors.Is(got, diagnose.ErrUnread) || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestGapsAreNotedOnce: hostile disks do not fill an answer with one sentence.
func TestGapsAreNotedOnce(t *testing.T) {
	x := &examinationRun{Request: Request{Log: slog.New(slog.DiscardHandler)}}
	for i := range 6 {
		x.gap("/dev/sda", "reason %d", i%2)
	}
	if len(x.gaps) != 2 || fmt.Sprint(x.gaps) != fmt.Sprint([]diagnose.Gap{{What: "/dev/sda", Why: "reason 0"}, {What: "/dev/sda", Why: "reason 1"}}) {
		t.Errorf("%+v", x.gaps)
	}
}
