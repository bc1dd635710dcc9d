package examine

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestReadAtTheEnd: the end of a log of 2 TiB is read at once, and not behind all that comes before.
func TestReadAtTheEnd(t *testing.T) {
	folder := t.TempDir()
	const size = int64(2) << 40
	f, err := os.Create(filepath.Join(folder, "kern.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Skipf("the file system holds no file of %d bytes: %v", size, err)
	}
	if _, err := f.WriteAt([]byte("the end"), size-7); err != nil {
		t.Fatal(err)
	}
	tree, closer, err := OpenTree(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	log, err := tree.Open("/kern.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r, ok := log.(io.ReaderAt)
	if !ok {
		t.Fatalf("%T has no ReadAt", log)
	}
	begin := time.Now()
	b := make([]byte, 7)
	if n, err := r.ReadAt(b, size-7); string(b[:n]) != "the end" || err != nil && err != io.EOF {
		t.Errorf("read %q, %v", b[:n], err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("reading the end took %s", took)
	}
}
