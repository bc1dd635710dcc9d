package metal

import (
	"strings"
	"testing"
)

// TestHeartbeatOfANewStart: within one boot an agent keeps its address and its certificate. Where a repair has armed the boot, a restarted ramdisk
// may show another certificate, at the same address and never none.
func TestHeartbeatOfANewStart(t *testing.T) {
	c := Contact{AgentBoot: 7, AgentURL: "https://10.0.0.9:9999", AgentCA: "first"}
	armed := Node{ProvisionState: Rescue, BootNumber: 7, Plan: &BootPlan{BootNumber: 7}}
	plain, next := armed, armed
	plain.ProvisionState, next.BootNumber = Cleaning, 8
	for _, k := range []struct {
		name, url, certificate, refused string
		node                            Node
	}{
		{"the same agent", c.AgentURL, "first", "", plain},
		{"a new start in an armed rescue", c.AgentURL, "second", "", armed},
		{"a new start in cleaning", c.AgentURL, "second", "agent_verify_ca", plain},
		{"another address", "https://10.0.0.66:9999", "second", "callback_url", armed},
		{"no TLS", "http://10.0.0.9:9999", "", "callback_url", armed},
		{"no certificate", c.AgentURL, "", "agent_verify_ca", armed},
		{"another boot", "https://10.0.0.66:9999", "second", "", next},
	} {
		t.Run(k.name, func(t *testing.T) {
			switch err := k.node.compareHeartbeat(c, Heartbeat{URL: k.url, CA: k.certificate}); {
			case k.refused == "" && err != nil:
				t.Error(err)
			case k.refused != "" && (err == nil || !strings.Contains(err.Error(), k.refused)):
				t.Errorf("%v; want a refusal for %s", err, k.refused)
			}
		})
	}
}
