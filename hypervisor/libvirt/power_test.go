package libvirt

import (
	"context"
	"testing"
	"time"

	"salvor/compute"
	"salvor/problem"
)

// TestAwaitStarted: a guest whose daemon was killed while it started it is shown as being started, and is off a moment later.
func TestAwaitStarted(t *testing.T) {
	looks := 0
	look := func() (compute.Power, bool, error) {
		if looks++; looks < 3 {
			return compute.PowerOn, true, nil
		}
		return compute.PowerCrashed, false, nil
	}
	if power, err := awaitStarted(t.Context(), "g", time.Minute, compute.PowerOn, look); err != nil || power != compute.PowerCrashed || looks != 3 {
		t.Errorf("%s, %v after %d looks; want crashed after 3", power, err, looks)
	}
	endless := func() (compute.Power, bool, error) { looks++; return compute.PowerOn, true, nil }
	looks = 0
	if power, err := awaitStarted(t.Context(), "g", time.Minute, compute.PowerOff, endless); err != nil || power != compute.PowerOn || looks != 1 {
		t.Errorf("to be off: %s, %v after %d looks; want one", power, err, looks)
	}
	if _, err := awaitStarted(t.Context(), "g", 0, compute.PowerOn, endless); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v, want unavailable", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := awaitStarted(ended, "g", time.Hour, compute.PowerOn, endless); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v, want unavailable", err)
	}
}
