package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
	"github.com/insomniacslk/dhcp/iana"

	"salvor/problem"
)

// DHCPv6 (RFC 8415) gives addresses and name servers; routes come by router advertisements, which the kernel follows.

const (
	// try6 is how long one message waits for its answer.
	try6 = time.Second
	// pause6 is how long a client waits between two talks.
	pause6 = 500 * time.Millisecond
	// leastRenewal and mostRenewal bound when a lease is renewed.
	leastRenewal = 10 * time.Second
	mostRenewal  = 24 * time.Hour
	// lifetimeInfinite is how DHCPv6 writes that a lease does not end, in seconds.
	lifetimeInfinite = 0xffffffff * time.Second
)

// lease6 is what a server of DHCPv6 gave.
type lease6 struct {
	address netip.Addr // not valid: name servers only
	lost    netip.Addr // an address that is no longer leased
	dns     []netip.Addr
	valid   time.Duration

	server dhcpv6.DUID
	ia     *dhcpv6.OptIANA
}

// ends tells whether the lease must be renewed.
func (l lease6) ends() bool { return l.valid < lifetimeInfinite }

// client6 asks on one link.
type client6 struct {
	nic string
	mac net.HardwareAddr
	// before are the networks that the machine is leaving.
	before []netip.Prefix
}

// before6 are the IPv6 networks that a port leaves that is being moved.
func (s *Setup) before6() (out []netip.Prefix) {
	if s.plan.Move != MoveYes {
		return nil
	}
	for _, lease := range s.plan.Before {
		for _, text := range lease.Addresses {
			if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is6() && p.Bits() < 128 {
				out = append(out, p.Masked())
			}
		}
	}
	return out
}

// take6 puts an address of DHCPv6 on its link.
func (s *Setup) take6(a answer) {
	name, l := a.link.Attrs().Name, a.six
	if l.lost.IsValid() {
		_ = dropAddress(a.link, l.lost) // an address that is gone already is as wanted
	}
	s.addDNS(l.dns)
	if !l.address.IsValid() {
		return
	}
	if err := addAddress(a.link, netip.PrefixFrom(l.address, 128)); err != nil {
		s.report.set(questionName(a.question), err.Error())
		return
	}
	s.report.clear(questionName(a.question))
	s.renewed = s.renewed || l.ends()
	s.Log.Info("lease of IPv6 taken", "nic", name, "address", l.address, "valid", l.valid, "after", time.Since(s.begun).Round(time.Millisecond))
}

