package node

import (
	"context"
	"strings"
	"testing"

	"salvor/metal"
	"salvor/test/must"
)

// TestAgentErrorFailsTheWait: an agent whose heartbeat says error ends the wait for it, and last_error quotes the agent.
func TestAgentErrorFailsTheWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from  metal.State
		verb  metal.Verb
		steps string
		set   func(*testing.T, *bench)
		waits metal.State
		ends  metal.State
	}{
		"rescue":                     {metal.Active, metal.ToRescue, "", nil, metal.RescueWait, metal.RescueFailed},
		"rescue, password in lookup": {metal.Active, metal.ToRescue, "", func(_ *testing.T, b *bench) { b.con.PasswordInLookup = true }, metal.RescueWait, metal.RescueFailed},
		"service":                    {metal.Active, metal.Service, `[{"interface": "deploy", "step": "burnin"}]`, nil, metal.ServiceWait, metal.ServiceFailed},
		"inspect": {metal.Manageable, metal.Inspect, "", func(t *testing.T, b *bench) {
			change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"inspect": "ramdisk"} })
		}, metal.InspectWait, metal.InspectFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := benched(t, c.from)
			if c.set != nil {
				c.set(t, b)
			}
			b.run(t)
			if c.steps != "" {
				b.withSteps(t, c.verb, c.steps)
			} else {
				b.start(t, c.verb)
			}
			n := b.until(t, c.waits)
			must.OK(t, b.nodes.Heartbeat(context.Background(), b.node, metal.Heartbeat{
				URL: "http://10.0.0.9:9999", Version: "9.1", Token: n.AgentToken(b.key), Status: "error", StatusMessage: "disk on fire",
			}))
			if n = b.until(t, c.ends); !strings.Contains(n.LastError, "disk on fire") {
				t.Errorf("last_error %q does not quote the agent", n.LastError)
			}
		})
	}
}
