package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWrite: a file is replaced as a whole, or stays as it was, and nothing is left beside it.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for _, content := range []string{"a long first content", "short"} {
		if err := Write(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("%q, want %q: %v", b, content, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	// What cannot take its place leaves all as it was.
	taken := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(taken, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
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
