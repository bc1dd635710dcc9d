package metal

import (
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
)

// network_data is what OpenStack calls network_data.json: links, networks on them and services such as DNS. A client's is held to the schema that
// Ironic holds it to. The agent follows more, see package networkdata.

// Bounds of network_data.
const (
	maxDataLinks    = 256
	maxDataNetworks = 256
	maxDataServices = 64
	maxDataRoutes   = 1024
)

var (
	dataLinkTypes = []string{"bridge", "dvs", "hw_veb", "hyperv", "ovs", "phy", "tap", "vhostuser", "vif"}
	dataNetTypes  = []string{"ipv4", "ipv4_dhcp", "ipv6", "ipv6_dhcp", "ipv6_slaac", "ipv6_dhcpv6-stateful", "ipv6_dhcpv6-stateless"}
	// 802.1ad is how Ironic's schema spells 802.3ad.
	dataBondModes = []string{"802.1ad", "802.3ad", "active-backup", "balance-alb", "balance-rr", "balance-tlb", "balance-xor", "broadcast"}
	dataMAC       = regexp.MustCompile(`^(?i)([0-9a-f]{2}[:-]){5}[0-9a-f]{2}$`)
)

// ParseNetworkData holds the network_data that a client gives to its schema; an empty object removes it.
func ParseNetworkData(o Object) error {
	if len(o) == 0 {
		return nil
	}
	d := &networkData{links: map[string]string{}}
	if err := d.read(o); err != nil {
		return problem.Invalidf("network_data: %w", err)
	}
	return nil
}

// networkData reads one object.
type networkData struct {
	links  map[string]string // type by id
	routes int
}

func (d *networkData) read(o Object) error {
	links, err := d.list(o, "links", maxDataLinks)
	if err != nil {
		return err
	}
	for i, link := range links {
		if err := d.link(link); err != nil {
			return problem.Invalidf("links[%d]: %w", i, err)
		}
	}
	for i, link := range links {
		if err := d.stands(link); err != nil {
			return problem.Invalidf("links[%d]: %w", i, err)
		}
	}
	networks, err := d.list(o, "networks", maxDataNetworks)
	if err != nil {
		return err
	}
	for i, network := range networks {
		if err := d.network(network); err != nil {
			return problem.Invalidf("networks[%d]: %w", i, err)
		}
	}
	return d.services(o)
}

// list reads a list of objects.
func (d *networkData) list(o Object, key string, most int) ([]map[string]any, error) {
	v, ok := o[key]
	if !ok {
		return nil, problem.Invalidf("%s is missing: want links, networks and services", key)
	}
	all, ok := v.([]any)
	if !ok || len(all) > most {
		return nil, problem.Invalidf("%s must be a list of at most %d objects", key, most)
	}
	out := make([]map[string]any, len(all))
	for i, e := range all {
		if out[i], ok = e.(map[string]any); !ok {
			return nil, problem.Invalidf("%s[%d] must be an object", key, i)
		}
	}
	return out, nil
}

// stringValue reads a string. A key that is needed must be there; one that is not may be absent or null.
func (d *networkData) stringValue(o map[string]any, key string, needed bool) (string, error) {
	v, there := o[key]
	s, ok := v.(string)
	switch {
	case ok && (s != "" || !needed):
		return s, nil
	case !there && needed:
		return "", problem.Invalidf("%s is missing", key)
	case v == nil && !needed:
		return "", nil
	}
	return "", problem.Invalidf("%s must be a string", key)
}

func (d *networkData) mac(o map[string]any, key string, needed bool) error {
	text, err := d.stringValue(o, key, needed)
	if err == nil && text != "" && !dataMAC.MatchString(text) {
		err = problem.Invalidf("%s %.40q is no MAC address", key, text)
	}
	return err
}

func (d *networkData) link(o map[string]any) error {
	id, err := d.stringValue(o, "id", true)
	if err != nil {
		return err
	}
	kind, err := d.stringValue(o, "type", true)
	if err != nil {
		return err
	}
	if _, twice := d.links[id]; twice {
		return problem.Invalidf("id %.60q is given twice", id)
	}
	kind = strings.ToLower(kind)
	if kind != "bond" && kind != "vlan" && !slices.Contains(dataLinkTypes, kind) {
		return problem.Invalidf("type %.40q is not known: use bond, vlan, %s", kind, strings.Join(dataLinkTypes, ", "))
	}
	d.links[id] = kind
	if mtu := o["mtu"]; mtu != nil {
		if n, ok := wholeNumber(mtu); !ok || n > 65535 || n < 1 {
			return problem.Invalidf("mtu must be a number from 1 to 65535")
		}
	}
	switch kind {
	case "vlan":
		return d.mac(o, "vlan_mac_address", true)
	}
	return d.mac(o, "ethernet_mac_address", true)
}

