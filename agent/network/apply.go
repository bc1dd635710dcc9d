package network

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"salvor/problem"
)

// listNICs are the machine's own Ethernet NICs: what is made on top of them is left out.
func listNICs() ([]netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list NICs: %w", err)
	}
	var found []netlink.Link
	for _, link := range links {
		a := link.Attrs()
		switch link.Type() {
		case "device", "veth", "dummy":
			if a.Flags&net.FlagLoopback == 0 && len(a.HardwareAddr) == 6 {
				found = append(found, link)
			}
		}
	}
	return found, nil
}

// buildLinks finds the physical links of a config, makes the others and sets all of them
// up. The result is by id. What it made is gone again if it fails.
func buildLinks(config *Config) (map[string]netlink.Link, error) {
	present, err := listNICs()
	if err != nil {
		return nil, err
	}
	made := map[string]netlink.Link{}
	for i, link := range config.Links {
		switch link.Kind {
		case Physical:
			made[link.ID], err = findLink(present, link)
		case Bond:
			made[link.ID], err = makeBond(link, made, i)
		case VLAN:
			made[link.ID], err = makeVLAN(link, made, i)
		}
		if err == nil {
			err = setLinkUp(made[link.ID], link.MTU)
		}
		if err != nil {
			removeLinks(config, made)
			return nil, fmt.Errorf("link %.60q: %w", link.ID, err)
		}
	}
	return made, nil
}

// removeLinks takes bonds and VLANs away, the last first; members become NICs again.
func removeLinks(config *Config, made map[string]netlink.Link) {
	for _, link := range slices.Backward(config.Links) {
		if on := made[link.ID]; on != nil && link.Kind != Physical {
			_ = netlink.LinkDel(on) // the caller falls back to what is there
		}
	}
}

// createLink makes a link anew: one of this name is of an earlier try, or the bond0 that
// the kernel's module brings along.
func createLink(link netlink.Link) error {
	if old, err := netlink.LinkByName(link.Attrs().Name); err == nil {
		if err := netlink.LinkDel(old); err != nil {
			return fmt.Errorf("remove old %s: %w", link.Attrs().Name, err)
		}
	}
	return netlink.LinkAdd(link)
}

func findLink(present []netlink.Link, wanted Link) (netlink.Link, error) {
	for _, link := range present {
		a := link.Attrs()
		if bytes.Equal(a.HardwareAddr, wanted.MAC) || bytes.Equal(a.PermHWAddr, wanted.MAC) {
			return link, nil
		}
	}
	return nil, problem.NotFoundf("no NIC has the MAC %s", wanted.MAC)
}

func setLinkUp(link netlink.Link, mtu int) error {
	if mtu != 0 && link.Attrs().MTU != mtu {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set mtu %d: %w", mtu, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

func makeBond(link Link, made map[string]netlink.Link, number int) (netlink.Link, error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = fmt.Sprintf("bond%d", number)
	attributes.HardwareAddr = link.MAC
	bond := netlink.NewLinkBond(attributes)
	bond.Mode = netlink.StringToBondMode(link.Mode)
	bond.Miimon = link.Miimon
	if link.HashPolicy != "" {
		policy := netlink.StringToBondXmitHashPolicy(link.HashPolicy)
		if policy == netlink.BOND_XMIT_HASH_POLICY_UNKNOWN {
			return nil, problem.Invalidf("bond_xmit_hash_policy %.40q is not known", link.HashPolicy)
		}
		bond.XmitHashPolicy = policy
	}
	if err := createLink(bond); err != nil {
		return nil, fmt.Errorf("make bond: %w", err)
	}
	for _, id := range link.Members {
		member := made[id]
		if err := netlink.LinkSetDown(member); err != nil { // a bond takes only what is down
			return bond, fmt.Errorf("set %s down: %w", member.Attrs().Name, err)
		}
		if err := netlink.LinkSetMaster(member, bond); err != nil {
			return bond, fmt.Errorf("put %s into the bond: %w", member.Attrs().Name, err)
		}
		if err := netlink.LinkSetUp(member); err != nil {
			return bond, fmt.Errorf("set %s up: %w", member.Attrs().Name, err)
		}
	}
	return netlink.LinkByName(attributes.Name)
}

func makeVLAN(link Link, made map[string]netlink.Link, number int) (netlink.Link, error) {
	parent := made[link.Parent]
	attributes := netlink.NewLinkAttrs()
	attributes.Name = fmt.Sprintf("vlan%d.%d", number, link.Tag)
	attributes.ParentIndex = parent.Attrs().Index
	attributes.HardwareAddr = link.MAC
	if err := createLink(&netlink.Vlan{LinkAttrs: attributes, VlanId: link.Tag}); err != nil {
		return nil, fmt.Errorf("make vlan %d on %s: %w", link.Tag, parent.Attrs().Name, err)
	}
	return netlink.LinkByName(attributes.Name)
}

// setAddress adds one address and the routes over it.
func setAddress(link netlink.Link, address netip.Prefix, routes []Route) error {
	own := &netlink.Addr{IPNet: ipNet(address)}
	if address.Addr().Is6() {
		own.Flags = unix.IFA_F_NODAD // else ssh cannot listen on it for a second
	}
	if err := netlink.AddrReplace(link, own); err != nil {
		return fmt.Errorf("add address %s to %s: %w", address, link.Attrs().Name, err)
	}
	for _, route := range routes {
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(route.To), Gw: route.Via.AsSlice()}
		if !address.Masked().Contains(route.Via) && !route.Via.IsLinkLocalUnicast() {
			r.Flags = int(netlink.FLAG_ONLINK)
		}
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("route %s by %s on %s: %w", route.To, route.Via, link.Attrs().Name, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// dropAddresses takes the IPv4 addresses from a link, except one; the kernel takes
// the routes with them. What the rescuing network gave must not live on in the tenant's.
func dropAddresses(link netlink.Link, except netip.Prefix) error {
	held, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, address := range held {
		if except.IsValid() && address.IPNet.String() == ipNet(except).String() {
			continue
		}
		if err := netlink.AddrDel(link, &address); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("drop address %s of %s: %w", address.IPNet, link.Attrs().Name, err)
		}
	}
	return nil
}

// renewIPv6 makes the kernel forget the addresses and routes of the network that was
// left and ask the routers of the new one.
func renewIPv6(name string) {
	file := "/proc/sys/net/ipv6/conf/" + strings.ReplaceAll(name, "/", "_") + "/disable_ipv6"
	for _, value := range []string{"1", "0"} {
		if os.WriteFile(file, []byte(value), 0) != nil {
			return // a kernel without IPv6
		}
	}
}

// listenAddresses are those on which a service can listen, of the given links.
func listenAddresses(links []netlink.Link) ([]netip.Addr, error) {
	var found []netip.Addr
	for _, link := range links {
		held, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
		}
		for _, address := range held {
			a, ok := netip.AddrFromSlice(address.IP)
			a = a.Unmap()
			if !ok || !a.IsGlobalUnicast() || address.Flags&unix.IFA_F_TENTATIVE != 0 || slices.Contains(found, a) {
				continue
			}
			found = append(found, a)
		}
	}
	return found, nil
}
