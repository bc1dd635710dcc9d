package network

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

// fullData is in the words of Nova and of Ironic's documentation: a bond of two NICs
// with a VLAN on it, static addresses of both families, DHCP, and values whose types
// differ from writer to writer.
const fullData = `{
 "links": [
  {"id": "vlan7", "type": "vlan", "vlan_link": "bond0", "vlan_id": "101", "vlan_mac_address": "52:54:00:AA:00:07", "mtu": 1400},
  {"id": "bond0", "type": "bond", "bond_links": ["e0", "e1"], "bond_mode": "802.3ad", "bond_miimon": 50, "bond_xmit_hash_policy": "layer3+4", "ethernet_mac_address": "52:54:00:aa:00:01"},
  {"id": "e0", "type": "phy", "ethernet_mac_address": "52:54:00:aa:00:01", "mtu": null, "vif_id": "x"},
  {"id": "e1", "type": "physical", "ethernet_mac_address": "52:54:00:aa:00:02", "mtu": "9000"},
  {"id": "e2", "type": "ovs", "ethernet_mac_address": "52:54:00:aa:00:03"}
 ],
 "networks": [
  {"id": "n0", "type": "ipv4", "link": "vlan7", "ip_address": "10.78.0.5", "netmask": "255.255.255.0", "network_id": "u",
   "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.78.0.1"}, {"network": "192.0.2.0/24", "gateway": "10.78.0.2"}],
   "services": [{"type": "dns", "address": "10.78.0.3"}]},
  {"id": "n1", "type": "ipv6", "link": "vlan7", "ip_address": "2001:db8::5/64", "gateway": "2001:db8::1"},
  {"id": "n2", "type": "ipv6", "link": "bond0", "ip_address": "2001:db8:1::5", "netmask": "ffff:ffff:ffff::"},
  {"id": "n3", "type": "ipv4_dhcp", "link": "e2"},
  {"id": "n4", "type": "ipv6_slaac", "link": "e2"},
  {"id": "n5", "type": "ipv6_dhcpv6-stateless", "link": "e2"}
 ],
 "services": [{"type": "dns", "address": "8.8.8.8"}, {"type": "ntp", "address": "10.0.0.1"}, {"type": "dns", "address": "rubbish"}, {"type": "dns", "address": "8.8.8.8"}]
}`

func TestParseData(t *testing.T) {
	config := must.Get(ParseData([]byte(fullData)))(t)
	var order []string
	for _, link := range config.Links {
		order = append(order, link.ID)
	}
	if want := []string{"e0", "e1", "e2", "bond0", "vlan7"}; !slices.Equal(order, want) {
		t.Errorf("links in the order %v, want %v", order, want)
	}
	bond, vlan := config.Link("bond0"), config.Link("vlan7")
	if bond.Mode != "802.3ad" || bond.Miimon != 50 || bond.HashPolicy != "layer3+4" || len(bond.Members) != 2 {
		t.Errorf("bond %+v", bond)
	}
	if vlan.Tag != 101 || vlan.Parent != "bond0" || vlan.MTU != 1400 || vlan.MAC.String() != "52:54:00:aa:00:07" {
		t.Errorf("vlan %+v", vlan)
	}
	if config.Link("e1").MTU != 9000 || config.Link("e0").MTU != 0 {
		t.Error("mtu")
	}
	static := config.Networks[0]
	wantRoutes := []Route{
		{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.78.0.1")},
		{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParseAddr("10.78.0.2")},
	}
	if static.Address != netip.MustParsePrefix("10.78.0.5/24") || !slices.Equal(static.Routes, wantRoutes) {
		t.Errorf("static %+v", static)
	}
	if n := config.Networks[1]; n.Address.String() != "2001:db8::5/64" || n.Routes[0].To.String() != "::/0" {
		t.Errorf("ipv6 %+v", n)
	}
	if n := config.Networks[2]; n.Address.Bits() != 48 {
		t.Errorf("ipv6 netmask %+v", n)
	}
	if config.Networks[3].Method != DHCP4 || config.Networks[4].Method != Router6 || config.Networks[5].Method != Router6 {
		t.Errorf("methods %+v", config.Networks[3:])
	}
	if want := []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("10.78.0.3")}; !slices.Equal(config.DNS, want) {
		t.Errorf("name servers %v", config.DNS)
	}
}

