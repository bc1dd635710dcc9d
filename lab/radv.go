package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
)

// Router advertisements. Without one, iPXE waits 13 s for IPv6 before it goes on with IPv4.

const (
	advertisePeriod = 3 * time.Second
	routerLifetime  = 0 // the lab forwards nothing, so it is nobody's default router
	prefixLifetime  = 1800
)

// sendAdvertisements sends advertisements on one bridge, and answers solicitations, until ctx ends.
func sendAdvertisements(ctx context.Context, n labNetwork, log *slog.Logger) error {
	link, err := net.InterfaceByName(n.Bridge)
	if err != nil {
		return fmt.Errorf("advertise on %s: %w", n.Bridge, err)
	}
	conn, err := icmp.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		return fmt.Errorf("advertise on %s: %w", n.Bridge, err)
	}
	p := conn.IPv6PacketConn()
	var filter ipv6.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeRouterSolicitation)
	allRouters := &net.IPAddr{IP: net.ParseIP("ff02::2")}
	for _, err := range []error{
		p.SetICMPFilter(&filter), p.SetMulticastHopLimit(255),
		// Heard by ourselves, it would give the bridge one more address.
		p.SetMulticastLoopback(false), p.SetMulticastInterface(link),
		p.JoinGroup(link, allRouters), p.SetControlMessage(ipv6.FlagInterface, true),
	} {
		if err != nil {
			conn.Close()
			return fmt.Errorf("advertise on %s: %w", n.Bridge, err)
		}
	}
	context.AfterFunc(ctx, func() { conn.Close() })

	solicited := make(chan struct{}, 1)
	go listenSolicitations(p, link.Index, solicited)
	go func() {
		message := marshalAdvertisement(n, link.HardwareAddr)
		to := &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: link.Name}
		ticker := time.NewTicker(advertisePeriod)
		defer ticker.Stop()
		for ctx.Err() == nil {
			// A bridge without a running machine refuses to send; there is nobody to hear it either.
			if _, err := p.WriteTo(message, &ipv6.ControlMessage{IfIndex: link.Index}, to); err != nil {
				log.Debug("router advertisement", "bridge", n.Bridge, "err", err)
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			case <-solicited:
			}
		}
	}()
	return nil
}

func listenSolicitations(p *ipv6.PacketConn, index int, solicited chan<- struct{}) {
	buf := make([]byte, 1500)
	for {
		_, cm, _, err := p.ReadFrom(buf)
		if err != nil {
			return // closed
		}
		if cm != nil && cm.IfIndex != index {
			continue
		}
		select {
		case solicited <- struct{}{}:
		default:
		}
	}
}

// marshalAdvertisement is an ICMPv6 message of RFC 4861, 4.2, with the bridge's prefix and link address;
// the kernel fills in the checksum.
func marshalAdvertisement(n labNetwork, mac net.HardwareAddr) []byte {
	m := make([]byte, 16, 64)
	m[0] = byte(ipv6.ICMPTypeRouterAdvertisement)
	m[4] = 64 // hop limit for hosts to use
	binary.BigEndian.PutUint16(m[6:], routerLifetime)

	prefix := make([]byte, 32)
	prefix[0], prefix[1] = 3, 4 // prefix information, in units of 8 bytes
	prefix[2] = byte(n.Prefix6.Bits())
	prefix[3] = 0xc0 // on-link, autonomous
	binary.BigEndian.PutUint32(prefix[4:], prefixLifetime)
	binary.BigEndian.PutUint32(prefix[8:], prefixLifetime)
	masked := n.Prefix6.Masked().Addr().As16()
	copy(prefix[16:], masked[:])

	source := append([]byte{1, 1}, mac...) // source link-layer address
	return append(append(m, prefix...), source...)
}
