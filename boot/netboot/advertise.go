package netboot

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"salvor/problem"
)

// advertisement is a router advertisement (RFC 4861, 4.2) that offers nothing: no
// router, no prefix, no DHCPv6. Its only use is to end the wait of firmware for IPv6. The kernel
// fills in the checksum.
var advertisement = []byte{byte(ipv6.ICMPTypeRouterAdvertisement), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// advertisePause keeps a flood of solicitations from being doubled.
const advertisePause = 100 * time.Millisecond

// listenRouters opens the socket that hears router solicitations on one interface.
func listenRouters(ctx context.Context, ifc *net.Interface) (*ipv6.PacketConn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return bindToDevice(raw, ifc.Name) }}
	conn, err := lc.ListenPacket(ctx, "ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, problem.Unavailablef("boot server: listen on interface %s, ICMPv6: %w", ifc.Name, err)
	}
	p := ipv6.NewPacketConn(conn)
	var only ipv6.ICMPFilter
	only.SetAll(true)
	only.Accept(ipv6.ICMPTypeRouterSolicitation)
	for _, err := range []error{
		p.SetICMPFilter(&only), p.SetMulticastHopLimit(255), p.SetMulticastLoopback(false),
		p.SetMulticastInterface(ifc), p.JoinGroup(ifc, &net.IPAddr{IP: net.IPv6linklocalallrouters}),
	} {
		if err != nil {
			conn.Close()
			return nil, problem.Unavailablef("boot server: listen on interface %s, ICMPv6: %w", ifc.Name, err)
		}
	}
	return p, nil
}

// bindToDevice keeps a socket to one interface, both ways.
func bindToDevice(raw syscall.RawConn, name string) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), name) }); cerr != nil {
		return cerr
	}
	return err
}

// serveRouters answers router solicitations.
func (l *servedLink) serveRouters(ctx context.Context) error {
	to := &net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: l.resp.Name}
	buf := make([]byte, 1500)
	var last time.Time
	for {
		if _, _, _, err := l.routers.ReadFrom(buf); err != nil {
			if ctx.Err() != nil || isClosed(err) {
				return nil
			}
			return fmt.Errorf("read router solicitation: %w", err)
		}
		if time.Since(last) < advertisePause {
			continue
		}
		last = time.Now()
		if _, err := l.routers.WriteTo(advertisement, nil, to); err != nil {
			l.server.log.Warn("router advertisement not sent", "interface", l.resp.Name, "error", err)
		}
	}
}
