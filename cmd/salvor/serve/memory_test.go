package serve

import "testing"

// TestGrowth: a small heap may grow to several times of itself, a large one by half.
func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 4 << 20: 400, 16 << 20: 200, 24 << 20: 125, 48 << 20: 50, 1 << 40: 50} {
		if got := computeGCPercent(live); got != want {
			t.Errorf("%d bytes live: %d percent, want %d", live, got, want)
		}
	}
}