// hold asks until there is a lease, tells it, and renews it until ctx ends. If it ends unrenewed, another one is asked for.
func (c client6) hold(ctx context.Context, tell func(lease6)) {
	var lost netip.Addr
	for ctx.Err() == nil {
		lease, err := c.lease(ctx)
		if err != nil {
			pauseFor(ctx, pause6)
			continue
		}
		if lost != lease.address {
			lease.lost = lost
		}
		tell(lease)
		if !lease.ends() {
			return
		}
		for end := time.Now().Add(lease.valid); ; {
			if pauseFor(ctx, min(max(time.Until(end)/2, leastRenewal), mostRenewal)); ctx.Err() != nil {
				return
			}
			if next, err := c.renew(ctx, lease); err == nil {
				lease, end = next, time.Now().Add(next.valid)
			} else if time.Now().After(end) {
				break
			}
		}
		lost = lease.address
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// talk opens a client at the link-local address, which must have passed the detection of duplicates.
func (c client6) talk(ctx context.Context, do func(*nclient6.Client) error) error {
	conn, err := nclient6.NewIPv6UDPConn(c.nic, dhcpv6.DefaultClientPort)
	if err != nil {
		return fmt.Errorf("dhcpv6 on %s: %w", c.nic, err)
	}
	client, err := nclient6.NewWithConn(conn, c.mac, nclient6.WithTimeout(try6), nclient6.WithRetry(3),
		nclient6.WithBroadcastAddr(&net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers, Port: dhcpv6.DefaultServerPort, Zone: c.nic}))
	if err != nil {
		conn.Close()
		return fmt.Errorf("dhcpv6 on %s: %w", c.nic, err)
	}
	defer client.Close()
	return do(client)
}

// lease is one talk for an address: solicit, advertise, request, reply.
func (c client6) lease(ctx context.Context) (out lease6, err error) {
	err = c.talk(ctx, func(client *nclient6.Client) error {
		offer, err := client.Solicit(ctx, dhcpv6.WithRequestedOptions(dhcpv6.OptionDNSRecursiveNameServer))
		if err != nil {
			return err
		}
		if _, err := c.read(offer); err != nil {
			return err
		}
		reply, err := client.Request(ctx, offer, dhcpv6.WithRequestedOptions(dhcpv6.OptionDNSRecursiveNameServer))
		if err != nil {
			return err
		}
		out, err = c.read(reply)
		return err
	})
	return out, err
}

// renew is one talk that prolongs a lease.
func (c client6) renew(ctx context.Context, old lease6) (out lease6, err error) {
	err = c.talk(ctx, func(client *nclient6.Client) error {
		m, err := dhcpv6.NewMessage(dhcpv6.WithClientID(c.id()), dhcpv6.WithServerID(old.server), dhcpv6.WithOption(old.ia),
			dhcpv6.WithOption(dhcpv6.OptElapsedTime(0)), dhcpv6.WithRequestedOptions(dhcpv6.OptionDNSRecursiveNameServer))
		if err != nil {
			return err
		}
		m.MessageType = dhcpv6.MessageTypeRenew
		reply, err := client.SendAndRead(ctx, client.RemoteAddr(), m, nclient6.IsMessageType(dhcpv6.MessageTypeReply))
		if err != nil {
			return err
		}
		if out, err = c.read(reply); err == nil && out.address != old.address {
			err = problem.Conflictf("the server renewed another address")
		}
		return err
	})
	return out, err
}

// inform asks for name servers until a server answers.
func (c client6) inform(ctx context.Context) (dns []netip.Addr, err error) {
	for {
		err = c.talk(ctx, func(client *nclient6.Client) error {
			m, err := dhcpv6.NewMessage(dhcpv6.WithClientID(c.id()), dhcpv6.WithOption(dhcpv6.OptElapsedTime(0)),
				dhcpv6.WithRequestedOptions(dhcpv6.OptionDNSRecursiveNameServer))
			if err != nil {
				return err
			}
			m.MessageType = dhcpv6.MessageTypeInformationRequest
			reply, err := client.SendAndRead(ctx, client.RemoteAddr(), m, nclient6.IsMessageType(dhcpv6.MessageTypeReply))
			if err == nil {
				dns = serversOf(reply)
			}
			return err
		})
		if err == nil || ctx.Err() != nil {
			return dns, err
		}
		pauseFor(ctx, pause6)
	}
}

// id is the client's identifier, by its MAC as nclient6 makes it.
func (c client6) id() dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: c.mac}
}

// read takes the address of an offer or a lease. An error: there is none, or it is of the network that the machine is leaving.
func (c client6) read(m *dhcpv6.Message) (lease6, error) {
	ia := m.Options.OneIANA()
	if ia == nil {
		return lease6{}, problem.Unavailablef("dhcpv6 on %s: the answer has no address", c.nic)
	}
	for _, given := range ia.Options.Addresses() {
		a, ok := netip.AddrFromSlice(given.IPv6Addr)
		left := slices.ContainsFunc(c.before, func(p netip.Prefix) bool { return p.Contains(a) })
		if ok && a.Is6() && a.IsGlobalUnicast() && given.ValidLifetime > 0 && !left {
			return lease6{address: a, dns: serversOf(m), valid: given.ValidLifetime, server: m.Options.ServerID(), ia: ia}, nil
		}
	}
	return lease6{}, problem.Unavailablef("dhcpv6 on %s: the answer has no address of the tenant's network", c.nic)
}

func serversOf(m *dhcpv6.Message) (out []netip.Addr) {
	for _, ip := range m.Options.DNS() {
		if a, ok := netip.AddrFromSlice(ip); ok && len(out) < maxServers && !a.IsUnspecified() {
			out = append(out, a)
		}
	}
	return out
}
