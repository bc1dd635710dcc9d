package metal

import (
	"strings"
	"testing"
)

func TestValidity(t *testing.T) {
	d := DriverInfo{Name: "d", Interfaces: map[string]InterfaceSet{
		"power":  {Default: "p", Enabled: []InterfaceInfo{{Name: "p", Required: []string{"address", "user"}}}},
		"boot":   {Default: "b", Enabled: []InterfaceInfo{{Name: "b", NeedsPorts: true}, {Name: "broken", Broken: "no address for ramdisks"}}},
		"rescue": {Default: "agent", Enabled: []InterfaceInfo{{Name: "agent", RequiredForRescue: []string{"rescue_kernel"}, NeedsHeartbeat: true}, {Name: "no-rescue", Unsupported: true}}},
		"deploy": {Default: "deaf", Enabled: []InterfaceInfo{{Name: "deaf"}, {Name: "hears", Heartbeat: "wait"}}},
	}}
	for _, c := range []struct {
		name, kind string
		node       Node
		ports      int
		reason     string // empty: valid
	}{
		{"nothing set", "power", Node{}, 0, "driver_info lacks address, user"},
		{"blank is not set", "power", Node{DriverInfo: Object{"address": " ", "user": "u"}}, 0, "lacks address"},
		{"numbers count", "power", Node{DriverInfo: Object{"address": 7.0, "user": "u"}}, 0, ""},
		{"no port", "boot", Node{}, 0, "no port"},
		{"a port", "boot", Node{}, 1, ""},
		{"broken", "boot", Node{Interfaces: map[string]string{"boot": "broken"}}, 1, "no address for ramdisks"},
		{"unknown interface", "boot", Node{Interfaces: map[string]string{"boot": "nonesuch"}}, 1, "no boot interface"},
		{"no kernel", "rescue", Node{Interfaces: map[string]string{"deploy": "hears"}}, 1, "lacks rescue_kernel"},
		{"deaf deploy interface", "rescue", Node{DriverInfo: Object{"rescue_kernel": "k"}}, 1, "needs heartbeats"},
		{"fine", "rescue", Node{DriverInfo: Object{"rescue_kernel": "k"}, Interfaces: map[string]string{"deploy": "hears"}}, 1, ""},
		{"no-rescue", "rescue", Node{Interfaces: map[string]string{"rescue": "no-rescue"}}, 1, "not supported"},
		{"kind that the driver lacks", "raid", Node{}, 1, "no raid interface"},
	} {
		v := interfaceValidity(&c.node, d, c.kind, c.ports, true)
		if v.OK != (c.reason == "") || !strings.Contains(v.Reason, c.reason) {
			t.Errorf("%s: %+v, want %q", c.name, v, c.reason)
		}
	}
}

// TestISOReplacesKernelAndRamdisk: an ISO image replaces both keys, of driver_info and of instance_info; without it each is asked for.
func TestISOReplacesKernelAndRamdisk(t *testing.T) {
	n := &Node{DriverInfo: Object{"deploy_iso": "http://h/ipa.iso"}, InstanceInfo: Object{"boot_iso": "http://h/live.iso"}}
	if n.lacks("deploy_kernel") || n.lacks("deploy_ramdisk") || !n.lacks("rescue_kernel") || !n.lacks("redfish_address") {
		t.Error("deploy_iso must replace the deploy kernel and ramdisk, and nothing else")
	}
	i := InterfaceInfo{RequiredInstance: []string{"kernel", "ramdisk"}, InsteadInstance: "boot_iso"}
	if lacks := i.missingInstance(n); len(lacks) > 0 {
		t.Errorf("asks for %q beside boot_iso", lacks)
	}
	n.InstanceInfo = Object{"kernel": "/k"}
	if lacks := i.missingInstance(n); len(lacks) != 1 || !strings.Contains(lacks[0], "boot_iso") {
		t.Errorf("%q, want the ramdisk or boot_iso", lacks)
	}
}
