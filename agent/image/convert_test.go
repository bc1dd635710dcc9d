package image

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

// bomb is a qcow2 file whose L1 entries share one L2 table, and its entries one cluster of data: virtual bytes of data out of few.
func bomb(t *testing.T, virtual uint64) *os.File {
	t.Helper()
	const cluster = 64 << 10
	covered := uint64(cluster / 8 * cluster)
	l1 := (virtual + covered - 1) / covered
	tables := (l1*8 + cluster - 1) / cluster
	head := make([]byte, 72)
	be := binary.BigEndian
	copy(head, "QFI\xfb")
	be.PutUint32(head[4:], 2)
	be.PutUint32(head[20:], 16)
	be.PutUint64(head[24:], virtual)
	be.PutUint32(head[36:], uint32(l1))
	be.PutUint64(head[40:], cluster)
	be.PutUint64(head[48:], cluster) // reference counts, which nobody reads
	be.PutUint32(head[56:], 1)
	file := make([]byte, (tables+3)*cluster)
	copy(file, head)
	l2, data := (tables+1)*cluster, (tables+2)*cluster
	for i := range l1 {
		be.PutUint64(file[cluster+i*8:], l2|1<<63)
	}
	for i := range uint64(cluster / 8) {
		be.PutUint64(file[l2+i*8:], data|1<<63)
	}
	copy(file[data:], bytes.Repeat([]byte("x"), cluster))
	path := filepath.Join(t.TempDir(), "bomb.qcow2")
	must.OK(t, os.WriteFile(path, file, 0o600))
	f := must.Get(os.Open(path))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

// TestSmallImagesOfMuchData: what an image holds is counted while it is written, however small its file is.
func TestSmallImagesOfMuchData(t *testing.T) {
	out := func() *os.File {
		f := must.Get(os.CreateTemp(t.TempDir(), "raw"))(t)
		t.Cleanup(func() { f.Close() })
		return f
	}
	if err := Convert(t.Context(), bomb(t, 64<<40), out(), 64<<30, func(int64) error { return nil }); !problem.Is(err, problem.Invalid) {
		t.Errorf("an image of 64 TiB: %v", err)
	}
	const room = 8 << 20
	written := int64(0)
	to := out()
	err := Convert(t.Context(), bomb(t, 32<<30), to, 64<<30, func(n int64) error {
		if written += n; written > room {
			return problem.Unavailablef("full")
		}
		return nil
	})
	if !problem.Is(err, problem.Unavailable) || written > room+dataStep {
		t.Errorf("an image of 32 GiB of data: %v after %d bytes", err, written)
	}
	to = out()
	must.OK(t, Convert(t.Context(), bomb(t, 1<<20), to, 1<<20, func(int64) error { return nil }))
	if b, err := os.ReadFile(to.Name()); err != nil || !bytes.Equal(b, bytes.Repeat([]byte("x"), 1<<20)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
