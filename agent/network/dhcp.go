package network

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"salvor/problem"
)

const (
	ipHeader  = 20
	udpHeader = 8
	// maxServers bounds the name servers of a lease.
	maxServers = 64
)

// Offer is what a DHCP server offers or has leased.
type Offer struct {
	Address netip.Prefix
	Server  netip.Addr
	Routes  []Route
	DNS     []netip.Addr
	MTU     int
}

// dhcpReply is a message of a server to us.
type dhcpReply struct {
	kind dhcpv4.MessageType
	xid  uint32
	Offer
}

// buildDHCPMessage writes a client's message as an IPv4 packet to everybody. The first one
// of a talk has no offer; the request names the one taken.
func buildDHCPMessage(kind dhcpv4.MessageType, xid uint32, mac net.HardwareAddr, taken *Offer) []byte {
	m := dhcpv4.DHCPv4{OpCode: dhcpv4.OpcodeBootRequest, HWType: iana.HWTypeEthernet, ClientHWAddr: mac, Options: dhcpv4.Options{}}
	binary.BigEndian.PutUint32(m.TransactionID[:], xid)
	m.SetBroadcast() // we have no address to be reached at
	m.UpdateOption(dhcpv4.OptMessageType(kind))
	m.UpdateOption(dhcpv4.OptClientIdentifier(append([]byte{byte(iana.HWTypeEthernet)}, mac...)))
	if taken != nil {
		m.UpdateOption(dhcpv4.OptRequestedIPAddress(taken.Address.Addr().AsSlice()))
		m.UpdateOption(dhcpv4.OptServerIdentifier(taken.Server.AsSlice()))
	}
	m.UpdateOption(dhcpv4.OptParameterRequestList(dhcpv4.OptionSubnetMask, dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionRouter,
		dhcpv4.OptionDomainNameServer, dhcpv4.OptionInterfaceMTU, dhcpv4.OptionIPAddressLeaseTime))
	return inPacket(m.ToBytes())
}

// inPacket puts UDP and IPv4 headers before a message.
func inPacket(m []byte) []byte {
	p := make([]byte, ipHeader+udpHeader, ipHeader+udpHeader+len(m))
	p = append(p, m...)
	ip, udp := p[:ipHeader], p[ipHeader:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(len(p)))
	copy(ip[16:], []byte{255, 255, 255, 255})
	binary.BigEndian.PutUint16(ip[10:], internetChecksum(ip, 0))
	binary.BigEndian.PutUint16(udp, dhcpv4.ClientPort)
	binary.BigEndian.PutUint16(udp[2:], dhcpv4.ServerPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	pseudo := uint32(0xffff) + 0xffff + 17 + uint32(len(udp)) // addresses, protocol, length
	sum := internetChecksum(udp, pseudo)
	if sum == 0 {
		sum = 0xffff // zero would mean "none"
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
	return p
}

func internetChecksum(b []byte, sum uint32) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// parseReply reads an IPv4 packet that came in; anything but a DHCP server's answer
// to this MAC is an error. The UDP checksum is not looked at: a virtual NIC leaves it
// to be filled in by hardware that is not there.
func parseReply(packet []byte, mac net.HardwareAddr) (dhcpReply, error) {
	var r dhcpReply
	if len(packet) < ipHeader || packet[0]>>4 != 4 || packet[9] != 17 {
		return r, problem.Invalidf("dhcp: no UDP over IPv4")
	}
	head := int(packet[0]&0xf) * 4
	fragment := binary.BigEndian.Uint16(packet[6:]) & 0x3fff
	if head < ipHeader || len(packet) < head+udpHeader || fragment != 0 {
		return r, problem.Invalidf("dhcp: packet cut short")
	}
	udp := packet[head:]
	if binary.BigEndian.Uint16(udp[2:]) != dhcpv4.ClientPort {
		return r, problem.Invalidf("dhcp: not for a client")
	}
	text := udp[udpHeader:]
	if end := int(binary.BigEndian.Uint16(udp[4:])) - udpHeader; end > 0 && end < len(text) {
		text = text[:end]
	}
	m, err := dhcpv4.FromBytes(text)
	if err != nil {
		return r, problem.Invalidf("dhcp: %w", err)
	}
	if m.OpCode != dhcpv4.OpcodeBootReply || !bytes.Equal(m.ClientHWAddr, mac) {
		return r, problem.Invalidf("dhcp: not an answer to us")
	}
	r.kind, r.xid, r.Offer = m.MessageType(), binary.BigEndian.Uint32(m.TransactionID[:]), readOffer(m)
	address := r.Address.Addr()
	if r.kind != dhcpv4.MessageTypeNak &&
		(address.IsUnspecified() || address.IsMulticast() || address.IsLoopback() || !r.Server.IsValid() || r.Address.Bits() == 0) {
		return r, problem.Invalidf("dhcp: answer without an address, a netmask or a server")
	}
	return r, nil
}

// readOffer reads the options. Those of a wrong length are left.
func readOffer(m *dhcpv4.DHCPv4) Offer {
	length := 24
	if mask := m.SubnetMask(); mask != nil {
		length, _ = mask.Size() // 0 for a mask with holes
	}
	o := Offer{Address: netip.PrefixFrom(toAddr(m.YourIPAddr), length), Server: toAddr(m.ServerIdentifier())}
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, m.Options); err == nil {
		o.MTU = int(mtu)
	}
	for _, server := range m.DNS() {
		if len(o.DNS) < maxServers {
			o.DNS = append(o.DNS, toAddr(server))
		}
	}
	if !m.Options.Has(dhcpv4.OptionClasslessStaticRoute) {
		if routers := m.Router(); len(routers) > 0 {
			o.Routes = []Route{{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: toAddr(routers[0])}}
		}
		return o
	}
	// RFC 3442: then the routers are not looked at.
	var routes dhcpv4.Routes
	_ = routes.FromBytes(m.Options.Get(dhcpv4.OptionClasslessStaticRoute)) // those before a damaged one count
	for _, r := range routes {
		via := toAddr(r.Router)
		if via.IsUnspecified() { // the destination is on this link
			via = netip.Addr{}
		}
		bits, _ := r.Dest.Mask.Size()
		o.Routes = append(o.Routes, Route{To: netip.PrefixFrom(toAddr(r.Dest.IP), bits).Masked(), Via: via})
	}
	return o
}

// toAddr makes the zero Addr of no address.
func toAddr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a
}
