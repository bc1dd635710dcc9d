package manual

import (
	"testing"

	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

func TestNothingIsPretended(t *testing.T) {
	n := &metal.Node{ID: "n1", BootMode: "uefi"}
	h, ctx := Hardware{}, t.Context()
	if _, err := h.PowerState(ctx, n); !problem.Is(err, problem.Unsupported) {
		t.Error(err)
	}
	if err := h.SetPower(ctx, n, metal.PowerOff); !problem.Is(err, problem.Unsupported) {
		t.Error(err)
	}
	if err := h.SoftOff(ctx, n); !problem.Is(err, problem.Unsupported) {
		t.Error(err)
	}
	if got, err := h.BootDevice(ctx, n); err != nil || got != (rescue.Boot{Mode: "uefi"}) {
		t.Error(got, err)
	}
	if err := h.SetBootDevice(ctx, n, rescue.Boot{Device: "pxe"}); err != nil {
		t.Error(err)
	}
}
