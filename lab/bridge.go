package lab

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// labNetwork is one bridge of the lab with the lab's own address on it.
type labNetwork struct {
	Name      string
	Bridge    string
	Prefix4   netip.Prefix
	Prefix6   netip.Prefix // zero: no IPv6 there
	Advertise bool         // send router advertisements
}

var (
	provisionNet = labNetwork{"provisioning", "br-prov", netip.MustParsePrefix("10.77.0.1/24"), netip.MustParsePrefix("fd77::1/64"), true}
	cleanNet     = labNetwork{"cleaning", "br-clean", netip.MustParsePrefix("10.76.0.1/24"), netip.MustParsePrefix("fd76::1/64"), true}
	rescueNet    = labNetwork{"rescuing", "br-rescue", netip.MustParsePrefix("10.79.0.1/24"), netip.MustParsePrefix("fd79::1/64"), true}
	tenantNet    = labNetwork{"tenant", "br-tenant", netip.MustParsePrefix("10.78.0.1/24"), netip.Prefix{}, false}
	// storageNet is the VM hosts' own path to what serves volumes.
	storageNet = labNetwork{"storage", "br-store", netip.MustParsePrefix("10.74.0.1/24"), netip.Prefix{}, false}
	bmcNet     = labNetwork{"bmc", "br-bmc", netip.MustParsePrefix("10.75.0.1/24"), netip.Prefix{}, false}

	networks = []labNetwork{provisionNet, cleanNet, rescueNet, tenantNet, storageNet, bmcNet}
)

func (n labNetwork) addresses() []netip.Prefix {
	return slices.DeleteFunc([]netip.Prefix{n.Prefix4, n.Prefix6}, func(p netip.Prefix) bool { return !p.IsValid() })
}

func (n labNetwork) status() NetworkStatus {
	s := NetworkStatus{Name: n.Name, Bridge: n.Bridge}
	for _, a := range n.addresses() {
		s.Addresses = append(s.Addresses, a.String())
	}
	return s
}

// setupNetworks makes the bridges, and one tap per machine on the tenant bridge: where an active
// machine lives. It must run in the lab's own network namespace.
func setupNetworks(machines []machineSpec, hosts []hostSpec) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	for _, n := range networks {
		if err := addBridge(n); err != nil {
			return fmt.Errorf("make bridge %s: %w", n.Bridge, err)
		}
	}
	for _, h := range hosts {
		if err := addAddress(bmcNet.Bridge, h.on(bmcNet)); err != nil {
			return fmt.Errorf("give %s the BMC address of %s: %w", bmcNet.Bridge, h.Name, err)
		}
	}
	for _, m := range machines {
		bmc := netip.PrefixFrom(m.bmcAddress(), bmcNet.Prefix4.Bits())
		if err := addAddress(bmcNet.Bridge, bmc); err != nil {
			return fmt.Errorf("give %s the BMC address of %s: %w", bmcNet.Bridge, m.Name, err)
		}
		if err := addTap(m.Tap); err != nil {
			return fmt.Errorf("make tap %s: %w", m.Tap, err)
		}
	}
	return nil
}

func addBridge(n labNetwork) error {
	// Snooping needs a querier, which no lab network has: without one it would drop multicast.
	snooping := false
	// A bridge without an address of its own takes its lowest port's, and another one when that port goes: its neighbours would
	// speak to nobody for ten seconds.
	address := net.HardwareAddr(binary.BigEndian.AppendUint64(nil, rand.Uint64())[:6])
	address[0] = address[0]&^1 | 2 // of one station, and nobody's product
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: n.Bridge, HardwareAddr: address}, MulticastSnooping: &snooping}
	if err := netlink.LinkAdd(br); err != nil {
		return err
	}
	if err := setForwardDelay(br.Attrs().Index, 0); err != nil {
		return fmt.Errorf("forward delay: %w", err)
	}
	for _, a := range n.addresses() {
		if err := addAddress(n.Bridge, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(br)
}

// setForwardDelay speaks netlink itself, because the library's Bridge has no such field.
func setForwardDelay(index int, delay uint32) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.IFLA_BR_FORWARD_DELAY, nl.Uint32Attr(delay))
	req.AddData(info)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func addAddress(link string, prefix netip.Prefix) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	ipNet := &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
	addr := &netlink.Addr{IPNet: ipNet}
	if prefix.Addr().Is6() {
		// A bridge without a running machine has no carrier, so duplicate detection would never end.
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(l, addr); err != nil {
		return fmt.Errorf("add address %s to %s: %w", prefix, link, err)
	}
	return nil
}

func addTap(name string) error {
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI}
	if err := netlink.LinkAdd(tap); err != nil {
		return err
	}
	br, err := netlink.LinkByName(tenantNet.Bridge)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(tap, br); err != nil {
		return err
	}
	return netlink.LinkSetUp(tap)
}

// bridgeOf names the bridge that a tap is on, empty for none.
func bridgeOf(tap string) string {
	l, err := netlink.LinkByName(tap)
	if err != nil || l.Attrs().MasterIndex == 0 {
		return ""
	}
	br, err := netlink.LinkByIndex(l.Attrs().MasterIndex)
	if err != nil {
		return ""
	}
	return br.Attrs().Name
}
