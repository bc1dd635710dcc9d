package server

import (
	"testing"

	"salvor/compute"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/fixture"
)

// TestSenses: what a BMC and a storage show is told without waiting for them; what they do not answer is unknown.
func TestSenses(t *testing.T) {
	t.Parallel()
	y := newLot(t, site{node: true, volumes: true})
	eyes := y.con.HealthSources(t.Context())
	if got := eyes.Power(y.node); got != compute.Unknown {
		t.Errorf("before anybody looked: %q", got)
	}
	fixture.Poll(t, "on", func() bool { return eyes.Power(y.node) == compute.Lives })
	y.mu.Lock()
	y.power = metal.PowerOff
	y.mu.Unlock()
	fixture.Poll(t, "off", func() bool { return eyes.Power(y.node) == compute.Dead })
	y.mu.Lock()
	y.broken = problem.Unavailablef("no answer")
	y.mu.Unlock()
	fixture.Poll(t, "a BMC that falls silent", func() bool { return eyes.Power(y.node) == compute.Unknown })
	fixture.Poll(t, "no session", func() bool { some, known := eyes.Connected([]string{"iqn.2026-11.test:a"}); return known && !some })
	if got := eyes.Power("no such node"); got != compute.Unknown {
		t.Errorf("of a node that is not there: %q", got)
	}
}
