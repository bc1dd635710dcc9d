package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"salvor/lab/odd"
)

// look tells why a claim is not there; nil: it is.
func (r *oddRun) look(c odd.NetworkClaim) error {
	switch c.Kind {
	case odd.ClaimAddress:
		if !slices.Contains(r.listen, c.Address) {
			return fmt.Errorf("ssh listens on %s", r.listen)
		}
		if !c.Dial {
			return nil
		}
		return r.dial(c.On, c.Address, odd.Neighbour(c.Address), netip.Addr{})
	case odd.ClaimLease:
		return r.dialLease(c)
	case odd.ClaimRoute:
		if err := hasRoute(c); err != nil || !c.Dial {
			return err
		}
		return r.dial(c.On, c.Address, c.Far, c.Via)
	case odd.ClaimDNS:
		if !strings.Contains(r.dns, "nameserver "+c.DNS.String()+"\n") {
			return fmt.Errorf("resolv.conf has %q", r.dns)
		}
		return nil
	case odd.ClaimMTU, odd.ClaimLink:
		return lookAtLink(c)
	}
	return fmt.Errorf("it cannot be had")
}

func (r *oddRun) dial(on odd.LinkPlace, to, source, gateway netip.Addr) error {
	device, err := r.world.device(on)
	if err != nil {
		return err
	}
	r.result.Dials++
	if err = r.world.dial(device, to, source, gateway, 3*time.Second); err != nil { // a cable that has just come up may lose the first packets
		err = r.world.dial(device, to, source, gateway, 3*time.Second)
	}
	return err
}

// dialLease connects to an address by DHCP: of the claim's device, or of any where that is not known.
func (r *oddRun) dialLease(c odd.NetworkClaim) error {
	a := r.leaseOf(c)
	if !a.IsValid() {
		return fmt.Errorf("ssh listens on %s, leases are of %v", r.listen, r.world.devices)
	}
	for device, server := range r.world.devices {
		if own, _ := netip.AddrFromSlice(server); netip.PrefixFrom(own, 24).Masked().Contains(a) {
			r.result.Dials++
			return r.world.dial(device, a, own, netip.Addr{}, 3*time.Second)
		}
	}
	return nil
}

// leaseOf is the address by DHCP of a claim's device, or of any where that is not known; not valid: there is none.
func (r *oddRun) leaseOf(c odd.NetworkClaim) netip.Addr {
	want := ""
	if c.On.Segment >= 0 {
		want, _ = r.world.device(c.On)
	}
	for device, server := range r.world.devices {
		own, _ := netip.AddrFromSlice(server)
		for _, a := range r.listen {
			if (want == "" || want == device) && netip.PrefixFrom(own, 24).Masked().Contains(a) {
				return a
			}
		}
	}
	return netip.Addr{}
}

// hasRoute asks the kernel for the route of a claim.
func hasRoute(c odd.NetworkClaim) error {
	family := netlink.FAMILY_V4
	if c.To.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := dumped(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
	if err != nil {
		return err
	}
	for _, route := range routes {
		to := "default"
		if route.Dst != nil {
			if ones, _ := route.Dst.Mask.Size(); ones > 0 {
				to = route.Dst.String()
			}
		}
		via, _ := netip.AddrFromSlice(route.Gw)
		if via.Unmap() == c.Via && (to == c.To.String() || to == "default" && c.To.Bits() == 0) {
			return nil
		}
	}
	return fmt.Errorf("the kernel has no such route")
}

// lookAtLink asks the kernel for the bond, the VLAN or the mtu of a claim.
func lookAtLink(c odd.NetworkClaim) error {
	links, err := dumped(netlink.LinkList)
	if err != nil {
		return err
	}
	var on netlink.Link
	for _, link := range links {
		switch l := link.(type) {
		case *netlink.Bond:
			if c.On.Stack == "bond" && hasMember(links, l, c.On) {
				on = l
				if c.Kind == odd.ClaimLink && c.On.Mode != "" && l.Mode.String() != c.On.Mode {
					return fmt.Errorf("the mode is %s, not %s", l.Mode, c.On.Mode)
				}
			}
		case *netlink.Vlan:
			if c.On.Stack == "vlan" && l.VlanId == c.On.Tag && standsOn(links, l, c.On) {
				on = l
			}
		default:
			if c.On.Stack == "nic" && isOneOf(link, c.On) {
				on = link
			}
		}
	}
	switch {
	case on == nil:
		return fmt.Errorf("there is no %s on the NICs %v", c.On.Stack, c.On.NICs)
	case c.Kind == odd.ClaimMTU && on.Attrs().MTU != c.MTU:
		return fmt.Errorf("the mtu is %d", on.Attrs().MTU)
	}
	return nil
}

// isOneOf tells whether a link is a NIC of the place.
func isOneOf(link netlink.Link, on odd.LinkPlace) bool {
	return slices.ContainsFunc(on.NICs, func(number int) bool { return link.Attrs().Name == "n"+strconv.Itoa(number) })
}

// hasMember tells whether a NIC of the place is in the bond.
func hasMember(links []netlink.Link, bond netlink.Link, on odd.LinkPlace) bool {
	return slices.ContainsFunc(links, func(l netlink.Link) bool {
		return l.Attrs().MasterIndex == bond.Attrs().Index && isOneOf(l, on)
	})
}

// standsOn tells whether a VLAN is on a NIC of the place, or on a bond of that.
func standsOn(links []netlink.Link, vlan *netlink.Vlan, on odd.LinkPlace) bool {
	return slices.ContainsFunc(links, func(l netlink.Link) bool {
		return l.Attrs().Index == vlan.Attrs().ParentIndex && (isOneOf(l, on) || hasMember(links, l, on))
	})
}

// addressOnMember tells which member of a bond has an address. The kernel hands what a member receives to its bond, so no connection comes up there.
func addressOnMember() error {
	links, err := dumped(netlink.LinkList)
	if err != nil {
		return err
	}
	for _, link := range links {
		if link.Attrs().MasterIndex == 0 {
			continue
		}
		held, err := listenAddresses([]netlink.Link{link})
		if err != nil || len(held) > 0 {
			return fmt.Errorf("%s is a member of a bond and has the addresses %s, %v", link.Attrs().Name, held, err)
		}
	}
	return nil
}
