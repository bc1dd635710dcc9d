package host

import (
	"context"
	"testing"

	"salvor/compute"
	"salvor/hypervisor"
)

// stubborn guests take the order to end and run on.
type stubborn struct{ *guests }

func (s stubborn) SetPower(context.Context, string, hypervisor.Power) (bool, error) { return true, nil }

// TestAGuestThatRunsOnIsToldAsRunning: a host has stopped when no guest of ours runs, and not when each was told to end.
func TestAGuestThatRunsOnIsToldAsRunning(t *testing.T) {
	w, g := newWorld(t), newGuests()
	c := w.config(g)
	c.Hypervisor = stubborn{g}
	a, _ := guarded(t, w, c)
	mine := ours(g, compute.PowerOn, 1)
	if a.endGuests(t.Context(), "a test", map[string]bool{}) {
		t.Error("all guests are told as ended, and one runs")
	}
	g.set(compute.Guest{ID: mine, Ours: true, Epoch: 1, Power: compute.PowerOff})
	if !a.endGuests(t.Context(), "a test", map[string]bool{}) {
		t.Error("none runs, and that is not told")
	}
}
