package serve

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// garbage is how much may lie about before it is collected, in bytes: what lives in a
	// small server is so little that collecting at twice of it would go on all the time.
	garbage     = 32 << 20
	leastGrowth = 50 // percent of what lives: the most of a large server is text, which costs little to mark
	mostGrowth  = 400
	weighEvery  = time.Second
)

// keepGarbage has the collector let as much garbage lie as the server's size bears, until ctx ends.
func keepGarbage(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil // who sets it means it
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	turn := time.NewTicker(weighEvery)
	defer turn.Stop()
	for last := 0; ; {
		metrics.Read(live)
		if next := computeGCPercent(live[0].Value.Uint64()); next != last {
			debug.SetGCPercent(next)
			last = next
		}
		select {
		case <-ctx.Done():
			return nil
		case <-turn.C:
		}
	}
}

// computeGCPercent is by how many percent the heap may grow over what lives.
func computeGCPercent(live uint64) int {
	percent := int(garbage * 100 / max(live, 1<<20))
	// In coarse steps: each change stops the world for a moment.
	return min(max(percent/25*25, leastGrowth), mostGrowth)
}
