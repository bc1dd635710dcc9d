// Package fetch decides where the program may connect to for a user, and makes the one
// HTTP client that fetches what users name by URL: images, kernels, ramdisks, checksums.
// An address is looked at when the connection is made, so a name that leads elsewhere at
// its second resolution gains nothing. It must not know what is fetched, nor why.
package fetch

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"salvor/problem"
)

// Guard says which addresses may be connected to. The zero value lets through what is on
// a network and is neither this machine nor the metadata service of a cloud.
type Guard struct {
	// Networks may be reached whatever they are.
	Networks []netip.Prefix
	// Only refuses what no network of Networks holds. Without, all may be reached that is not refused by default.
	Only bool
	// Listeners are our own listeners, which nobody reaches through us; nil: there is none.
	Listeners func() []netip.AddrPort
	// Own are this machine's addresses, which are refused unless Networks names one alone; nil: they are not.
	Own func() []netip.Addr
}

// Loopback lets through this machine alone: for those who live on it together.
var Loopback = Guard{Only: true, Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}

// never are networks on which no server of others is: this machine, those that mean
// nobody or everybody, and where clouds answer a machine's questions about itself.
var never = []struct {
	network netip.Prefix
	what    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "no address of a server"},
	{netip.MustParsePrefix("127.0.0.0/8"), "this machine itself"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, as the metadata service of a cloud"},
	{netip.MustParsePrefix("100.100.100.200/32"), "the metadata service of a cloud"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the metadata service of a cloud"}, // Azure
	{netip.MustParsePrefix("192.0.0.192/32"), "the metadata service of a cloud"},   // Oracle
	{netip.MustParsePrefix("224.0.0.0/4"), "no address of a server"},
	{netip.MustParsePrefix("255.255.255.255/32"), "no address of a server"},
	{netip.MustParsePrefix("::/128"), "no address of a server"},
	{netip.MustParsePrefix("::1/128"), "this machine itself"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("fd00:ec2::254/128"), "the metadata service of a cloud"}, // Amazon
	{netip.MustParsePrefix("fd20:ce::254/128"), "the metadata service of a cloud"},  // Google
	{netip.MustParsePrefix("ff00::/8"), "no address of a server"},
}

// Check tells why an address may not be connected to, as Forbidden.
func (g Guard) Check(at netip.AddrPort) error {
	for _, a := range meanings(at.Addr()) {
		if why := g.refuses(netip.AddrPortFrom(a, at.Port())); why != "" {
			return problem.Forbiddenf("address %s may not be connected to: it is %s", at.Addr(), why)
		}
	}
	return nil
}

func (g Guard) refuses(at netip.AddrPort) string {
	a := at.Addr()
	if g.Listeners != nil {
		for _, d := range g.Listeners() {
			if d.Port() == at.Port() && (d.Addr().Unmap() == a || d.Addr().IsUnspecified() && isOwn(a)) {
				return "a listener of this control plane"
			}
		}
	}
	// A network that happens to hold this machine too does not mean it: it has to be named alone, or as loopback.
	meant := func(p netip.Prefix) bool { return p.Contains(a) && (p.IsSingleIP() || a.IsLoopback()) }
	if g.Own != nil && !slices.ContainsFunc(g.Networks, meant) && slices.Contains(g.Own(), a) {
		return "this machine itself"
	}
	if slices.ContainsFunc(g.Networks, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return ""
	}
	if g.Only {
		return "in none of the networks that are configured"
	}
	for _, n := range never {
		if n.network.Contains(a) {
			return n.what
		}
	}
	return ""
}

// meanings are the address and those that it stands for on its way: an address of version
// 6 may carry one of version 4, which a gateway (NAT64, 6to4) or the system takes out.
func meanings(a netip.Addr) []netip.Addr {
	a = a.WithZone("").Unmap()
	out := []netip.Addr{a}
	if !a.Is6() {
		return out
	}
	b := a.As16()
	switch {
	case nat64.Contains(a), localNAT64.Contains(a), translated.Contains(a), compatible.Contains(a) && !a.IsLoopback() && !a.IsUnspecified():
		out = append(out, netip.AddrFrom4([4]byte(b[12:16])))
	case sixToFour.Contains(a):
		out = append(out, netip.AddrFrom4([4]byte(b[2:6])))
	}
	return out
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215; translators take what lies at the end
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // SIIT
	compatible = netip.MustParsePrefix("::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// isOwn tells whether this machine has the address.
func isOwn(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(OwnAddresses(), a) }

// OwnAddresses are those of this machine's interfaces at the moment; none if it cannot tell.
func OwnAddresses() []netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap().WithZone(""))
		}
	}
	return out
}

// CheckHost is Check for what stands in a URL: an address is looked at, a name is left to
// the moment of the connection.
func (g Guard) CheckHost(host string, port uint16) error {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return nil
	}
	return g.Check(netip.AddrPortFrom(a, port))
}

// Control is for a net.Dialer: it sees the address that a name has led to.
func (g Guard) Control(network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return problem.Forbiddenf("address %s %s may not be connected to", network, address)
	}
	return g.Check(at)
}
