package node

import (
	"testing"

	"salvor/job"
	"salvor/metal"
)

func TestAdvice(t *testing.T) {
	for state, want := range map[metal.State]string{
		metal.Enroll:         ". Once that is mended, ask for manage.",
		metal.RescueFailed:   ". Once that is mended, ask for rescue, unrescue or deleted.",
		metal.UnrescueFailed: ". Once that is mended, ask for rescue, unrescue or deleted.",
		metal.AdoptFailed:    ". Once that is mended, ask for adopt or manage.",
		metal.Deleting:       "",
	} {
		if got := suggestNextVerbs(state); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}

// A forced power off is given up as soon as other orders to a BMC are: only a soft one
// waits as long as a system may take to end.
func TestForcedPowerOffHasAShortDeadline(t *testing.T) {
	c := New(Config{})
	actions := map[string]job.Action{}
	for _, a := range c.powers().power().Actions {
		actions[a.Name] = a
	}
	if got := actions["power off"].Deadline; got != c.bmcDeadline() {
		t.Errorf("power off: %s", got)
	}
	if got := actions["shut down"].Deadline; got <= c.SoftOffTimeout {
		t.Errorf("shut down: %s", got)
	}
}
