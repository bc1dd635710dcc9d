package node

import (
	"testing"

	"salvor/metal"
	"salvor/test/must"
)

// TestRamdiskIsTheSystem deploys a node whose system is a ramdisk, rescues it and puts it back.
func TestRamdiskIsTheSystem(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Available)
	b.ramdiskSystem = true
	change(t, b, func(n *metal.Node) {
		n.InstanceInfo = metal.Object{"kernel": "http://images/kernel", "ramdisk": "http://images/ramdisk"}
	})
	b.run(t)
	must.OK(t, b.ask(t, metal.Deploy))
	n := b.until(t, metal.Active)
	if n.Plan == nil || !n.Plan.Persistent || n.Plan.CarryToken || b.media != n.Plan.Path || b.running != "ramdisk" {
		t.Fatalf("deployed: plan %+v, %s", n.Plan, b.picture(t))
	}
	first := n.Plan.Path
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	b.poke()
	if n = b.until(t, metal.Rescue); n.Plan != nil || b.media != "" {
		t.Fatalf("rescued: %s", b.picture(t))
	}
	must.OK(t, b.ask(t, metal.Unrescue))
	n = b.until(t, metal.Active)
	if n.Plan == nil || n.Plan.Path == first || b.media != n.Plan.Path || b.running != "ramdisk" {
		t.Errorf("put back: plan %+v, %s", n.Plan, b.picture(t))
	}
	must.OK(t, b.ask(t, metal.Delete))
	if n = b.until(t, metal.Available); n.Plan != nil || b.media != "" {
		t.Errorf("deleted: %s", b.picture(t))
	}
}
