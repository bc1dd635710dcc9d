package host

import (
	"os"
	"path/filepath"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

// TestAnImageLargerThanItsDiskIsRefused before a byte of it is copied.
func TestAnImageLargerThanItsDiskIsRefused(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "image")
	must.OK(t, os.WriteFile(from, make([]byte, 4097), 0o600))
	for size, fits := range map[int64]bool{4096: false, 4097: true, 8192: true} {
		to := filepath.Join(dir, "disk")
		err := toRaw(t.Context(), from, rawFormat, to, size)
		if fits && err != nil || !fits && !problem.Is(err, problem.Invalid) {
			t.Errorf("onto %d bytes: %v", size, err)
		}
		if info, err := os.Stat(to); fits && (err != nil || info.Size() != size) || !fits && err == nil {
			t.Errorf("a disk of %d bytes: %v, %v", size, info, err)
		}
		_ = os.Remove(to)
	}
}

// TestImagesLeaveRoomForDisksThatGrow: a twentieth of the store stays free, and at most freeReserve.
func TestImagesLeaveRoomForDisksThatGrow(t *testing.T) {
	for _, c := range []struct {
		free, size int64
		fits       bool
	}{
		{1<<30 + statEvery, 20 << 30, true}, {1<<30 + statEvery - 1, 20 << 30, false}, {0, 20 << 30, false},
		{freeReserve + statEvery, 1 << 40, true}, {freeReserve + statEvery - 1, 1 << 40, false},
	} {
		if err := checkFreeSpace(c.free, c.size); c.fits != (err == nil) || err != nil && !problem.Is(err, problem.Unavailable) {
			t.Errorf("%d bytes free of %d: %v", c.free, c.size, err)
		}
	}
}
