package compute_test

import (
	"testing"

	"salvor/compute"
)

// TestHostsThatTakeNoServer: whatever room it has, a host that is out of service is given none.
func TestHostsThatTakeNoServer(t *testing.T) {
	roomy := compute.Inventory{VCPUs: 64, RAM: 1 << 20, Disk: 1000}
	for _, want := range []string{"", "its certificate is revoked", "disabled", "removed as lost", "fenced", "forced down", "down"} {
		h := compute.Host{Kind: compute.AgentHost, Inventory: roomy}
		h.Revoked, h.Disabled, h.Lost = want == "its certificate is revoked", want == "disabled", want == "removed as lost"
		h.Fenced, h.ForcedDown = want == "fenced", want == "forced down"
		if got := (&compute.Needs{VCPUs: 1, RAM: 512}).Refusal(&h, want != "down"); got != want {
			t.Errorf("refused as %q, want %q", got, want)
		}
	}
}
