package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"salvor/lab/odd"
)

// A process of these tests is the machine: all of its threads are in one network namespace. One more thread is outside, in a namespace with the
// other ends of the machine's cables.

// freshNamespace moves all threads of the process into a new network namespace. Under the race detector Go cannot do that; then it empties the
// namespace in which the process is.
func freshNamespace() error {
	made := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			failed <- fmt.Errorf("open the new network namespace: %w", err)
			return
		}
		made <- fd
	}()
	select {
	case err := <-failed:
		return err
	case fd := <-made:
		defer unix.Close(fd)
		_, _, number := syscall.AllThreadsSyscall(unix.SYS_SETNS, uintptr(fd), unix.CLONE_NEWNET, 0)
		if number == syscall.ENOTSUP {
			return emptyNamespace()
		}
		if number != 0 {
			return fmt.Errorf("enter the new network namespace: %w", number)
		}
		return nil
	}
}

// emptyNamespace removes all links but the loopback, and the rules that a former input left.
func emptyNamespace() error {
	links, err := dumped(netlink.LinkList)
	if err != nil {
		return err
	}
	for _, link := range links {
		if link.Attrs().Flags&net.FlagLoopback == 0 {
			_ = netlink.LinkDel(link) // one end of a cable takes the other end with it
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := netlink.RuleList(family)
		if err != nil {
			return err
		}
		for _, rule := range rules {
			if rule.Priority >= mainFirst && rule.Priority < 32766 {
				_ = netlink.RuleDel(&rule)
			}
		}
	}
	return nil
}

func writeSysctl(name, value string) {
	_ = os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) // a kernel without IPv6 has fewer
}

// outside is the world around the machine.
type outside struct {
	do       chan func()
	fd       int // of its namespace
	segments [][]string
	devices  map[string]net.IP // the address of the DHCP server, by device
	closers  []func() error
}

// newOutside makes the machine of the segments, with its cables plugged in, and the world around it.
func newOutside(segments [][]string) (*outside, error) {
	o := &outside{do: make(chan func()), segments: segments, devices: map[string]net.IP{}}
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			o.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
		for f := range o.do {
			f()
		}
	}()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("make the namespace outside: %w", err)
	}
	for _, family := range []string{"all", "default"} {
		writeSysctl("ipv4/conf/"+family+"/rp_filter", "0")
		writeSysctl("ipv6/conf/"+family+"/accept_dad", "0")
	}
	return o, o.plug()
}

// run calls a function outside.
func (o *outside) run(f func() error) error {
	result := make(chan error, 1)
	o.do <- func() { result <- f() }
	return <-result
}

func (o *outside) close() {
	for _, c := range o.closers {
		_ = c()
	}
	close(o.do)
	unix.Close(o.fd)
}

// plug makes the cables. A segment of several NICs is a bridge.
func (o *outside) plug() error {
	err := o.run(func() error {
		for _, family := range []string{"all", "default"} {
			writeSysctl("ipv4/conf/"+family+"/rp_filter", "1") // as the routers of providers do: an answer that takes another way than its question is dropped
			writeSysctl("ipv6/conf/"+family+"/accept_dad", "0")
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		return err
	}
	number := 0
	for s, macs := range o.segments {
		for _, mac := range macs {
			attributes := netlink.NewLinkAttrs()
			attributes.Name, attributes.HardwareAddr = "n"+strconv.Itoa(number), hardwareAddr(mac)
			peer := "p" + strconv.Itoa(number)
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: peer, PeerNamespace: netlink.NsFd(o.fd)}); err != nil {
				return fmt.Errorf("make a cable: %w", err)
			}
			nic, err := netlink.LinkByName(attributes.Name)
			if err == nil {
				err = netlink.LinkSetUp(nic) // as the ramdisk does before it has any network
			}
			if err != nil {
				return err
			}
			if err := o.run(func() error { return o.join(s, peer) }); err != nil {
				return fmt.Errorf("plug %s in: %w", peer, err)
			}
			number++
		}
	}
	return nil
}

