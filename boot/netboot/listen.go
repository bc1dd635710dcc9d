package netboot

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"salvor/problem"
)

const (
	maxPacket    = 4096
	maxAtOnce    = 64 // packets of one socket being answered; more are dropped
	watchPeriod  = 3 * time.Second
	queryTimeout = 3 * time.Second // a client asks again after about that long
)

// servedLink is a served interface with its open sockets.
type servedLink struct {
	server *Server
	resp   *dhcpResponder
	index  int
	mtu    int
	dhcp   []*net.UDPConn
	tftp   *net.UDPConn
	// routers hears router solicitations; nil where none are answered.
	routers *ipv6.PacketConn
}

// listen opens the sockets of an interface.
func (s *Server) listen(ctx context.Context, c Interface) (*servedLink, error) {
	c, addr, err := ownAddress(c)
	if err != nil {
		return nil, err
	}
	ifc, err := net.InterfaceByName(c.Name)
	if err != nil {
		return nil, problem.Unavailablef("boot server: interface %s: %w", c.Name, err)
	}
	l := &servedLink{server: s, resp: s.responder(c, addr), index: ifc.Index, mtu: ifc.MTU}
	if c.Mode == Authoritative && !slices.ContainsFunc(c.Ranges, func(r Range) bool { return r.Network.Contains(addr) }) {
		s.log.Warn("no DHCP range of an interface is in its own network: only relayed requests are answered", "interface", c.Name, "address", addr)
	}
	ports := []int{portServer}
	if c.Mode == Proxy {
		ports = append(ports, portBINL)
	}
	for _, port := range ports {
		// Broadcasts reach only sockets bound to no address.
		conn, err := bindUDP(ctx, c.Name, netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port)))
		if err != nil {
			l.close()
			return nil, err
		}
		l.dhcp = append(l.dhcp, conn)
	}
	if l.tftp, err = bindUDP(ctx, c.Name, netip.AddrPortFrom(addr, 69)); err != nil {
		l.close()
		return nil, err
	}
	if c.Advertise {
		if l.routers, err = listenRouters(ctx, ifc); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

// bindUDP opens a UDP socket that hears and speaks on one interface only.
func bindUDP(ctx context.Context, name string, at netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		// Other programs may bind the same port on other interfaces of this machine.
		if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); cerr != nil || err != nil {
			return cmp.Or(cerr, err)
		}
		return bindToDevice(raw, name)
	}}
	conn, err := lc.ListenPacket(ctx, "udp4", at.String())
	if err != nil {
		return nil, problem.Unavailablef("boot server: listen on interface %s, UDP port %d: %w", name, at.Port(), err)
	}
	return conn.(*net.UDPConn), nil
}

func (l *servedLink) close() {
	for _, c := range l.dhcp {
		c.Close()
	}
	if l.tftp != nil {
		l.tftp.Close()
	}
	if l.routers != nil {
		l.routers.Close()
	}
}

// serve answers until ctx ends or a socket fails; the sockets are closed then.
func (l *servedLink) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, conn := range l.dhcp {
		wg.Go(func() { cancel(l.serveDHCP(ctx, conn)) })
	}
	wg.Go(func() { cancel(l.server.serveTFTP(ctx, l.tftp, l.mtu)) })
	if l.routers != nil {
		wg.Go(func() { cancel(l.serveRouters(ctx)) })
	}
	wg.Go(func() { cancel(l.watch(ctx)) })
	<-ctx.Done()
	l.close()
	wg.Wait()
	return context.Cause(ctx)
}

// watch ends when the interface is not the one that was opened: a socket bound to one
// that was removed and made again hears nothing and gets no error.
func (l *servedLink) watch(ctx context.Context) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		ifc, err := net.InterfaceByName(l.resp.Name)
		if err != nil {
			return err
		}
		if _, addr, err := ownAddress(l.resp.Interface); err != nil || ifc.Index != l.index || addr != l.resp.addr {
			return fmt.Errorf("interface %s was remade or has another address", l.resp.Name)
		}
	}
}

// serveDHCP answers on one socket. Each packet has its own time; when too many are in
// work the next are dropped, as clients repeat themselves.
func (l *servedLink) serveDHCP(ctx context.Context, conn *net.UDPConn) error {
	port := conn.LocalAddr().(*net.UDPAddr).Port
	out := ipv4.NewPacketConn(conn)
	slots := make(chan struct{}, maxAtOnce)
	var wg sync.WaitGroup
	defer wg.Wait()
	buf := make([]byte, maxPacket)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			if ctx.Err() != nil || isClosed(err) {
				return nil
			}
			return fmt.Errorf("read DHCP: %w", err)
		}
		req, err := dhcpv4.FromBytes(buf[:n])
		if err != nil {
			continue // not DHCP: anybody on the network may send anything
		}
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := l.answer(ctx, out, req, from, port); err != nil {
				l.server.log.Warn("DHCP request not answered", "interface", l.resp.Name, "mac", req.ClientHWAddr.String(), "error", err)
			}
		})
	}
}

func (l *servedLink) answer(ctx context.Context, out *ipv4.PacketConn, req *dhcpv4.DHCPv4, from netip.AddrPort, port int) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	resp, err := l.resp.answer(ctx, req, port)
	if err != nil || resp == nil {
		return err
	}
	to := replyDestination(req, resp, from, port)
	// The source must be the server identifier, even where the interface has more addresses.
	cm := &ipv4.ControlMessage{Src: l.resp.addr.AsSlice(), IfIndex: l.index}
	if _, err := out.WriteTo(encodeReply(resp), cm, net.UDPAddrFromAddrPort(to)); err != nil {
		return fmt.Errorf("send DHCP reply to %s: %w", to, err)
	}
	return nil
}
