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
