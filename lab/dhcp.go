package lab

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
)

const leaseTime = time.Hour

// startDHCP serves the tenant network: to each machine its one address, and nothing that boots.
func startDHCP(machines []machineSpec, log *slog.Logger) (*server4.Server, error) {
	byMAC := map[string]machineSpec{}
	for _, m := range machines {
		byMAC[m.MAC] = m
	}
	handler := func(conn net.PacketConn, peer net.Addr, request *dhcpv4.DHCPv4) {
		m, known := byMAC[request.ClientHWAddr.String()]
		if !known {
			return
		}
		answer, err := dhcpAnswer(m, request)
		if err != nil {
			log.Warn("tenant DHCP", "machine", m.Name, "err", err)
			return
		}
		if answer == nil {
			return
		}
		// The machine has no address yet, so the answer is broadcast on the bridge whatever it asked for.
		to := &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort}
		if _, err := conn.WriteTo(answer.ToBytes(), to); err != nil {
			log.Warn("tenant DHCP", "machine", m.Name, "err", err)
			return
		}
		log.Info("tenant DHCP", "machine", m.Name, "type", answer.MessageType(), "address", answer.YourIPAddr)
	}
	server, err := server4.NewServer(tenantNet.Bridge, &net.UDPAddr{Port: dhcpv4.ServerPort}, handler)
	if err != nil {
		return nil, fmt.Errorf("serve DHCP on %s: %w", tenantNet.Bridge, err)
	}
	go func() { _ = server.Serve() }() // ends when the server is closed
	return server, nil
}

// dhcpAnswer is an offer, an acknowledgement, a refusal, or nil where silence is right.
func dhcpAnswer(m machineSpec, request *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	own, lab := net.IP(m.tenantAddress().AsSlice()), net.IP(tenantNet.Prefix4.Addr().AsSlice())
	kind := dhcpv4.MessageTypeOffer
	switch request.MessageType() {
	case dhcpv4.MessageTypeDiscover:
	case dhcpv4.MessageTypeRequest:
		if id := request.ServerIdentifier(); id != nil && !id.Equal(lab) {
			return nil, nil // it took another server's offer
		}
		kind = dhcpv4.MessageTypeAck
		wanted := request.RequestedIPAddress()
		if wanted == nil {
			wanted = request.ClientIPAddr
		}
		if !wanted.Equal(own) {
			kind = dhcpv4.MessageTypeNak
		}
	default:
		return nil, nil
	}
	mods := []dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithServerIP(lab), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(lab))}
	if kind != dhcpv4.MessageTypeNak {
		mods = append(mods, dhcpv4.WithYourIP(own), dhcpv4.WithNetmask(net.CIDRMask(tenantNet.Prefix4.Bits(), 32)),
			dhcpv4.WithRouter(lab), dhcpv4.WithLeaseTime(uint32(leaseTime/time.Second)),
			dhcpv4.WithOption(dhcpv4.OptHostName(m.Name)))
	}
	return dhcpv4.NewReplyFromRequest(request, mods...)
}
