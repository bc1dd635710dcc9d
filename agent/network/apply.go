package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"salvor/networkdata"
	"salvor/problem"
)

// dumpTries bounds how often the kernel is asked for a list.
const dumpTries = 20

// dumped asks the kernel for a list until nothing changed what the kernel lists while it answered.
func dumped[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumpTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// addressesOf are the addresses of a link.
func addressesOf(link netlink.Link, family int) ([]netlink.Addr, error) {
	held, err := dumped(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
	}
	return held, nil
}

// listNICs are the machine's own Ethernet NICs: what is made on top of them is left out.
func listNICs() ([]netlink.Link, error) {
	links, err := dumped(netlink.LinkList)
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

// stack is the links of a network_data.json as far as the machine has them. A link that cannot be had costs what stands on it, and no other; make
// may be called again for those that came meanwhile.
type stack struct {
	data *networkdata.Data
	made map[string]netlink.Link // by id
	// members are those links that are in their bond, by id.
	members map[string]bool
	report  *report
}

func newStack(data *networkdata.Data, r *report) *stack {
	return &stack{data: data, made: map[string]netlink.Link{}, members: map[string]bool{}, report: r}
}

// make finds the NICs that are not known yet, makes bonds and VLANs on the links that are there, and sets all of them up. make returns the ids of
// the links that are new.
func (s *stack) make() (came []string) {
	present, err := listNICs()
	if err != nil {
		s.report.set("links", err.Error())
		return nil
	}
	s.report.clear("links")
	for i := range s.data.Links {
		link := &s.data.Links[i]
		what := "link " + link.ID
		if s.made[link.ID] != nil {
			if link.Kind == networkdata.Bond {
				s.addMembers(link)
			}
			continue
		}
		on, err := s.makeOne(present, link, i)
		if err == nil {
			err = netlink.LinkSetUp(on)
		}
		if err != nil {
			s.remove(link, on)
			s.report.set(what, fmt.Sprintf("link %q: %v", link.ID, err))
			continue
		}
		s.made[link.ID] = on
		s.report.clear(what)
		s.setMTU(link)
		came = append(came, link.ID)
	}
	return came
}

func (s *stack) makeOne(present []netlink.Link, link *networkdata.Link, number int) (netlink.Link, error) {
	switch link.Kind {
	case networkdata.Bond:
		return s.makeBond(link, number)
	case networkdata.VLAN:
		return s.makeVLAN(link, number)
	}
	return s.findNIC(present, link.MAC)
}

// remove takes a bond or VLAN away that could not be finished; members become NICs again.
func (s *stack) remove(link *networkdata.Link, on netlink.Link) {
	if on == nil || link.Kind == networkdata.Physical {
		return
	}
	_ = netlink.LinkDel(on) // the next call makes it anew
	for _, id := range link.Members {
		delete(s.members, id)
	}
}

// complete tells whether each link is there, and each member in its bond.
func (s *stack) complete() bool {
	for _, link := range s.data.Links {
		if s.made[link.ID] == nil || slices.ContainsFunc(link.Members, func(id string) bool { return !s.members[id] }) {
			return false
		}
	}
	return true
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

// findNIC finds a NIC by its MAC: first by the one that it was made with, since a bond gives its own MAC to its members.
func (s *stack) findNIC(present []netlink.Link, mac string) (netlink.Link, error) {
	for _, nic := range present {
		if nic.Attrs().PermHWAddr.String() == mac {
			return nic, nil
		}
	}
	for _, nic := range present {
		if nic.Attrs().HardwareAddr.String() == mac && !s.isMember(nic) {
			return nic, nil
		}
	}
	return nil, problem.NotFoundf("%s", networkdata.NoNIC(mac))
}

// hardwareAddr is nil for no MAC.
func hardwareAddr(mac string) net.HardwareAddr {
	address, _ := net.ParseMAC(mac) // networkdata checked the form
	return address
}

// isMember tells whether a NIC has been put into a bond.
func (s *stack) isMember(nic netlink.Link) bool {
	for id := range s.members {
		if on := s.made[id]; on != nil && on.Attrs().Index == nic.Attrs().Index {
			return true
		}
	}
	return false
}

// setMTU follows the mtu of a link as far as the kernel does. A VLAN cannot have more than the link below, so that link gets as much if its own mtu
// is not given.
func (s *stack) setMTU(link *networkdata.Link) {
	on, what := s.made[link.ID], "mtu of link "+link.ID
	if link.MTU == 0 || on.Attrs().MTU == link.MTU {
		return
	}
	if parent := s.data.Link(link.Parent); parent != nil && parent.MTU == 0 {
		if below := s.made[parent.ID]; below.Attrs().MTU < link.MTU && netlink.LinkSetMTU(below, link.MTU) == nil {
			below.Attrs().MTU = link.MTU
		}
	}
	if err := netlink.LinkSetMTU(on, link.MTU); err != nil {
		s.report.set(what, fmt.Sprintf("link %q: mtu %d cannot be set, %d stays: %v", link.ID, link.MTU, on.Attrs().MTU, err))
		return
	}
	on.Attrs().MTU = link.MTU
	s.report.clear(what)
}

func (s *stack) makeBond(link *networkdata.Link, number int) (netlink.Link, error) {
	if !slices.ContainsFunc(link.Members, func(id string) bool { return s.made[id] != nil }) {
		return nil, problem.NotFoundf("%s", networkdata.NoMember)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = fmt.Sprintf("bond%d", number)
	attributes.HardwareAddr = hardwareAddr(link.MAC)
	bond := netlink.NewLinkBond(attributes)
	bond.Mode = netlink.StringToBondMode(link.Mode)
	bond.Miimon = link.Miimon
	if link.HashPolicy != "" {
		bond.XmitHashPolicy = netlink.StringToBondXmitHashPolicy(link.HashPolicy)
	}
	if err := createLink(bond); err != nil {
		return nil, fmt.Errorf("make bond: %w", err)
	}
	s.made[link.ID] = bond
	s.addMembers(link)
	delete(s.made, link.ID)
	if !slices.ContainsFunc(link.Members, func(id string) bool { return s.members[id] }) {
		return bond, problem.Unavailablef("none of its members can be put into it")
	}
	return netlink.LinkByName(attributes.Name)
}

// addMembers puts those members into a bond that are there and not in it.
func (s *stack) addMembers(link *networkdata.Link) {
	bond := s.made[link.ID]
	for _, id := range link.Members {
		what := "member " + id
		member := s.made[id]
		if member == nil || s.members[id] { // what is not there is told as a link
			continue
		}
		if err := addMember(bond, member); err != nil {
			s.report.set(what, fmt.Sprintf("link %q: member %q: %v", link.ID, id, err))
			_ = netlink.LinkSetUp(member)
			continue
		}
		s.members[id] = true
		s.report.clear(what)
	}
}

// addMember puts a NIC into a bond, without the addresses that the NIC has.
func addMember(bond, member netlink.Link) error {
	if err := dropAddresses(member); err != nil {
		return err
	}
	if err := netlink.LinkSetDown(member); err != nil { // a bond takes only what is down
		return fmt.Errorf("set %s down: %w", member.Attrs().Name, err)
	}
	if err := netlink.LinkSetMaster(member, bond); err != nil {
		return fmt.Errorf("put %s into the bond: %w", member.Attrs().Name, err)
	}
	if err := netlink.LinkSetUp(member); err != nil {
		return fmt.Errorf("set %s up: %w", member.Attrs().Name, err)
	}
	return nil
}

func (s *stack) makeVLAN(link *networkdata.Link, number int) (netlink.Link, error) {
	parent := s.made[link.Parent]
	if parent == nil {
		return nil, problem.NotFoundf("%s", networkdata.NoParent(link.Parent))
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = fmt.Sprintf("vlan%d.%d", number, link.Tag)
	attributes.ParentIndex = parent.Attrs().Index
	attributes.HardwareAddr = hardwareAddr(link.MAC)
	if err := createLink(&netlink.Vlan{LinkAttrs: attributes, VlanId: link.Tag}); err != nil {
		return nil, fmt.Errorf("make vlan %d on %s: %w", link.Tag, parent.Attrs().Name, err)
	}
	return netlink.LinkByName(attributes.Name)
}

// addAddress adds an address to a link.
func addAddress(link netlink.Link, address netip.Prefix) error {
	own := &netlink.Addr{IPNet: ipNet(address)}
	if address.Addr().Is6() {
		own.Flags = unix.IFA_F_NODAD // else ssh cannot listen on it for a second
	}
	if err := netlink.AddrReplace(link, own); err != nil {
		return fmt.Errorf("add address %s to %s: %w", address, link.Attrs().Name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// dropAddresses takes the IPv4 addresses from a link, except some; the kernel takes
// the routes with them. What the rescuing network gave must not live on in the tenant's.
func dropAddresses(link netlink.Link, except ...netip.Prefix) error {
	held, err := addressesOf(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, address := range held {
		if slices.ContainsFunc(except, func(p netip.Prefix) bool { return address.IPNet.String() == ipNet(p).String() }) {
			continue
		}
		if err := netlink.AddrDel(link, &address); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("drop address %s of %s: %w", address.IPNet, link.Attrs().Name, err)
		}
	}
	return nil
}

// dropAddress takes one IPv6 address from a link.
func dropAddress(link netlink.Link, address netip.Addr) error {
	return netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, address.BitLen()))})
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
		held, err := addressesOf(link, netlink.FAMILY_ALL)
		if err != nil {
			return nil, err
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
