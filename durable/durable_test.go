package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"salvor/test/must"
)

// TestReadOrMake: whoever comes at once reads what one of them wrote, who comes later makes nothing, and nothing is left beside it.
func TestReadOrMake(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	broken := errors.New("no content")
	if _, err := ReadOrMake(path, 0o600, func() ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("without content: %v", err)
	}
	var all sync.WaitGroup
	read := make([]string, 16)
	for i := range read {
		all.Go(func() {
			b, err := ReadOrMake(path, 0o600, func() ([]byte, error) { return []byte(fmt.Sprint("made by ", i)), nil })
			if err != nil {
				t.Error(err)
			}
			read[i] = string(b)
		})
	}
	all.Wait()
	for i := range read {
		if read[i] == "" || read[i] != read[0] {
			t.Errorf("one reads %q, another %q", read[0], read[i])
		}
	}
	b, err := ReadOrMake(path, 0o600, func() ([]byte, error) { return nil, broken })
	if err != nil || string(b) != read[0] {
		t.Errorf("later: %q %v", b, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestWrite: a file is replaced as a whole, or stays as it was, and nothing is left beside it.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for _, content := range []string{"a long first content", "short"} {
		must.OK(t, Write(path, []byte(content), 0o600))
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("%q, want %q: %v", b, content, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	// What cannot take its place leaves all as it was.
	taken := filepath.Join(dir, "folder")
	must.OK(t, os.MkdirAll(filepath.Join(taken, "full"), 0o700))
	if err := Write(taken, []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced by a file")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if err := Write(filepath.Join(dir, "none", "key"), nil, 0o600); err == nil {
		t.Error("a file in no folder was written")
	}
}

// TestUnlock: the lock is free at once, also while another process still has the file.
func TestUnlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		t.Helper()
		f := must.Get(os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600))(t)
		return f
	}
	f := open()
	must.OK(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	child, err := syscall.Dup(int(f.Fd())) // as a process has it between fork and exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	must.OK(t, Unlock(f))
	next := open()
	defer next.Close()
	if err := syscall.Flock(int(next.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("the lock was let go, and is taken: %v", err)
	}
}
