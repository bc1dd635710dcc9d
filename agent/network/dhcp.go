package network

import (
	"encoding/binary"
	"math/bits"
	"net"
	"net/netip"

	"salvor/problem"
)

// The few words of DHCPv4 (RFC 2131, 2132, 3442) that a client of one lease needs.
const (
	dhcpDiscover = 1
	dhcpOffer    = 2
	dhcpRequest  = 3
	dhcpAck      = 5
	dhcpNak      = 6

	optMask      = 1
	optRouter    = 3
	optDNS       = 6
	optMTU       = 26
	optAddress   = 50
	optLeaseTime = 51
	optKind      = 53
	optServer    = 54
	optWanted    = 55
	optClient    = 61
	optClassless = 121

	serverPort  = 67
	clientPort  = 68
	dhcpHeader  = 236
	smallest    = 300 // old relays drop what is shorter
	ipHeader    = 20
	udpHeader   = 8
	magicCookie = 0x63825363
)

// Offer is what a DHCP server offers or has leased.
type Offer struct {
	Address netip.Prefix
	Server  netip.Addr
	Routes  []Route // without those that say "on this link"
	DNS     []netip.Addr
	MTU     int
}

// dhcpReply is a message of a server to us.
type dhcpReply struct {
	kind byte
	xid  uint32
	Offer
}

// buildDHCPMessage writes a client's message as an IPv4 packet to everybody. The first one
// of a talk has no offer; the request names the one taken.
func buildDHCPMessage(kind byte, xid uint32, mac net.HardwareAddr, taken *Offer) []byte {
	m := make([]byte, dhcpHeader, smallest)
	m[0], m[1], m[2] = 1, 1, 6 // request, Ethernet, 6 bytes
	binary.BigEndian.PutUint32(m[4:], xid)
	m[10] = 0x80 // answer to everybody: we have no address to be reached at
	copy(m[28:], mac)
	m = binary.BigEndian.AppendUint32(m, magicCookie)
	m = append(m, optKind, 1, kind)
	m = append(append(m, optClient, 7, 1), mac...)
	if taken != nil {
		m = append(append(m, optAddress, 4), taken.Address.Addr().AsSlice()...)
		m = append(append(m, optServer, 4), taken.Server.AsSlice()...)
	}
	m = append(m, optWanted, 6, optMask, optClassless, optRouter, optDNS, optMTU, optLeaseTime, 255)
	if len(m) < smallest {
		m = m[:smallest]
	}
	return inPacket(m)
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
	binary.BigEndian.PutUint16(udp, clientPort)
	binary.BigEndian.PutUint16(udp[2:], serverPort)
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
	if head < ipHeader || len(packet) < head+udpHeader+dhcpHeader+4 || fragment != 0 {
		return r, problem.Invalidf("dhcp: packet cut short")
	}
	udp := packet[head:]
	if binary.BigEndian.Uint16(udp[2:]) != clientPort {
		return r, problem.Invalidf("dhcp: not for a client")
	}
	m := udp[udpHeader:]
	if end := int(binary.BigEndian.Uint16(udp[4:])) - udpHeader; end >= dhcpHeader+4 && end < len(m) {
		m = m[:end]
	}
	if m[0] != 2 || net.HardwareAddr(m[28:34]).String() != mac.String() || binary.BigEndian.Uint32(m[dhcpHeader:]) != magicCookie {
		return r, problem.Invalidf("dhcp: not an answer to us")
	}
	r.xid = binary.BigEndian.Uint32(m[4:])
	return r, r.read(netip.AddrFrom4([4]byte(m[16:20])), m[dhcpHeader+4:])
}

// dhcpOptions is what is gathered while going through them.
type dhcpOptions struct {
	length             int // of the network, in bits
	routers, classless []Route
}

// read goes through the options.
func (r *dhcpReply) read(address netip.Addr, text []byte) error {
	o := dhcpOptions{length: 24}
	for len(text) > 0 && text[0] != 255 {
		if text[0] == 0 {
			text = text[1:]
			continue
		}
		if len(text) < 2 || len(text) < 2+int(text[1]) {
			return problem.Invalidf("dhcp: option %d cut short", text[0])
		}
		code, value := text[0], text[2:2+int(text[1])]
		text = text[2+len(value):]
		if err := r.option(&o, code, value); err != nil {
			return err
		}
	}
	r.Routes = o.routers
	if o.classless != nil { // RFC 3442: then the routers are not looked at
		r.Routes = o.classless
	}
	if r.kind == dhcpNak {
		return nil
	}
	r.Address = netip.PrefixFrom(address, o.length)
	if address.IsUnspecified() || address.IsMulticast() || address.IsLoopback() || !r.Server.IsValid() || o.length == 0 {
		return problem.Invalidf("dhcp: answer without an address or a server")
	}
	return nil
}

// option takes one; those of a wrong length are left.
func (r *dhcpReply) option(o *dhcpOptions, code byte, value []byte) error {
	switch {
	case code == optKind && len(value) == 1:
		r.kind = value[0]
	case code == optServer && len(value) == 4:
		r.Server = netip.AddrFrom4([4]byte(value))
	case code == optMask && len(value) == 4:
		mask := binary.BigEndian.Uint32(value)
		if o.length = bits.LeadingZeros32(^mask); mask<<o.length != 0 {
			return problem.Invalidf("dhcp: netmask %#x", mask)
		}
	case code == optRouter && len(value) >= 4:
		via := netip.AddrFrom4([4]byte(value[:4]))
		o.routers = []Route{{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: via}}
	case code == optDNS:
		for ; len(value) >= 4 && len(r.DNS) < maxServers; value = value[4:] {
			r.DNS = append(r.DNS, netip.AddrFrom4([4]byte(value)))
		}
	case code == optMTU && len(value) == 2:
		r.MTU = int(binary.BigEndian.Uint16(value))
	case code == optClassless:
		o.classless = readClassless(value)
	}
	return nil
}

func readClassless(value []byte) []Route {
	routes := []Route{}
	for len(value) > 0 {
		length := int(value[0])
		size := (length + 7) / 8
		if length > 32 || len(value) < 1+size+4 {
			break
		}
		var to [4]byte
		copy(to[:], value[1:1+size])
		via := netip.AddrFrom4([4]byte(value[1+size : 5+size]))
		value = value[5+size:]
		if !via.IsUnspecified() {
			routes = append(routes, Route{To: netip.PrefixFrom(netip.AddrFrom4(to), length).Masked(), Via: via})
		}
	}
	return routes
}
