package media

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
)

// mtype reads a file of a FAT volume by mtools, which shares no code with us.
func mtype(t *testing.T, volume []byte, name string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fat")
	must.OK(t, os.WriteFile(path, volume, 0o600))
	out, err := exec.Command(debian.Program(t, "mtype", "mtools"), "-i", path, "::/"+name).Output()
	if err != nil {
		t.Fatalf("mtype %s: %v (package mtools)", name, err)
	}
	return out
}

func TestFATReadsBack(t *testing.T) {
	for _, size := range []int{10_000, 9 << 20} { // FAT12 and FAT16
		big := make([]byte, size)
		copy(big[size-1000:], noise(7, 1000))
		volume, offsets, err := FAT("test", []File{
			{Path: "A.TXT", Data: bytesBlob([]byte("first"))},
			{Path: "DIR/SUB/BIG.BIN", Data: bytesBlob(big)},
			{Path: "EMPTY"},
			{Path: "DIR/LAST", Data: bytesBlob([]byte("last"))},
		})
		if err != nil {
			t.Fatal(err)
		}
		raw := readAll(t, volume)
		for name, want := range map[string][]byte{"A.TXT": []byte("first"), "DIR/SUB/BIG.BIN": big, "DIR/LAST": []byte("last"), "EMPTY": nil} {
			if got := mtype(t, raw, name); !bytes.Equal(got, want) {
				t.Errorf("size %d: %s: %d bytes, want %d", size, name, len(got), len(want))
			}
			at := offsets[name]
			if at%2048 != 0 || !bytes.HasPrefix(raw[at:], want) {
				t.Errorf("size %d: %s is not at %d", size, name, at)
			}
		}
		fsck(t, volume)
	}
}

// zeros is content of any size that needs no memory.
type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) { clear(b); return len(b), nil }

// A ramdisk of the full profile needs clusters larger than 2048 bytes.
func TestFATOfLargeContent(t *testing.T) {
	const size = 140 << 20
	volume, offsets, err := FAT("test", []File{
		{Path: "BIG.BIN", Data: io.NewSectionReader(zeros{}, 0, size)},
		{Path: "DIR/LAST", Data: bytesBlob([]byte("last"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := volume.ReadAt(got, offsets["DIR/LAST"]); err != nil || string(got) != "last" || offsets["DIR/LAST"]%2048 != 0 {
		t.Errorf("content at %d is %q, %v", offsets["DIR/LAST"], got, err)
	}
	fsck(t, volume)
	if _, _, err := FAT("x", []File{{Path: "A", Data: io.NewSectionReader(zeros{}, 0, 1<<62)}}); !problem.Is(err, problem.Invalid) {
		t.Errorf("content that cannot fit: %v", err)
	}
}

func fsck(t *testing.T, volume Blob) {
	t.Helper()
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "fat")))(t)
	defer f.Close()
	must.Get(io.Copy(f, io.NewSectionReader(volume, 0, volume.Size())))(t)
	if out, err := exec.Command(debian.Program(t, "fsck.fat", "dosfstools"), "-n", f.Name()).CombinedOutput(); err != nil {
		t.Errorf("fsck.fat: %v (package dosfstools)\n%s", err, out)
	}
}

func TestFATRefuses(t *testing.T) {
	for _, path := range []string{"", "lower", "TOOLONGNAME", "A/", "A.", "A.LONG", "../A", "A B"} {
		if _, _, err := FAT("x", []File{{Path: path}}); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, _, err := FAT("x", []File{{Path: "A"}, {Path: "A/B"}}); !problem.Is(err, problem.Invalid) {
		t.Errorf("a file as directory: %v", err)
	}
	if _, _, err := FAT("x", []File{{Path: "A"}, {Path: "A"}}); !problem.Is(err, problem.Invalid) {
		t.Errorf("twice: %v", err)
	}
	many := make([]File, 60)
	for i := range many {
		many[i].Path = "F" + strings.Repeat("X", i%7) + string(rune('A'+i/7))
	}
	if _, _, err := FAT("x", many); !problem.Is(err, problem.Invalid) {
		t.Errorf("too many: %v", err)
	}
}
