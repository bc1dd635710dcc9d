package network

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

// Numbers of DHCPv4 (RFC 2131, 2132, 3442), with which the tests write packets of their own.
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
	optKind      = 53
	optServer    = 54
	optClient    = 61
	optClassless = 121

	serverPort  = 67
	clientPort  = 68
	dhcpHeader  = 236
	magicCookie = 0x63825363
)

var testMAC = net.HardwareAddr{0x52, 0x54, 0, 0xaa, 0, 1}

// serverPacket turns a client's packet into a server's answer with the options.
func serverPacket(kind byte, address string, options ...byte) []byte {
	p := buildDHCPMessage(dhcpDiscover, 77, testMAC, nil)
	m := p[ipHeader+udpHeader:][:dhcpHeader]
	m[0] = 2
	copy(m[16:], netip.MustParseAddr(address).AsSlice())
	m = binary.BigEndian.AppendUint32(bytes.Clone(m), magicCookie)
	m = append(m, optKind, 1, kind)
	m = append(append(m, options...), 255)
	p = inPacket(m)
	binary.BigEndian.PutUint16(p[ipHeader:], serverPort)
	binary.BigEndian.PutUint16(p[ipHeader+2:], clientPort)
	return p
}

var (
	fromServer = []byte{optServer, 4, 10, 77, 0, 1}
	mask24     = []byte{optMask, 4, 255, 255, 255, 0}
)

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestParseReply(t *testing.T) {
	options := join(fromServer, mask24, []byte{0, 0}, []byte{optRouter, 8, 10, 77, 0, 1, 10, 77, 0, 2}, []byte{optDNS, 8, 10, 77, 0, 3, 10, 77, 0, 4}, []byte{optMTU, 2, 5, 120})
	r := must.Get(parseReply(serverPacket(dhcpOffer, "10.77.0.9", options...), testMAC))(t)
	if r.kind != dhcpOffer || r.xid != 77 || r.Address.String() != "10.77.0.9/24" || r.Server.String() != "10.77.0.1" || r.MTU != 1400 || len(r.DNS) != 2 {
		t.Errorf("%+v", r)
	}
	if len(r.Routes) != 1 || r.Routes[0].Via.String() != "10.77.0.1" || r.Routes[0].To.Bits() != 0 {
		t.Errorf("routes %+v", r.Routes)
	}
}

func TestClassless(t *testing.T) {
	classless := []byte{optClassless, 19, 0, 10, 77, 0, 254, 24, 192, 0, 2, 10, 77, 0, 253, 16, 10, 9, 0, 0, 0}
	options := join(fromServer, mask24, []byte{optRouter, 4, 10, 77, 0, 1}, append(classless, 0)[:21])
	r := must.Get(parseReply(serverPacket(dhcpAck, "10.77.0.9", options...), testMAC))(t)
	if len(r.Routes) != 2 || r.Routes[0].Via.String() != "10.77.0.254" || r.Routes[1].To.String() != "192.0.2.0/24" {
		t.Errorf("routes %+v", r.Routes)
	}
}