// stands checks what a bond or a VLAN stands on.
func (d *networkData) stands(o map[string]any) error {
	id, _ := o["id"].(string)
	switch d.links[id] {
	case "bond":
		members, ok := o["bond_links"].([]any)
		if !ok || len(members) == 0 {
			return problem.Invalidf("bond_links must name the links of the bond")
		}
		for _, m := range members {
			name, _ := m.(string)
			if kind, known := d.links[name]; !known || kind == "bond" || kind == "vlan" {
				return problem.Invalidf("bond_links names %.60q, which is no physical link here", name)
			}
		}
		mode, text := o["bond_mode"].(string)
		if !text || !slices.Contains(dataBondModes, mode) {
			return problem.Invalidf("bond_mode must be one of %s", strings.Join(dataBondModes, ", "))
		}
	case "vlan":
		parent, _ := o["vlan_link"].(string)
		if kind, known := d.links[parent]; !known || kind == "vlan" {
			return problem.Invalidf("vlan_link names %.60q, which is no physical link or bond here", parent)
		}
		if tag, ok := wholeNumber(o["vlan_id"]); !ok || tag < 1 || tag > 4094 {
			return problem.Invalidf("vlan_id must be a number from 1 to 4094")
		}
	}
	return nil
}

// wholeNumber reads a number, or its digits in a string.
func wholeNumber(v any) (int, bool) {
	switch v := v.(type) {
	case float64:
		return int(v), v == math.Trunc(v) && math.Abs(v) < 1<<31
	case string:
		n, err := strconv.Atoi(strings.TrimSpace(v))
		return n, err == nil
	}
	return 0, false
}

func (d *networkData) network(o map[string]any) error {
	for _, key := range []string{"id", "network_id"} {
		if _, err := d.stringValue(o, key, true); err != nil {
			return err
		}
	}
	link, err := d.stringValue(o, "link", true)
	if err != nil {
		return err
	}
	if _, known := d.links[link]; !known {
		return problem.Invalidf("link names %.60q, which is no link here", link)
	}
	kind, err := d.stringValue(o, "type", true)
	if err != nil {
		return err
	}
	kind = strings.ToLower(kind)
	if !slices.Contains(dataNetTypes, kind) {
		return problem.Invalidf("type %.40q is not known: use %s", kind, strings.Join(dataNetTypes, ", "))
	}
	if kind == "ipv4" || kind == "ipv6" {
		if err := d.static(o, kind); err != nil {
			return err
		}
	}
	return d.services(Object{"services": firstOf(o["services"], []any{})})
}

func firstOf(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}

// static checks the address of a network that asks nobody for it, and its routes.
func (d *networkData) static(o map[string]any, kind string) error {
	address, err := d.stringValue(o, "ip_address", true)
	if err != nil {
		return err
	}
	if err := d.prefix("ip_address", address, o["netmask"], kind); err != nil {
		return err
	}
	if gateway, err := d.stringValue(o, "gateway", false); err != nil || gateway != "" && !ofFamily(gateway, kind) {
		return problem.Invalidf("gateway is no %s address", kind)
	}
	routes, err := d.list(Object{"routes": firstOf(o["routes"], []any{})}, "routes", maxDataRoutes)
	if err != nil {
		return err
	}
	if d.routes += len(routes); d.routes > maxDataRoutes {
		return problem.Invalidf("there are more than %d routes", maxDataRoutes)
	}
	for i, r := range routes {
		to, err := d.stringValue(r, "network", true)
		if err == nil {
			err = d.prefix("network", to, r["netmask"], kind)
		}
		if via, _ := r["gateway"].(string); err == nil && !ofFamily(via, kind) {
			err = problem.Invalidf("gateway %.60q is no %s address", via, kind)
		}
		if err != nil {
			return problem.Invalidf("routes[%d]: %w", i, err)
		}
	}
	return nil
}

// prefix wants an address of the family with the length of its network: behind a slash, or as a mask beside it.
func (d *networkData) prefix(key, address string, mask any, kind string) error {
	bare, length, slash := strings.Cut(address, "/")
	if !ofFamily(bare, kind) {
		return problem.Invalidf("%s %.60q is no %s address", key, address, kind)
	}
	if slash {
		if _, err := netip.ParsePrefix(bare + "/" + length); err != nil {
			return problem.Invalidf("%s %.60q has no valid prefix length", key, address)
		}
		return nil
	}
	if n, ok := wholeNumber(mask); ok {
		if bits := map[string]int{"ipv4": 32, "ipv6": 128}[kind]; n < 0 || n > bits {
			return problem.Invalidf("netmask must be a mask, or a length up to %d", bits)
		}
		return nil
	}
	text, _ := mask.(string)
	if !isMask(text, kind) {
		return problem.Invalidf("netmask %.60q is no %s mask", text, kind)
	}
	return nil
}

// isMask tells whether a text is ones followed by zeros, as an address of the family.
func isMask(text, kind string) bool {
	if !ofFamily(text, kind) {
		return false
	}
	zero := false
	for _, b := range netip.MustParseAddr(text).AsSlice() {
		for bit := 7; bit >= 0; bit-- {
			one := b>>bit&1 == 1
			if one && zero {
				return false
			}
			zero = zero || !one
		}
	}
	return true
}

func ofFamily(text, kind string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Zone() == "" && a.Is4() == strings.HasPrefix(kind, "ipv4")
}

func (d *networkData) services(o Object) error {
	all, err := d.list(o, "services", maxDataServices)
	if err != nil {
		return err
	}
	for i, s := range all {
		kind, err := d.stringValue(s, "type", true)
		if err != nil {
			return problem.Invalidf("services[%d]: %w", i, err)
		}
		address, _ := s["address"].(string)
		if _, err := netip.ParseAddr(address); kind != "dns" || err != nil {
			return problem.Invalidf("services[%d]: want type dns and an address", i)
		}
	}
	return nil
}
