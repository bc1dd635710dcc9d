package host

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
)

// TestAnImageLeavesRoomOnTheStore: an image that would fit is refused where it takes what is kept for the disks of running guests;
// its zeros take no room, and what was written of a refused one is gone or stays smaller than the store.
func TestAnImageLeavesRoomOnTheStore(t *testing.T) {
	qemu := debian.Program(t, "qemu-img", "qemu-utils")
	const store = 48 << 20
	images, dir := t.TempDir(), t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"); errors.Is(err, unix.EPERM) {
		t.Skip("a small file system is mounted by root only")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for _, c := range []struct {
		name  string
		data  int // bytes that are not zero
		taken bool
	}{{"small", 4 << 20, true}, {"large", store - 8<<20, false}} {
		raw := filepath.Join(images, c.name)
		put(t, raw, bytes.Repeat([]byte("x"), c.data))
		must.OK(t, os.Truncate(raw, 2*store))
		if out, err := exec.Command(qemu, "convert", "-f", "raw", "-O", "qcow2", raw, raw+".qcow2").CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		for format, from := range map[string]string{rawFormat: raw, "qcow2": raw + ".qcow2"} {
			to := filepath.Join(dir, "disk")
			err := toRaw(t.Context(), from, format, to, 4*store)
			if c.taken && err != nil || !c.taken && !problem.Is(err, problem.Unavailable) {
				t.Errorf("%s %s: %v", c.name, format, err)
			}
			var at unix.Statfs_t
			must.OK(t, unix.Statfs(dir, &at))
			if free := int64(at.Bavail) * at.Bsize; free < store/20 {
				t.Errorf("%s %s: the store has %d bytes free", c.name, format, free)
			}
			_ = os.Remove(to)
		}
	}
}
