package redfish

import (
	"testing"

	"salvor/metal"
)

// TestAnUnknownPowerIsNotOff: a fence relies on off.
func TestAnUnknownPowerIsNotOff(t *testing.T) {
	for _, state := range []string{"", "Standby", "Unknown", "Offline", "PoweredOff", "Powered"} {
		if got := (&computerSystem{PowerState: state}).power(); got != metal.PowerUnknown {
			t.Errorf("%q is read as %q", state, got)
		}
	}
}
