package examine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"salvor/problem"
	"salvor/test/must"
)

// TestFindWriter: a program of this system that has a file open is found by what the kernel says of its open files, and only if it may write.
func TestFindWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	must.OK(t, os.WriteFile(path, []byte("a disk"), 0o600))
	var disk unix.Statx_t
	must.OK(t, unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS, &disk))
	isDisk := func(s *unix.Statx_t) bool {
		return s.Ino == disk.Ino && s.Dev_major == disk.Dev_major && s.Dev_minor == disk.Dev_minor
	}
	self := fmt.Sprintf("(process %d)", os.Getpid())
	for _, c := range []struct {
		flags  int
		writes bool
	}{{os.O_RDONLY, false}, {unix.O_PATH, false}, {os.O_WRONLY, true}, {os.O_RDWR | os.O_SYNC, true}} {
		f := must.Get(os.OpenFile(path, c.flags, 0))(t)
		program, err := findWriter("/proc", maxOpenFiles, isDisk)
		if err != nil || strings.HasSuffix(program, self) != c.writes || !c.writes && program != "" {
			t.Errorf("flags %#o: found %s, %v", c.flags, program, err)
		}
		must.OK(t, f.Close())
	}
	if _, err := findWriter("/proc", 2, isDisk); !problem.Is(err, problem.Unavailable) {
		t.Errorf("with more open files than are looked at: %v", err)
	}
}

// TestFindWriterAmongEndingProcesses: what has ended meanwhile is passed over, and what the kernel has never said is an error.
func TestFindWriterAmongEndingProcesses(t *testing.T) {
	proc, disk := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	must.OK(t, os.WriteFile(disk, nil, 0o600))
	write := func(path, text string) {
		must.OK(t, os.MkdirAll(filepath.Join(proc, filepath.Dir(path)), 0o755))
		must.OK(t, os.WriteFile(filepath.Join(proc, path), []byte(text), 0o600))
	}
	open := func(process string) {
		must.OK(t, os.MkdirAll(filepath.Join(proc, process, "fd"), 0o755))
		must.OK(t, os.Symlink(disk, filepath.Join(proc, process, "fd", "3")))
	}
	write("uptime", "1 1")
	write("7/comm", "ended\n") // its files are gone
	open("8")                  // it ended between two looks
	open("9")
	write("9/fdinfo/3", "pos:\t0\nflags:\t0100000\n")
	all := func(*unix.Statx_t) bool { return true }
	if program, err := findWriter(proc, 10, all); err != nil || program != "" {
		t.Errorf("found %s, %v", program, err)
	}
	open("10")
	write("10/fdinfo/3", "pos:\t0\nflags:\t0100001\n")
	write("10/comm", "dd\x1b[31m of a long name\n")
	if program, err := findWriter(proc, 10, all); err != nil || program != `the program "dd\x1b[31m of a lon" (process 10)` {
		t.Errorf("found %s, %v", program, err)
	}
	write("10/fdinfo/3", "flags:\tmany\n")
	if program, err := findWriter(proc, 10, all); err == nil {
		t.Errorf("found %s", program)
	}
}

// TestRefuseWriters: what is no device is an error, and a device that nobody has open is none.
func TestRefuseWriters(t *testing.T) {
	if err := refuseWriters([]string{filepath.Join(t.TempDir(), "gone")}); err == nil {
		t.Error("a node that is not there is not refused")
	}
	must.OK(t, refuseWriters(nil))
}
