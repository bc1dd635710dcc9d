package examine

import (
	"bytes"
	"encoding/binary"
	"io"
	"salvor/repair"
	"slices"
	"testing"
)

// snapshotStore writes the persistent format of dm-snapshot.
func snapshotStore(chunks ...uint64) []byte {
	areas := len(chunks)/exceptionsPerArea + 1
	b := make([]byte, (1+areas*(exceptionsPerArea+1))*repair.ChunkSize)
	for i, v := range []uint32{exceptionMagic, 1, exceptionVersion, chunkSectors} {
		binary.LittleEndian.PutUint32(b[4*i:], v)
	}
	for i, chunk := range chunks {
		area := i / exceptionsPerArea
		at := (1+area*(exceptionsPerArea+1))*repair.ChunkSize + i%exceptionsPerArea*16
		binary.LittleEndian.PutUint64(b[at:], chunk)
		binary.LittleEndian.PutUint64(b[at+8:], uint64(2+area+i))
	}
	return b
}

func TestChangedChunks(t *testing.T) {
	t.Parallel()
	var many []uint64
	for i := range uint64(2*exceptionsPerArea + 3) {
		many = append(many, 1000-i)
	}
	for name, c := range map[string]struct {
		chunks []uint64
		want   int
	}{"none": {nil, 0}, "some": {[]uint64{7, 0, 3}, 3}, "a full area": {many[:exceptionsPerArea], exceptionsPerArea}, "several areas": {many, len(many)}} {
		got, err := readExceptions(bytes.NewReader(snapshotStore(c.chunks...)), 1001)
		if err != nil || len(got) != c.want || !slices.IsSorted(got) {
			t.Errorf("%s: %d chunks, %v", name, len(got), err)
		}
		for _, chunk := range c.chunks {
			if !slices.Contains(got, int64(chunk)) {
				t.Errorf("%s: chunk %d is missing", name, chunk)
			}
		}
	}
}

func TestChangedChunksRefuse(t *testing.T) {
	t.Parallel()
	change := func(at int, b byte) []byte {
		store := snapshotStore(1, 2)
		store[at] = b
		return store
	}
	for name, store := range map[string][]byte{
		"another magic": change(0, 'x'), "given up": change(4, 0), "another version": change(8, 2), "other chunks": change(12, 16),
		"past the end": snapshotStore(5), "named twice": snapshotStore(1, 1), "cut off": snapshotStore(1)[:repair.ChunkSize+100], "empty": nil,
	} {
		if got, err := readExceptions(bytes.NewReader(store), 5); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// endlessStore names other chunks in every area.
type endlessStore struct{ reads int }

func (s *endlessStore) ReadAt(b []byte, at int64) (int, error) {
	s.reads++
	if at == 0 {
		return copy(b, snapshotStore()), nil
	}
	for i := 0; i < len(b); i += 16 {
		binary.LittleEndian.PutUint64(b[i:], uint64(at)/repair.ChunkSize*exceptionsPerArea+uint64(i/16))
		binary.LittleEndian.PutUint64(b[i+8:], 9)
	}
	return len(b), nil
}

// TestChangedChunksAreBounded: a list without an end is not read for ever.
func TestChangedChunksAreBounded(t *testing.T) {
	t.Parallel()
	s := &endlessStore{}
	_, err := readExceptions(s, 10*exceptionsPerArea)
	if err == nil || s.reads > 20 {
		t.Errorf("%v after %d reads", err, s.reads)
	}
}

func FuzzChangedChunks(f *testing.F) {
	f.Add(snapshotStore(1, 2, 3)[:2*repair.ChunkSize], int64(100))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, store []byte, size int64) {
		size &= 1<<20 - 1
		// What lies behind the given bytes are zeros, as in a sparse file.
		chunks, err := readExceptions(io.NewSectionReader(sparseReader(store), 0, 1<<40), size)
		if err != nil {
			return
		}
		for i, c := range chunks {
			if c < 0 || c >= size || i > 0 && c <= chunks[i-1] {
				t.Errorf("chunk %d of %d", c, size)
			}
		}
	})
}

// sparseReader reads zeros behind its bytes.
type sparseReader []byte

func (s sparseReader) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	if at < int64(len(s)) {
		copy(b, s[at:])
	}
	return len(b), nil
}
