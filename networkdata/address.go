package networkdata

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"salvor/problem"
)

// Metrics of routes. firstMetric leaves room below it; the kernel gives 1024 to routes of router advertisements.
const (
	firstMetric = 100
	metricStep  = 4 // how many routes to one destination a network may have before metrics meet
	onLinkLater = 2048
)

// addNetwork reads the network at a position of the data.
func (d *Data) addNetwork(i int, g dataNetwork) {
	for _, service := range bounded(d, fmt.Sprintf("networks[%d].services", i), g.Services, maxServers) {
		d.addDNS(service)
	}
	for _, server := range bounded(d, fmt.Sprintf("networks[%d].dns_nameservers", i), g.DNS, maxServers) {
		d.addDNS(dataService{Type: "dns", Address: server})
	}
	name := "network " + quote(g.ID)
	if g.ID == "" {
		name = fmt.Sprintf("networks[%d]", i)
	}
	if g.Address != "" {
		name += " (" + strings.Trim(quote(g.Address), `"`) + ")"
	}
	g.Link = d.standsFor(g.Link)
	n := Network{ID: g.ID, Link: g.Link, Metric: firstMetric + metricStep*i}
	switch {
	case g.Link == "":
		d.leaveOut("%s: it names no link", name)
		return
	case d.lost[g.Link] != "":
		d.leaveOut("%s: its link %s is left out", name, quote(g.Link))
		return
	case d.Link(g.Link) == nil:
		d.leaveOut("%s: there is no link %s", name, quote(g.Link))
		return
	}
	if bond := d.BondOf(g.Link); bond != nil {
		n.Link = bond.ID // a member has no addresses of its own
	}
	if !d.readMethod(&n, name, g) {
		return
	}
	for _, other := range d.Networks {
		switch {
		case other.Method == Static && n.Method == Static && other.Address.Addr() == n.Address.Addr():
			if other.Link != n.Link {
				d.leaveOut("%s: network %s has the same address on another link", name, quote(other.ID))
				return
			}
		case other.Method == n.Method && other.Link == n.Link && n.Method != Static:
			return // one asks for both
		}
	}
	d.Networks = append(d.Networks, n)
}

// readMethod reads the type and what belongs to it. False: the network is left out.
func (d *Data) readMethod(n *Network, name string, g dataNetwork) bool {
	kind := strings.ToLower(strings.TrimSpace(g.Type))
	switch {
	case kind == "ipv4" || kind == "ipv6" || kind == "" && g.Address != "":
		return d.readStatic(n, name, g)
	case kind == "ipv4_dhcp":
		n.Method = DHCP4
	case kind == "ipv6_dhcpv6-stateless":
		n.Method = Info6
	case kind == "ipv6_dhcp" || kind == "ipv6_dhcpv6-stateful":
		n.Method = DHCP6
	case kind == "ipv6_slaac":
		n.Method = Router6
	case g.Address != "": // an address can be set, whatever its network is called
		d.leaveOut("%s: its type %s is not known, so its address is set as it stands", name, quote(g.Type))
		return d.readStatic(n, name, g)
	case strings.HasPrefix(kind, "ipv6"):
		d.leaveOut("%s: its type %s is not known, so router advertisements are followed", name, quote(g.Type))
		n.Method = Router6
	default:
		d.leaveOut("%s: its type %s is not known", name, quote(g.Type))
		return false
	}
	return true
}

func (d *Data) readStatic(n *Network, name string, g dataNetwork) bool {
	address, mask := splitPrefix(g.Address, g.Netmask)
	a, ok := parseAddr(address)
	switch {
	case !ok:
		d.leaveOut("%s: %s is no address", name, quote(g.Address))
		return false
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		d.leaveOut("%s: %s is no address for a machine", name, a)
		return false
	case a.IsLinkLocalUnicast():
		d.leaveOut("%s: ssh does not listen on %s, which is an address of one link only", name, a)
	}
	length := a.BitLen()
	if mask == "" {
		d.leaveOut("%s: it has no netmask, so its neighbours are reached by its gateway only", name)
	} else if given, err := parseMask(mask, a); err != nil || given == 0 {
		d.leaveOut("%s: %s is no netmask of the address, so its neighbours are reached by its gateway only", name, quote(mask))
	} else {
		length = given
	}
	n.Address = netip.PrefixFrom(a, length)
	for _, r := range elements[dataRoute](d, name+": routes", g.Routes[:min(len(g.Routes), maxRoutes+1)]) {
		if d.routes++; d.routes > maxRoutes {
			d.leaveOut("%s: there are more than %d routes", name, maxRoutes)
			break
		}
		route, err := readRoute(r.value, n.Address)
		if err != nil {
			d.leaveOut("%s: routes[%d] to %s: %v", name, r.index, quote(r.value.Network), err)
			continue
		}
		n.addRoute(route)
	}
	if gateway := strings.TrimSpace(g.Gateway); gateway != "" {
		route, err := readRoute(dataRoute{Network: "default", Gateway: gateway}, n.Address)
		switch {
		case err != nil:
			d.leaveOut("%s: %v", name, err)
		case route.Via.IsValid(): // 0.0.0.0 here means that there is none
			n.addRoute(route)
		}
	}
	return true
}