// join plugs the outer end of a cable into a segment.
func (o *outside) join(segment int, peer string) error {
	link, err := netlink.LinkByName(peer)
	if err != nil {
		return err
	}
	if len(o.segments[segment]) > 1 {
		bridge, err := netlink.LinkByName(segmentDevice(o.segments, segment))
		if err != nil {
			attributes := netlink.NewLinkAttrs()
			attributes.Name = segmentDevice(o.segments, segment)
			made := &netlink.Bridge{LinkAttrs: attributes}
			if err := netlink.LinkAdd(made); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(made); err != nil {
				return err
			}
			bridge = made
		}
		if err := netlink.LinkSetMaster(link, bridge); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// segmentDevice is the device outside that a segment is reached by.
func segmentDevice(segments [][]string, segment int) string {
	number := 0
	for _, macs := range segments[:segment] {
		number += len(macs)
	}
	if len(segments[segment]) > 1 {
		return "s" + strconv.Itoa(segment)
	}
	return "p" + strconv.Itoa(number)
}

// device is the device outside for a place; a VLAN gets one of its own.
func (o *outside) device(on odd.LinkPlace) (string, error) {
	parent := segmentDevice(o.segments, on.Segment)
	if on.Tag == 0 {
		return parent, nil
	}
	name := fmt.Sprintf("v%d.%d", on.Segment, on.Tag)
	return name, o.run(func() error {
		if _, err := netlink.LinkByName(name); err == nil {
			return nil
		}
		below, err := netlink.LinkByName(parent)
		if err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.ParentIndex = name, below.Attrs().Index
		vlan := &netlink.Vlan{LinkAttrs: attributes, VlanId: on.Tag}
		if err := netlink.LinkAdd(vlan); err != nil {
			return err
		}
		return netlink.LinkSetUp(vlan)
	})
}

// serveLeases answers DHCP on a device, with addresses of a network of its own. The gateway is the server itself.
func (o *outside) serveLeases(device string) error {
	if o.devices[device] != nil {
		return nil
	}
	own := net.IPv4(10, 200, byte(len(o.devices)), 1).To4()
	o.devices[device] = own
	return o.run(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		mask := net.CIDRMask(24, 32)
		if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: &net.IPNet{IP: own, Mask: mask}}); err != nil {
			return err
		}
		lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			controlErr := raw.Control(func(fd uintptr) {
				err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
					unix.BindToDevice(int(fd), device))
			})
			return errors.Join(controlErr, err)
		}}
		conn, err := lc.ListenPacket(context.Background(), "udp4", "0.0.0.0:67")
		if err != nil {
			return err
		}
		o.closers = append(o.closers, conn.Close)
		go answerLeases(conn, own, mask)
		return nil
	})
}

func answerLeases(conn net.PacketConn, own net.IP, mask net.IPMask) {
	given := map[string]byte{}
	buffer := make([]byte, 2048)
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		m, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil {
			continue
		}
		mac := m.ClientHWAddr.String()
		if given[mac] == 0 {
			given[mac] = byte(50 + len(given))
		}
		kind := dhcpv4.MessageTypeOffer
		if m.MessageType() == dhcpv4.MessageTypeRequest {
			kind = dhcpv4.MessageTypeAck
		}
		reply, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(net.IPv4(own[0], own[1], own[2], given[mac])),
			dhcpv4.WithServerIP(own), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(own)), dhcpv4.WithNetmask(mask), dhcpv4.WithRouter(own), dhcpv4.WithLeaseTime(3600))
		if err == nil {
			_, _ = conn.WriteTo(reply.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 68})
		}
	}
}

// dial connects to sshd's port at an address behind a device. source is an address of the world: on the device, or, with a gateway, behind the gateway,
// which has its address on the device.
func (o *outside) dial(device string, to, source, gateway netip.Addr, timeout time.Duration) error {
	return o.run(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		of := link
		if gateway.IsValid() {
			if of, err = netlink.LinkByName("lo"); err != nil {
				return err
			}
			undo, err := borrowAddress(link, gateway)
			if err != nil {
				return err
			}
			defer undo()
		}
		undo, err := borrowAddress(of, source)
		if err != nil {
			return err
		}
		defer undo()
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(to, to.BitLen())), Src: source.AsSlice(), Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route to %s by %s: %w", to, device, err)
		}
		defer func() { _ = netlink.RouteDel(route) }()
		d := net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: source.AsSlice()}}
		conn, err := d.Dial("tcp", netip.AddrPortFrom(to, sshPort).String())
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

const sshPort = 22

// borrowAddress gives a device an address for some time.
func borrowAddress(link netlink.Link, address netip.Addr) (undo func(), err error) {
	own := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, address.BitLen())), Flags: unix.IFA_F_NODAD}
	held, err := addressesOf(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		if h.IP.Equal(own.IP) {
			return func() {}, nil
		}
	}
	if err := netlink.AddrReplace(link, own); err != nil {
		return nil, fmt.Errorf("address %s on %s: %w", address, link.Attrs().Name, err)
	}
	return func() { _ = netlink.AddrDel(link, own) }, nil
}
