package network

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"salvor/networkdata"
)

// Route is a networkdata.Route.
type Route = networkdata.Route

// addRoute adds one route for a machine with this address on the link. A gateway outside of the address's network is reached on the link.
func addRoute(link netlink.Link, address netip.Prefix, route Route) error {
	if err := netlink.RouteReplace(kernelRoute(link, address, route)); err != nil {
		return fmt.Errorf("route to %s by %s on %s: %w", route.To, gatewayName(route), link.Attrs().Name, err)
	}
	return nil
}

func gatewayName(route Route) string {
	if !route.Via.IsValid() {
		return "the link itself"
	}
	return route.Via.String()
}

func kernelRoute(link netlink.Link, address netip.Prefix, route Route) *netlink.Route {
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(route.To), Priority: route.Metric}
	switch {
	case !route.Via.IsValid():
		r.Scope = netlink.SCOPE_LINK
	case !address.Masked().Contains(route.Via) && !route.Via.IsLinkLocalUnicast():
		r.Gw, r.Flags = route.Via.AsSlice(), int(netlink.FLAG_ONLINK)
	default:
		r.Gw = route.Via.AsSlice()
	}
	return r
}

// source is an address with a default route of its own.
type source struct {
	link    netlink.Link
	address netip.Prefix
	route   Route
}

const (
	// mainFirst is the priority of the rule by which routes to known networks go before default routes by source; the rules by source follow it.
	mainFirst = 1000
	// firstTable is the routing table of the first rule by source.
	firstTable = 1000
)

// routeBySource lets answers leave by the network that their address belongs to, where several networks have a default route. Without it all answers
// would take the default route of the first network, and the others' routers may drop them. A kernel without such rules uses metrics alone.
func (s *Setup) routeBySource() {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		var of []source
		for _, src := range s.sources {
			if src.address.Addr().Is4() == (family == unix.AF_INET) {
				of = append(of, src)
			}
		}
		if len(of) < 2 {
			continue
		}
		rule := netlink.NewRule()
		rule.Family, rule.Priority, rule.Table, rule.SuppressPrefixlen = family, mainFirst, unix.RT_TABLE_MAIN, 0
		if err := addRule(rule); err != nil {
			s.Log.Warn("answers leave by the first default route", "error", err)
			return
		}
		for i, src := range of {
			r := kernelRoute(src.link, src.address, src.route)
			r.Table = firstTable + i
			if family == unix.AF_INET6 {
				r.Table += maxSources
			}
			rule := netlink.NewRule()
			rule.Family, rule.Priority, rule.Table = family, mainFirst+1+i, r.Table
			rule.Src = &net.IPNet{IP: src.address.Addr().AsSlice(), Mask: net.CIDRMask(src.address.Addr().BitLen(), src.address.Addr().BitLen())}
			err := netlink.RouteReplace(r)
			if err == nil {
				err = addRule(rule)
			}
			if err != nil {
				s.Log.Warn("answers leave by the first default route", "address", src.address.Addr(), "error", err)
			}
		}
	}
}

// maxSources separates the routing tables of IPv4 from those of IPv6.
const maxSources = 1000

// addRule adds a rule in place of one that an earlier try left at the same priority.
func addRule(rule *netlink.Rule) error {
	old := netlink.NewRule()
	old.Family, old.Priority = rule.Family, rule.Priority
	for netlink.RuleDel(old) == nil {
	}
	return netlink.RuleAdd(rule)
}

// addSource notes a default route of an address.
func (s *Setup) addSource(link netlink.Link, address netip.Prefix, route Route) {
	if !route.IsDefault() {
		return
	}
	for i, src := range s.sources {
		if src.address.Addr() == address.Addr() {
			if route.Metric < src.route.Metric {
				s.sources[i] = source{link, address, route}
			}
			return
		}
	}
	s.sources = append(s.sources, source{link, address, route})
}
