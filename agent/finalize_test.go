package agent

import (
	"os"
	"path/filepath"
	"testing"

	"salvor/agent/network"
	"salvor/problem"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

// TestAFinalizeThatFailsLeavesNoNetworkPlan: without a password nobody can enter, so the network step must find no plan to apply, and
// no plan of a former order either.
func TestAFinalizeThatFailsLeavesNoNetworkPlan(t *testing.T) {
	a, root, _, _ := newAgent(t, newIronic(t), "")
	order := wire.FinalizeParams{RescuePassword: testHash, Hashed: true}
	must.OK(t, a.finalize(order))
	if _, err := network.ReadPlan(root); err != nil {
		t.Fatalf("after one that succeeds: %v", err)
	}
	must.OK(t, os.Remove(filepath.Join(root, "etc/shadow")))
	if err := a.finalize(order); err == nil {
		t.Error("it succeeds without /etc/shadow")
	}
	if plan, err := network.ReadPlan(root); !problem.Is(err, problem.NotFound) {
		t.Errorf("it left the plan %+v, %v", plan, err)
	}
}
