package node

import (
	"encoding/json"
	"testing"

	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// TestRamdiskIsTheSystem deploys a node whose system is a ramdisk or an ISO image, rescues it and puts it back.
func TestRamdiskIsTheSystem(t *testing.T) {
	for name, instance := range map[string]metal.Object{
		"kernel and ramdisk": {"kernel": "http://images/kernel", "ramdisk": "http://images/ramdisk"},
		"ISO image":          {"boot_iso": "http://images/live.iso"},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); testRamdiskSystem(t, instance) })
	}
}

func testRamdiskSystem(t *testing.T, instance metal.Object) {
	b := newBench(t, metal.Available)
	b.ramdiskSystem = true
	change(t, b, func(n *metal.Node) { n.InstanceInfo = instance })
	b.run(t)
	drive := json.RawMessage(`{"user_data": "x"}`)
	must.OK(t, b.nodes.Provision(t.Context(), b.node, metal.Deploy, "active", metal.ProvisionArgs{ConfigDrive: drive}, record.Asker{}))
	n := b.until(t, metal.Active)
	if iso, _ := instance["boot_iso"].(string); n.Plan == nil || n.Plan.ISO != iso || !n.Plan.ConfigDrive {
		t.Fatalf("deployed: plan %+v", n.Plan)
	}
	if !n.Plan.Persistent || n.Plan.CarryToken || b.media != n.Plan.Path || b.running != "ramdisk" {
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
	if n.Plan == nil || n.Plan.Path == first || n.Plan.ISO != metal.Text(instance["boot_iso"]) || !n.Plan.ConfigDrive || b.media != n.Plan.Path || b.running != "ramdisk" {
		t.Errorf("put back: plan %+v, %s", n.Plan, b.picture(t))
	}
	must.OK(t, b.ask(t, metal.Delete))
	if n = b.until(t, metal.Available); n.Plan != nil || b.media != "" {
		t.Errorf("deleted: %s", b.picture(t))
	}
}
