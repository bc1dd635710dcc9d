package node

import (
	"context"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

// rescued brings a node of the bench into rescue, as its user asked for it; its machine has a fixed address on the tenant's network.
func rescued(t *testing.T, with func(*bench)) *bench {
	t.Helper()
	b := newDiagnosed(t, metal.PowerOn)
	change(t, b, func(n *metal.Node) {
		n.NetworkData = metal.Object{
			"links":    []any{map[string]any{"id": "nic", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}},
			"networks": []any{map[string]any{"id": "tenant", "link": "nic", "type": "ipv4", "ip_address": "192.0.2.7", "netmask": "255.255.255.0"}}, "services": []any{},
		}
	})
	if with != nil {
		with(b)
	}
	b.run(t)
	must.OK(t, b.provision(metal.ToRescue, metal.ProvisionArgs{RescuePassword: secret.New("let me in")}))
	if n := b.ends(t); n.ProvisionState != metal.Rescue {
		t.Fatalf("the rescue ends in %s: %s", n.ProvisionState, n.LastError)
	}
	return b
}

// inRescueAlready makes the bench a machine whose rescue was finished before the test, without the jobs of that.
func (b *bench) inRescueAlready(t *testing.T) {
	t.Helper()
	b.running = "ramdisk"
	change(t, b, func(n *metal.Node) {
		n.ProvisionState = metal.Rescue
		n.Rescue = &rescue.Session{SavedKnown: true, Saved: disk, Addresses: []string{"192.0.2.7"}, Agent: &rescue.Agent{Boot: n.BootNumber, KeyID: b.key.ID()}}
	})
	n := b.stored(t)
	b.serving = rescueAgents{b.con}.token(n, n.Rescue.Agent).Reveal()
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		return b.store.SaveContact(tx, metal.Contact{NodeID: b.node, AgentURL: "https://10.0.0.9:9999", AgentVersion: "salvor-agent/1", AgentCA: benchCertificate(), AgentBoot: n.Rescue.Agent.Boot})
	}))
}

// inRescue is the agent of the bench's node, as an operation in state rescue asks for it.
func (b *bench) inRescue(t *testing.T) (driver.Agent, error) {
	t.Helper()
	return rescueAgents{b.con}.rescueAgent(context.Background(), &managedNode{node: b.stored(t)})
}

// TestRescueAgent: the agent of a rescue serves at the machine's address by the token of this rescue, and of no other.
func TestRescueAgent(t *testing.T) {
	t.Parallel()
	b := rescued(t, nil)
	n := b.stored(t)
	a := must.Get(b.inRescue(t))(t)
	if a.URL != "https://192.0.2.7:9999" || a.CA != benchCertificate() || a.Token.Reveal() != b.serving || a.Token.Equal(n.AgentToken(b.key)) {
		t.Errorf("agent %+v", a)
	}
	must.OK(t, b.provision(metal.ToRescue, metal.ProvisionArgs{RescuePassword: secret.New("let me in")}))
	b.ends(t)
	again := must.Get(b.inRescue(t))(t)
	if again.Token.Equal(a.Token) {
		t.Error("the next rescue has the same token")
	}
	must.OK(t, b.provision(metal.Unrescue, metal.ProvisionArgs{}))
	b.ends(t)
	if _, err := b.inRescue(t); !problem.Is(err, problem.Conflict) {
		t.Errorf("after the unrescue: %v", err)
	}
}

// TestNoRescueAgent: each reason why no agent can be asked is said, with what to do next.
func TestNoRescueAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		with, then func(*bench)
		kind       problem.Kind
		says       string
	}{
		"foreign":         {with: func(b *bench) { b.agentVersion = "10.0.0" }, kind: problem.Unsupported, says: "salvor ramdisk build"},
		"former":          {with: func(b *bench) { b.formerAgent = true }, kind: problem.Unavailable, says: "of a former release"},
		"restarted":       {then: func(b *bench) { b.running, b.serving = "system", "" }, kind: problem.Unavailable, says: "was restarted"},
		"another machine": {then: func(b *bench) { b.serving = "another" }, kind: problem.Unavailable, says: "token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := rescued(t, c.with)
			if c.then != nil {
				b.mu.Lock()
				c.then(b)
				b.mu.Unlock()
			}
			if _, err := b.inRescue(t); !problem.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestRescueAgentWithoutAnAddress: the tenant's DHCP server tells nobody.
func TestRescueAgentWithoutAnAddress(t *testing.T) {
	t.Parallel()
	b := rescued(t, nil)
	change(t, b, func(n *metal.Node) { n.Rescue.Addresses = nil })
	if _, err := b.inRescue(t); !problem.Is(err, problem.Unsupported) || !strings.Contains(err.Error(), "network_data") {
		t.Errorf("%v", err)
	}
	change(t, b, func(n *metal.Node) { n.Rescue.Agent = nil })
	if _, err := b.inRescue(t); !problem.Is(err, problem.Unsupported) || !strings.Contains(err.Error(), "without TLS") {
		t.Errorf("a session of a former release: %v", err)
	}
}