// addRoute adds a route once, with a metric behind those of earlier routes to the same destination. A default route on the link comes last of all:
// it reaches only what answers for others.
func (n *Network) addRoute(route Route) {
	route.Metric = n.Metric
	for _, r := range n.Routes {
		if r.To == route.To && r.Via == route.Via {
			return
		}
		if r.To == route.To && route.Metric < n.Metric+metricStep-1 {
			route.Metric++
		}
	}
	if route.IsDefault() && !route.Via.IsValid() {
		route.Metric += onLinkLater
	}
	n.Routes = append(n.Routes, route)
}

// readRoute reads a route of a network with this address.
func readRoute(r dataRoute, own netip.Prefix) (Route, error) {
	via, ok := parseAddr(r.Gateway)
	switch {
	case strings.TrimSpace(r.Gateway) == "":
		return Route{}, problem.Invalidf("it has no gateway")
	case !ok:
		return Route{}, problem.Invalidf("gateway %s is no address", quote(r.Gateway))
	case via.Is4() != own.Addr().Is4():
		return Route{}, problem.Invalidf("gateway %s is of the other address family than %s", via, own.Addr())
	case via.IsMulticast() || via.IsLoopback():
		return Route{}, problem.Invalidf("gateway %s is no address of a router", via)
	case via == own.Addr():
		return Route{}, problem.Invalidf("gateway %s is the machine's own address", via)
	}
	to, err := readDestination(r, own.Addr())
	if err != nil {
		return Route{}, err
	}
	if via.IsUnspecified() {
		via = netip.Addr{}
	}
	return Route{To: to, Via: via}, nil
}

// readDestination reads the network that a route leads to. Without a netmask only 0.0.0.0, :: and default are clear.
func readDestination(r dataRoute, own netip.Addr) (netip.Prefix, error) {
	address, mask := splitPrefix(r.Network, r.Netmask)
	everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if own.Is6() {
		everywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	if strings.EqualFold(address, "default") {
		return everywhere, nil
	}
	to, ok := parseAddr(address)
	switch {
	case !ok:
		return netip.Prefix{}, problem.Invalidf("%s is no network", quote(r.Network))
	case to.Is4() != own.Is4():
		return netip.Prefix{}, problem.Invalidf("it is of the other address family than %s", own)
	case mask == "" && to.IsUnspecified():
		return everywhere, nil
	case mask == "":
		return netip.Prefix{}, problem.Invalidf("it has no netmask")
	}
	length, err := parseMask(mask, to)
	if err != nil {
		return netip.Prefix{}, err
	}
	p := netip.PrefixFrom(to, length).Masked()
	if p.Addr().IsMulticast() || p.Addr().IsLoopback() {
		return netip.Prefix{}, problem.Invalidf("%s is no network that a router leads to", p)
	}
	return p, nil
}

// splitPrefix takes the length of a network from behind the slash of an address, or else from the netmask beside it.
func splitPrefix(address, mask string) (string, string) {
	if text, length, ok := strings.Cut(address, "/"); ok {
		address, mask = text, length
	}
	return strings.TrimSpace(address), strings.TrimPrefix(strings.TrimSpace(mask), "/")
}

// parseAddr reads an address without a zone, also in brackets.
func parseAddr(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(text), "[]"))
	return a.Unmap(), err == nil && a.Zone() == ""
}

// parseMask reads the length of a network, or its mask (255.255.255.0, ffff:ffff::), for an address.
func parseMask(mask string, of netip.Addr) (int, error) {
	if n, err := strconv.Atoi(mask); err == nil {
		if n < 0 || n > of.BitLen() {
			return 0, problem.Invalidf("netmask %s is not within 0 to %d", quote(mask), of.BitLen())
		}
		return n, nil
	}
	a, err := netip.ParseAddr(mask)
	if err != nil || a.Zone() != "" || a.Is4() != of.Is4() {
		return 0, problem.Invalidf("%s is no netmask of %s", quote(mask), of)
	}
	length, ended := 0, false
	for _, b := range a.AsSlice() {
		ones := bits.LeadingZeros8(^b)
		if ended && b != 0 || b<<ones != 0 {
			return 0, problem.Invalidf("%s is no netmask: its ones are not in one piece", quote(mask))
		}
		length += ones
		ended = ended || ones < 8
	}
	return length, nil
}
