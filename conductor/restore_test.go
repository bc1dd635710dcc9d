package conductor

import (
	"context"
	"testing"

	"salvor/metal"
)

// lateMedia is badMedia whose first clean-up is refused.
type lateMedia struct {
	badMedia
	refused *bool
}

func (m lateMedia) CleanUpRamdisk(ctx context.Context, n *metal.Node) error {
	m.mu.Lock()
	first := !*m.refused
	*m.refused = true
	m.mu.Unlock()
	if first {
		return refusal
	}
	return m.bench.CleanUpRamdisk(ctx, n)
}

// TestRestoredMachineHoldsNoRamdisk: the last undo cleans up what an earlier one could not, and the next operation does not do it again.
func TestRestoredMachineHoldsNoRamdisk(t *testing.T) {
	t.Parallel()
	for _, w := range workers {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := workingBench(t, w)
			b.con.drivers["bench"].Boot["bench"] = lateMedia{badMedia{b}, new(bool)}
			b.run(t)
			w.ask(t, b)
			n := b.until(t, w.failed)
			if n.HoldsRamdisk() || n.Plan != nil {
				t.Errorf("plan %+v, internal %v", n.Plan, n.InternalInfo)
			}
			if b.running != "system" || b.media != "" {
				t.Errorf("not put back: %s", b.picture(t))
			}
		})
	}
}
