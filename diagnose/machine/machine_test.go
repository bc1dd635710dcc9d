package machine

import (
	"encoding/json"
	"strings"
	"testing"

	"salvor/diagnose"
)

func healthy() State {
	return State{Provision: "active", InUse: true, Power: "power on", BootDevice: "disk", BootPersistent: true, Ports: []string{"52:54:00:00:00:01"}}
}

func idsOf(findings []diagnose.Finding) string {
	var ids []string
	for _, f := range findings {
		ids = append(ids, f.ID)
		if len(f.Evidence) == 0 || !strings.HasSuffix(f.Title, ".") {
			ids = append(ids, "(without evidence or a sentence)")
		}
	}
	return strings.Join(ids, " ")
}

func TestFindings(t *testing.T) {
	memory := Event{Critical: true, Sensor: "DIMM A1", Message: "Uncorrectable ECC", State: "asserted"}
	for _, tc := range []struct {
		name string
		with func(*State)
		want string
	}{
		{"a healthy machine", func(*State) {}, ""},
		{"off", func(s *State) { s.Power = "power off" }, "machine-off"},
		{"off and nobody's", func(s *State) { s.Power, s.InUse = "power off", false }, ""},
		{"the network for all boots", func(s *State) { s.BootDevice = "pxe" }, "boot-device-override"},
		{"the network for all boots of a system that lies there", func(s *State) { s.BootDevice, s.BootsElsewhere = "pxe", true }, ""},
		{"the network once", func(s *State) { s.BootDevice, s.BootPersistent = "pxe", false }, ""},
		{"an unknown MAC", func(s *State) {
			s.NetworkData = json.RawMessage(`{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:99"}]}`)
		}, "network-data-unknown-mac"},
		{"a known MAC in capitals, and a bond", func(s *State) {
			s.NetworkData = json.RawMessage(`{"links": [{"id": "a", "ethernet_mac_address": "52:54:00:00:00:01"}, {"id": "b", "type": "bond", "ethernet_mac_address": "52:54:00:00:00:99"}]}`)
		}, ""},
		{"a network on no link", func(s *State) {
			s.NetworkData = json.RawMessage(`{"links": [{"id": "a"}], "networks": [{"id": "n", "link": "b", "type": "ipv4_dhcp"}]}`)
		}, "network-data-unknown-link"},
		{"a gateway outside", func(s *State) {
			s.NetworkData = json.RawMessage(`{"links": [{"id": "a"}], "networks": [{"id": "n", "link": "a", "ip_address": "192.0.2.7", "netmask": "255.255.255.0",
				"routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "198.51.100.1"}]}]}`)
		}, "network-data-gateway-outside"},
		{"gateways inside, of one address, and of a link", func(s *State) {
			s.NetworkData = json.RawMessage(`{"links": [{"id": "a"}], "networks": [
				{"id": "n", "link": "a", "ip_address": "192.0.2.7", "netmask": "255.255.255.0", "gateway": "192.0.2.1"},
				{"id": "o", "link": "a", "ip_address": "192.0.2.8/32", "gateway": "198.51.100.1"},
				{"id": "p", "link": "a", "ip_address": "2001:db8::7/64", "gateway": "fe80::1"},
				{"id": "q", "link": "a", "ip_address": "192.0.2.9", "netmask": "255.0.255.0", "gateway": "198.51.100.1"}]}`)
		}, ""},
		{"memory", func(s *State) { s.Events = []Event{memory} }, "memory-failing"},
		{"memory that was replaced", func(s *State) {
			s.Events = []Event{memory, {Sensor: "DIMM A1", Message: "Uncorrectable ECC", State: "deasserted"}}
		}, ""},
		{"another module was replaced", func(s *State) {
			s.Events = []Event{memory, {Sensor: "DIMM B1", Message: "Uncorrectable ECC", State: "deasserted"}}
		}, "memory-failing"},
		{"a warning", func(s *State) { s.Events = []Event{{Sensor: "Fan 1", Message: "slow"}} }, ""},
		{"a component", func(s *State) {
			s.Unhealthy = []Component{{Kind: "power supply", Name: "PS1", State: "lost", Critical: true}, {Kind: "fan", Name: "Fan 3"}}
		}, "power-supply-failing"},
		{"a system that is unwell because of its memory", func(s *State) {
			s.Unhealthy = []Component{{Kind: "system", Name: "m1", State: "Enabled", Message: "An uncorrectable ECC error occurred.", Critical: true}}
		}, "memory-failing"},
		{"something else", func(s *State) { s.Events = []Event{{Critical: true, Message: "Chassis intrusion"}} }, "hardware-failing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := healthy()
			tc.with(&s)
			if got := idsOf(s.Findings()); got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

// Failing hardware that the BMC tells of is no proven cause, however much of it there is.
func TestHardwareIsNoCause(t *testing.T) {
	s := healthy()
	for range 9 {
		s.Events = append(s.Events, Event{Critical: true, Sensor: "DIMM A1", Message: "Uncorrectable ECC"})
	}
	findings, verdict := diagnose.Judge(s.Findings())
	if verdict.Outcome != diagnose.NothingFound || len(findings) != 1 || len(findings[0].Evidence) != maxHardwareEvidence {
		t.Errorf("%+v %+v", verdict, findings)
	}
}
