package fault

import (
	"context"
	"testing"

	"salvor/client"
	"salvor/lab/personality"
	"salvor/test/must"
)

// TestForeignBMCs runs whole operations behind BMCs that behave like those of others: manage, adopt, a rescue that is aborted, a rescue with
// its ramdisk, and unrescue.
func TestForeignBMCs(t *testing.T) {
	w := newWorld(t)
	for _, name := range personality.RedfishNames() {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			m := w.newMachine(t)
			m.front = personality.Redfish(name, m.bmc)
			must.OK(t, m.active(ctx))
			m.deaf = true
			must.OK(t, m.provision(ctx, "rescue"))
			m.settle(ctx, t, func(n *client.Node) bool { return n.ProvisionState == "rescue wait" })
			must.OK(t, m.reach(ctx, "abort", "rescue failed"))
			if m.bmc.Image() != "" {
				t.Errorf("the aborted rescue left %q in the drive", m.bmc.Image())
			}
			m.deaf = false
			must.OK(t, m.reach(ctx, "rescue", "rescue"))
			must.OK(t, m.reach(ctx, "unrescue", "active"))
			m.wantOwnSystem(t)
		})
	}
}
