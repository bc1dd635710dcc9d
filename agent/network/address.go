package network

import (
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"salvor/problem"
)

func (c *Config) addNetwork(d dataNetwork) error {
	if c.Link(d.Link) == nil {
		return problem.Invalidf("network data: network %.60q: there is no link %.60q", d.ID, d.Link)
	}
	n := Network{Link: d.Link}
	for _, service := range d.Services {
		c.addDNS(service)
	}
	for _, server := range d.DNS {
		c.addDNS(dataService{Type: "dns", Address: server})
	}
	switch kind := strings.ToLower(d.Type); {
	case kind == "ipv4", kind == "ipv6":
		if err := n.readStatic(d); err != nil {
			return err
		}
	case kind == "ipv4_dhcp":
		n.Method = DHCP4
	case strings.HasPrefix(kind, "ipv6"): // ipv6_dhcp, ipv6_slaac, ipv6_dhcpv6-stateful, ...
		n.Method = Router6
	default:
		return problem.Invalidf("network data: network %.60q: type %.60q is not known", d.ID, d.Type)
	}
	c.Networks = append(c.Networks, n)
	return nil
}

func (n *Network) readStatic(d dataNetwork) error {
	prefix, err := readPrefix(d.Address, jsonText(d.Netmask), true)
	if err != nil {
		return problem.Invalidf("network data: network %.60q: %w", d.ID, err)
	}
	if a := prefix.Addr(); a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
		return problem.Invalidf("network data: network %.60q: %s is no address for a machine", d.ID, a)
	}
	n.Address = prefix
	for _, r := range d.Routes {
		route, err := readRoute(r.Network, jsonText(r.Netmask), r.Gateway)
		if err == nil && route.Via.Is4() != prefix.Addr().Is4() {
			err = problem.Invalidf("gateway %s is of the other address family", route.Via)
		}
		if err != nil {
			return problem.Invalidf("network data: network %.60q: route to %.60q: %w", d.ID, r.Network, err)
		}
		n.addRoute(route)
	}
	if d.Gateway == "" {
		return nil
	}
	everywhere := "0.0.0.0/0"
	if prefix.Addr().Is6() {
		everywhere = "::/0"
	}
	route, err := readRoute(everywhere, "", d.Gateway)
	if err != nil || route.Via.Is4() != prefix.Addr().Is4() {
		return problem.Invalidf("network data: network %.60q: gateway %.60q is no address of its family", d.ID, d.Gateway)
	}
	n.addRoute(route)
	return nil
}

func (n *Network) addRoute(route Route) {
	if !slices.Contains(n.Routes, route) {
		n.Routes = append(n.Routes, route)
	}
}

func readRoute(network, mask, gateway string) (Route, error) {
	to, err := readPrefix(network, mask, false)
	if err != nil {
		return Route{}, err
	}
	via, err := netip.ParseAddr(gateway)
	if err != nil || via.Zone() != "" {
		return Route{}, problem.Invalidf("gateway %.60q is no address", gateway)
	}
	via = via.Unmap()
	if via.Is4() != to.Addr().Is4() {
		return Route{}, problem.Invalidf("gateway %s is of the other address family", via)
	}
	return Route{To: to.Masked(), Via: via}, nil
}

// readPrefix takes an address with a length in it ("10.0.0.1/24"), or with a mask or
// a length beside it. A host without any gets its family's full length if it may;
// a network without one must be 0.0.0.0 or ::.
func readPrefix(address, mask string, host bool) (netip.Prefix, error) {
	if text, length, ok := strings.Cut(strings.TrimSpace(address), "/"); ok {
		address, mask = text, length
	}
	a, err := netip.ParseAddr(strings.TrimSpace(address))
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, problem.Invalidf("%.60q is no address", address)
	}
	a = a.Unmap()
	length := 0
	switch {
	case mask != "":
		if length, err = readLength(mask); err != nil {
			return netip.Prefix{}, err
		}
	case host:
		length = a.BitLen()
	case !a.IsUnspecified():
		return netip.Prefix{}, problem.Invalidf("%s has no netmask", a)
	}
	prefix := netip.PrefixFrom(a, length)
	if !prefix.IsValid() {
		return netip.Prefix{}, problem.Invalidf("%s cannot have the netmask %.60q", a, mask)
	}
	return prefix, nil
}

// readLength reads "24", "255.255.255.0" or "ffff:ffff::".
func readLength(mask string) (int, error) {
	if n, err := strconv.Atoi(mask); err == nil {
		if n < 0 || n > 128 {
			return 0, problem.Invalidf("netmask %.60q is out of range", mask)
		}
		return n, nil
	}
	a, err := netip.ParseAddr(mask)
	if err != nil || a.Zone() != "" {
		return 0, problem.Invalidf("%.60q is no netmask", mask)
	}
	length, ended := 0, false
	for _, b := range a.AsSlice() {
		ones := bits.LeadingZeros8(^b)
		if (ended && b != 0) || b<<ones != 0 {
			return 0, problem.Invalidf("%.60q is no netmask: its ones are not in one piece", mask)
		}
		length += ones
		ended = ended || ones < 8
	}
	return length, nil
}

// addDNS takes servers once each and leaves what is no address: a machine without
// one name server can still be mended.
func (c *Config) addDNS(service dataService) {
	a, err := netip.ParseAddr(strings.TrimSpace(service.Address))
	if err != nil || !strings.EqualFold(service.Type, "dns") || len(c.DNS) >= maxServers {
		return
	}
	if a = a.Unmap(); !slices.Contains(c.DNS, a) {
		c.DNS = append(c.DNS, a)
	}
}