func TestParseDataRefuses(t *testing.T) {
	phy := `{"id":"e0","type":"phy","ethernet_mac_address":"52:54:00:aa:00:01"}`
	data := func(links, networks string) string {
		return `{"links":[` + links + `],"networks":[` + networks + `]}`
	}
	network := func(rest string) string { return data(phy, `{"id":"n","link":"e0",`+rest+`}`) }
	for name, text := range map[string]string{
		"no JSON":           `{"links":`,
		"a list":            `[]`,
		"links no list":     `{"links":{}}`,
		"no MAC":            data(`{"id":"e0","type":"phy"}`, ""),
		"bad MAC":           data(`{"id":"e0","type":"phy","ethernet_mac_address":"zz"}`, ""),
		"twice":             data(phy+","+phy, ""),
		"no id":             data(`{"type":"phy","ethernet_mac_address":"52:54:00:aa:00:01"}`, ""),
		"mtu":               data(`{"id":"e0","type":"phy","ethernet_mac_address":"52:54:00:aa:00:01","mtu":-1}`, ""),
		"empty bond":        data(phy+`,{"id":"b","type":"bond"}`, ""),
		"bond of nothing":   data(phy+`,{"id":"b","type":"bond","bond_links":["x"]}`, ""),
		"bond of itself":    data(phy+`,{"id":"b","type":"bond","bond_links":["b"]}`, ""),
		"bond mode":         data(phy+`,{"id":"b","type":"bond","bond_links":["e0"],"bond_mode":"x"}`, ""),
		"vlan of itself":    data(phy+`,{"id":"v","type":"vlan","vlan_link":"v","vlan_id":1}`, ""),
		"vlan without id":   data(phy+`,{"id":"v","type":"vlan","vlan_link":"e0"}`, ""),
		"vlan 4095":         data(phy+`,{"id":"v","type":"vlan","vlan_link":"e0","vlan_id":4095}`, ""),
		"unknown link":      data(phy, `{"id":"n","type":"ipv4_dhcp","link":"e9"}`),
		"unknown type":      network(`"type":"ipx"`),
		"no address":        network(`"type":"ipv4"`),
		"loopback":          network(`"type":"ipv4","ip_address":"127.0.0.1/8"`),
		"scoped":            network(`"type":"ipv6","ip_address":"fe80::1%eth0/64"`),
		"netmask holes":     network(`"type":"ipv4","ip_address":"10.0.0.1","netmask":"255.0.255.0"`),
		"netmask too long":  network(`"type":"ipv4","ip_address":"10.0.0.1","netmask":"64"`),
		"gateway of v6":     network(`"type":"ipv4","ip_address":"10.0.0.1/8","gateway":"::1"`),
		"route without":     network(`"type":"ipv4","ip_address":"10.0.0.1/8","routes":[{"network":"10.1.0.0","netmask":"255.255.0.0"}]`),
		"route of v6 in v4": network(`"type":"ipv4","ip_address":"10.0.0.1/8","routes":[{"network":"::","netmask":"::","gateway":"::1"}]`),
		"net without mask":  network(`"type":"ipv4","ip_address":"10.0.0.1/8","routes":[{"network":"10.1.0.0","gateway":"10.0.0.2"}]`),
		"too many links":    `{"links":[` + strings.Repeat("{},", 300) + `{}]}`,
	} {
		if config, err := ParseData([]byte(text)); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %+v, %v", name, config, err)
		}
	}
}

func FuzzParseData(f *testing.F) {
	f.Add([]byte(fullData))
	f.Add([]byte(`{"links":[{"id":"e0","ethernet_mac_address":"52:54:00:aa:00:01"}],"networks":[{"link":"e0","type":"ipv4","ip_address":"1.2.3.4/33"}]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := ParseData(text)
		if err != nil {
			if !problem.Is(err, problem.Invalid) {
				t.Errorf("%v is not Invalid", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, link := range config.Links {
			for _, under := range append(slices.Clone(link.Members), link.Parent) {
				if under != "" && !seen[under] {
					t.Errorf("link %q comes before %q, on which it stands", link.ID, under)
				}
			}
			if link.Kind == Physical && len(link.MAC) != 6 {
				t.Errorf("link %q has no MAC", link.ID)
			}
			seen[link.ID] = true
		}
		for _, n := range config.Networks {
			if !seen[n.Link] {
				t.Errorf("network on unknown link %q", n.Link)
			}
			if n.Method == Static && !n.Address.IsValid() {
				t.Error("static network without an address")
			}
			for _, route := range n.Routes {
				if route.To != route.To.Masked() || route.Via.Is4() != n.Address.Addr().Is4() {
					t.Errorf("route %+v", route)
				}
			}
		}
	})
}

func TestPlanFile(t *testing.T) {
	root := t.TempDir()
	if _, err := ReadPlan(root); !problem.Is(err, problem.NotFound) {
		t.Errorf("no plan: %v", err)
	}
	plan := Plan{Move: MoveYes, NetworkData: json.RawMessage(`{}`), SSHInterfaces: []string{"52:54:00:aa:00:01"}}
	must.OK(t, WritePlan(root, plan))
	got, err := ReadPlan(root)
	if err != nil || got.Move != MoveYes || len(got.SSHInterfaces) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	RemovePlan(root)
	if _, err := ReadPlan(root); err == nil {
		t.Error("the plan is still there")
	}
}