func TestParseReplyRefuses(t *testing.T) {
	good := serverPacket(dhcpOffer, "10.77.0.9", join(fromServer, mask24)...)
	change := func(at int, b ...byte) []byte {
		p := bytes.Clone(good)
		copy(p[at:], b)
		return p
	}
	other := net.HardwareAddr{0x52, 0x54, 0, 0xaa, 0, 2}
	for name, packet := range map[string][]byte{
		"empty":         {},
		"short":         good[:100],
		"IPv6":          change(0, 0x65),
		"TCP":           change(9, 6),
		"header":        change(0, 0x4f),
		"fragment":      change(6, 0, 1),
		"port":          change(ipHeader+2, 0, 67),
		"a question":    change(ipHeader+udpHeader, 1),
		"cookie":        change(ipHeader+udpHeader+dhcpHeader, 0),
		"other's":       change(ipHeader+udpHeader+28, other...),
		"no server":     serverPacket(dhcpOffer, "10.77.0.9", mask24...),
		"no address":    serverPacket(dhcpOffer, "0.0.0.0", join(fromServer, mask24)...),
		"multicast":     serverPacket(dhcpOffer, "224.0.0.1", join(fromServer, mask24)...),
		"mask of holes": serverPacket(dhcpOffer, "10.77.0.9", join(fromServer, []byte{optMask, 4, 255, 0, 255, 0})...),
		"mask of zero":  serverPacket(dhcpOffer, "10.77.0.9", join(fromServer, []byte{optMask, 4, 0, 0, 0, 0})...),
		"cut option":    serverPacket(dhcpOffer, "10.77.0.9", join(fromServer, []byte{optDNS, 200})...),
	} {
		if r, err := parseReply(packet, testMAC); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func TestQuestion(t *testing.T) {
	offer := Offer{Address: netip.MustParsePrefix("10.77.0.9/24"), Server: netip.MustParseAddr("10.77.0.1")}
	p := buildDHCPMessage(dhcpRequest, 5, testMAC, &offer)
	if internetChecksum(p[:ipHeader], 0) != 0 {
		t.Error("IP checksum")
	}
	udp := p[ipHeader:]
	if internetChecksum(udp, 0xffff+0xffff+17+uint32(len(udp))) != 0 {
		t.Error("UDP checksum")
	}
	for _, want := range [][]byte{{optKind, 1, dhcpRequest}, {optAddress, 4, 10, 77, 0, 9}, {optServer, 4, 10, 77, 0, 1}, append([]byte{optClient, 7, 1}, testMAC...)} {
		if !bytes.Contains(p, want) {
			t.Errorf("option %v is missing", want)
		}
	}
}

func TestChanged(t *testing.T) {
	offer := Offer{Address: netip.MustParsePrefix("10.77.0.9/24"), Server: netip.MustParseAddr("10.77.0.1")}
	for name, c := range map[string]struct {
		before []Lease
		want   bool
	}{
		"nothing held":             {nil, true},
		"same subnet":              {[]Lease{{Addresses: []string{"10.77.0.50/24"}}}, false},
		"same subnet and server":   {[]Lease{{Addresses: []string{"10.77.0.50/24"}, Server: "10.77.0.1"}}, false},
		"same subnet other server": {[]Lease{{Addresses: []string{"10.77.0.50/24"}, Server: "10.77.0.2"}}, true},
		"other subnet":             {[]Lease{{Addresses: []string{"10.78.0.50/24", "rubbish", "2001:db8::1/64"}, Server: "10.77.0.1"}}, true},
		"of another NIC":           {[]Lease{{Addresses: []string{"10.78.0.50/24"}}, {Addresses: []string{"10.77.0.51/24"}}}, false},
	} {
		if got := isFromOtherNetwork(c.before, offer); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzParseReply(f *testing.F) {
	f.Add(serverPacket(dhcpOffer, "10.77.0.9", join(fromServer, mask24, []byte{optClassless, 5, 0, 10, 77, 0, 1})...))
	f.Add(serverPacket(dhcpNak, "0.0.0.0", fromServer...))
	f.Fuzz(func(t *testing.T, packet []byte) {
		r, err := parseReply(packet, testMAC)
		if err == nil && r.kind != dhcpNak && (!r.Address.IsValid() || !r.Server.IsValid()) {
			t.Errorf("%+v", r)
		}
	})
}

func TestProbe(t *testing.T) {
	iso := make([]byte, probeLength)
	copy(iso[0x8001:], "CD001")
	copy(iso[volumeID:], "config-2                        ")
	fat16, fat32 := make([]byte, 512), make([]byte, 512)
	copy(fat16[0x2b:], "CONFIG-2   FAT16   ")
	copy(fat32[0x47:], "config-2   FAT32   ")
	for _, fat := range [][]byte{fat16, fat32} {
		fat[510], fat[511] = 0x55, 0xaa
	}
	other := bytes.Clone(iso)
	copy(other[volumeID:], "debian")
	for want, heads := range map[string][][]byte{"iso9660": {iso}, "vfat": {fat16, fat32}, "": {nil, other, make([]byte, 512), iso[:600]}} {
		for i, head := range heads {
			if got := detectFilesystem(head); got != want {
				t.Errorf("%s %d: %q", want, i, got)
			}
		}
	}
}
