package odd

// MACs of the machines of NetworkBases.
const (
	mac0 = "52:54:00:aa:00:01"
	mac1 = "52:54:00:aa:00:02"
	mac2 = "52:54:00:aa:00:03"
)

// NetworkBases are good network data of several writers. Each is for a machine whose NICs are all there.
var NetworkBases = []NetworkBase{
	{Name: "Nova", Segments: [][]string{{mac0}, {mac1}}, Text: `{
 "links": [
  {"id": "tap1a81968a-79", "vif_id": "1a81968a-797a-400f-8a80-567f997eb93f", "type": "ovs", "mtu": 1450, "ethernet_mac_address": "` + mac0 + `"},
  {"id": "tap6f3ac1a2-01", "vif_id": "6f3ac1a2-0102-4bd3-9f1c-9a6b0a0b0c0d", "type": "ovs", "mtu": null, "ethernet_mac_address": "` + mac1 + `"}],
 "networks": [
  {"id": "network0", "type": "ipv4", "link": "tap1a81968a-79", "ip_address": "198.51.100.21", "netmask": "255.255.255.0", "network_id": "da5bb487-5193-4a65-a3df-4a0055a8c0d7",
   "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "198.51.100.1"}], "services": [{"type": "dns", "address": "198.51.100.3"}]},
  {"id": "network1", "type": "ipv6", "link": "tap1a81968a-79", "ip_address": "2001:db8:1::21", "netmask": "ffff:ffff:ffff:ffff::", "network_id": "da5bb487-5193-4a65-a3df-4a0055a8c0d8",
   "routes": [{"network": "::", "netmask": "::", "gateway": "2001:db8:1::1"}], "services": []},
  {"id": "network2", "type": "ipv4_dhcp", "link": "tap6f3ac1a2-01", "network_id": "da5bb487-5193-4a65-a3df-4a0055a8c0d9"}],
 "services": [{"type": "dns", "address": "192.0.2.35"}]}`},
	{Name: "Metal3", Segments: [][]string{{mac0}, {mac1}}, Text: `{
 "links": [
  {"id": "enp1s0", "type": "phy", "mtu": 1500, "ethernet_mac_address": "` + mac0 + `"},
  {"id": "enp2s0", "type": "phy", "mtu": 1500, "ethernet_mac_address": "` + mac1 + `"}],
 "networks": [
  {"id": "provisioning", "type": "ipv4", "link": "enp1s0", "ip_address": "198.51.100.21", "netmask": "255.255.255.0", "routes": []},
  {"id": "baremetalv4", "type": "ipv4", "link": "enp2s0", "ip_address": "203.0.113.21", "netmask": "255.255.255.0",
   "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "203.0.113.1", "services": []}, {"network": "10.9.0.0", "netmask": "255.255.0.0", "gateway": "203.0.113.2"}]},
  {"id": "baremetalv6", "type": "ipv6", "link": "enp2s0", "ip_address": "2001:db8:2::21", "netmask": "ffff:ffff:ffff:ffff::",
   "routes": [{"network": "::", "netmask": "::", "gateway": "2001:db8:2::1"}]}],
 "services": [{"type": "dns", "address": "192.0.2.35"}, {"type": "dns", "address": "2001:db8::35"}]}`},
	{Name: "config drive", Segments: [][]string{{mac0}, {mac1}}, Text: `{
 "links": [
  {"id": "eth0", "type": "phy", "ethernet_mac_address": "` + mac0 + `"},
  {"id": "eth1", "type": "phy", "ethernet_mac_address": "` + mac1 + `"}],
 "networks": [
  {"id": "public", "type": "ipv4", "link": "eth0", "ip_address": "198.51.100.21/24", "gateway": "198.51.100.1", "dns_nameservers": ["192.0.2.35", "192.0.2.36"]},
  {"id": "public6", "type": "ipv6", "link": "eth0", "ip_address": "2001:db8:1::21/64", "gateway": "2001:db8:1::1"},
  {"id": "private", "type": "ipv4", "link": "eth1", "ip_address": "203.0.113.21/24", "routes": [{"network": "10.9.0.0/16", "gateway": "203.0.113.1"}, {"network": "10.10.0.0/16", "gateway": "0.0.0.0"}]}]}`},
	{Name: "two gateways", Segments: [][]string{{mac0}, {mac1}, {mac2}}, Text: `{
 "links": [
  {"id": "p1", "type": "phy", "ethernet_mac_address": "` + mac0 + `"},
  {"id": "p2", "type": "phy", "ethernet_mac_address": "` + mac1 + `"},
  {"id": "p3", "type": "vif", "ethernet_mac_address": "` + mac2 + `"}],
 "networks": [
  {"id": "n1", "type": "ipv4", "link": "p1", "ip_address": "198.51.100.21", "netmask": "255.255.255.0", "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "198.51.100.1"}]},
  {"id": "n2", "type": "ipv4", "link": "p2", "ip_address": "203.0.113.21", "netmask": "24", "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "203.0.113.1"}]},
  {"id": "n3", "type": "ipv4_dhcp", "link": "p3"}],
 "services": [{"type": "dns", "address": "192.0.2.35"}]}`},
	{Name: "bond with a VLAN", Stacked: true, Segments: [][]string{{mac0, mac1}, {mac2}}, Text: `{
 "links": [
  {"id": "e0", "type": "phy", "ethernet_mac_address": "` + mac0 + `"},
  {"id": "e1", "type": "phy", "ethernet_mac_address": "` + mac1 + `"},
  {"id": "e2", "type": "phy", "ethernet_mac_address": "` + mac2 + `"},
  {"id": "bond0", "type": "bond", "bond_links": ["e0", "e1"], "bond_mode": "active-backup", "bond_miimon": 100, "ethernet_mac_address": "` + mac0 + `"},
  {"id": "vlan7", "type": "vlan", "vlan_link": "bond0", "vlan_id": 7, "mtu": 1400}],
 "networks": [
  {"id": "n1", "type": "ipv4", "link": "vlan7", "ip_address": "198.51.100.21", "netmask": "255.255.255.0", "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "198.51.100.1"}]},
  {"id": "n2", "type": "ipv6", "link": "bond0", "ip_address": "2001:db8:1::21/64", "gateway": "2001:db8:1::1"},
  {"id": "n3", "type": "ipv4_dhcp", "link": "e2"}],
 "services": [{"type": "dns", "address": "192.0.2.35"}]}`},
	{Name: "Metal3 with a bond", Stacked: true, Segments: [][]string{{mac0, mac1}, {mac2}}, Text: `{
 "links": [
  {"id": "enp1s0", "type": "phy", "mtu": 9000, "ethernet_mac_address": "` + mac0 + `"},
  {"id": "enp2s0", "type": "phy", "mtu": 9000, "ethernet_mac_address": "` + mac1 + `"},
  {"id": "enp3s0", "type": "phy", "mtu": 1500, "ethernet_mac_address": "` + mac2 + `"},
  {"id": "bond1", "type": "bond", "mtu": 9000, "bond_links": ["enp1s0", "enp2s0"], "bond_mode": "802.3ad", "bond_xmit_hash_policy": "layer3+4", "ethernet_mac_address": "` + mac0 + `"},
  {"id": "bond1.7", "type": "vlan", "mtu": 9000, "vlan_link": "bond1", "vlan_id": 7, "vlan_mac_address": "52:54:00:aa:00:07"},
  {"id": "bond1.8", "type": "vlan", "mtu": 1500, "vlan_link": "bond1", "vlan_id": 8, "vlan_mac_address": "52:54:00:aa:00:08"}],
 "networks": [
  {"id": "storage", "type": "ipv4", "link": "bond1.7", "ip_address": "198.51.100.21", "netmask": "255.255.255.0", "routes": []},
  {"id": "tenant", "type": "ipv4", "link": "bond1.8", "ip_address": "203.0.113.21", "netmask": "255.255.255.0", "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "203.0.113.1"}]},
  {"id": "provisioning", "type": "ipv4", "link": "enp3s0", "ip_address": "192.168.7.21", "netmask": "255.255.255.0", "routes": []}],
 "services": [{"type": "dns", "address": "192.0.2.35"}]}`},
	{Name: "VLANs of a NIC", Stacked: true, Segments: [][]string{{mac0}, {mac1}}, Text: `{
 "links": [
  {"id": "p1", "type": "phy", "mtu": null, "ethernet_mac_address": "` + mac0 + `"},
  {"id": "p2", "type": "phy", "mtu": 1500, "ethernet_mac_address": "` + mac1 + `"},
  {"id": "v101", "type": "vlan", "mtu": 9000, "vlan_link": "p1", "vlan_id": 101, "vlan_mac_address": "` + mac0 + `"},
  {"id": "v102", "type": "vlan", "vlan_link": "p1", "vlan_id": "102"},
  {"id": "v103", "type": "vlan", "mtu": 1400, "vlan_link": "p2", "vlan_id": 103}],
 "networks": [
  {"id": "n1", "type": "ipv4", "link": "v101", "ip_address": "198.51.100.21", "netmask": "255.255.255.0", "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "198.51.100.1"}]},
  {"id": "n2", "type": "ipv6", "link": "v102", "ip_address": "2001:db8:2::21/64", "routes": [{"network": "::", "netmask": "::", "gateway": "2001:db8:2::1"}]},
  {"id": "n3", "type": "ipv4", "link": "v103", "ip_address": "203.0.113.21/24", "gateway": "203.0.113.1"},
  {"id": "n4", "type": "ipv4_dhcp", "link": "p2"}]}`},
	{Name: "bond of three", Stacked: true, Segments: [][]string{{mac0, mac1, mac2}}, Text: `{
 "links": [
  {"id": "bond0", "type": "bond", "bond_links": ["a", "b", "c"], "bond_mode": "balance-xor", "bond_xmit_hash_policy": "layer2+3", "bond_miimon": "50", "ethernet_mac_address": "` + mac1 + `"},
  {"id": "a", "type": "phy", "ethernet_mac_address": "` + mac0 + `"},
  {"id": "b", "type": "phy", "ethernet_mac_address": "` + mac1 + `"},
  {"id": "c", "type": "phy", "ethernet_mac_address": "` + mac2 + `"}],
 "networks": [
  {"id": "n1", "type": "ipv4", "link": "bond0", "ip_address": "198.51.100.21", "netmask": "255.255.255.0", "gateway": "198.51.100.1"},
  {"id": "n2", "type": "ipv4", "link": "bond0", "ip_address": "203.0.113.21", "netmask": "255.255.255.0", "routes": [{"network": "10.9.0.0/16", "gateway": "203.0.113.1"}]}]}`},
}
