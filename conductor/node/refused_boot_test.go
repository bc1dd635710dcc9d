package node

import (
	"context"
	"strings"
	"testing"

	"salvor/metal"
	"salvor/test/must"
)

// TestARefusedBootFileEndsTheWait: where the firmware cannot get a file that it needs, the wait for the ramdisk ends at once with the reason,
// and the operation fails as others do. A refusal that may pass is told and waited for, and one of another boot changes nothing.
func TestARefusedBootFileEndsTheWait(t *testing.T) {
	t.Parallel()
	const why = "isolinux.bin is neither beside the kernel nor installed"
	for name, c := range map[string]struct {
		from  metal.State
		verb  metal.Verb
		steps string
		set   func(*testing.T, *bench)
		waits metal.State
		ends  metal.State
	}{
		"rescue":  {metal.Active, metal.ToRescue, "", nil, metal.RescueWait, metal.RescueFailed},
		"service": {metal.Active, metal.Service, `[{"interface": "deploy", "step": "burnin"}]`, nil, metal.ServiceWait, metal.ServiceFailed},
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
			refuse := func(boot int64, why string, final bool) {
				t.Helper()
				must.OK(t, b.nodes.RecordBootRefusal(context.Background(), b.node, boot, metal.BootRefusal{File: metal.BootISO, Why: why, Final: final}))
			}
			refuse(n.BootNumber-1, "another boot", true)
			refuse(n.BootNumber, "the mirror is away", false)
			n = b.until(t, c.waits)
			if r := n.Plan.Refusal; r == nil || r.Why != "the mirror is away" {
				t.Errorf("the plan keeps %+v", r)
			}
			refuse(n.BootNumber, why, true)
			if n = b.until(t, c.ends); !strings.Contains(n.LastError, "the machine asked for its boot file boot.iso and did not get it: "+why) {
				t.Errorf("last_error is %q", n.LastError)
			}
		})
	}
}
