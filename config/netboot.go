package config

import (
	"net/netip"
	"strconv"
	"strings"

	"salvor/problem"
)

// The modes of a boot interface.
const (
	// Authoritative leases addresses as well as boot files.
	Authoritative = "authoritative"
	// Proxy answers beside another DHCP server and leases nothing.
	Proxy = "proxy"
)

// BootInterface is one network that machines boot from.
type BootInterface struct {
	Name string
	Mode string
	// From and To are the addresses to lease, both included; not valid for Proxy.
	From, To netip.Addr
	// Bits is the prefix length of their network; 0: that of the interface's own address. Relayed
	// requests find the range of their network by it.
	Bits    int
	Gateway netip.Addr // not valid: none
	DNS     []netip.Addr
	// Guests also leases to machines that have no boot plan.
	Guests bool
	// Advertise answers IPv6 router solicitations with nothing to offer, so that firmware does not wait for one.
	Advertise bool
}

var bootInterfaces = valueSyntax[[]BootInterface]{
	many: true, allowed: "a list of NAME:authoritative:FIRST-LAST[/BITS][:gateway=IP][:dns=IP+IP][:guests][:advertise] or NAME:proxy, IPv4",
	parse: func(s string) ([]BootInterface, error) {
		var out []BootInterface
		for _, item := range splitList(s) {
			b, err := bootInterface(item)
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
		return out, nil
	},
}

func bootInterface(item string) (BootInterface, error) {
	fields := strings.Split(item, ":")
	b := BootInterface{Name: fields[0]}
	if b.Name == "" || len(b.Name) > 15 || !isWord(b.Name) || len(fields) < 2 {
		return b, problem.Invalidf("%s: no interface name with a mode", quoteValue(item))
	}
	b.Mode, fields = fields[1], fields[2:]
	switch b.Mode {
	case Proxy:
	case Authoritative:
		if len(fields) == 0 {
			return b, problem.Invalidf("%s: authoritative needs a range of addresses", b.Name)
		}
		if err := b.leases(fields[0]); err != nil {
			return b, err
		}
		fields = fields[1:]
	default:
		return b, problem.Invalidf("%s: mode %s", b.Name, quoteValue(b.Mode))
	}
	for _, f := range fields {
		if b.Mode == Proxy {
			return b, problem.Invalidf("%s: proxy takes nothing after it", b.Name)
		}
		if err := b.extra(f); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (b *BootInterface) leases(s string) error {
	span, bits, hasBits := strings.Cut(s, "/")
	first, last, _ := strings.Cut(span, "-")
	from, errFrom := netip.ParseAddr(first)
	to, errTo := netip.ParseAddr(last)
	if errFrom != nil || errTo != nil || !from.Is4() || !to.Is4() || to.Less(from) {
		return problem.Invalidf("%s: %s is not FIRST-LAST of IPv4 addresses", b.Name, quoteValue(span))
	}
	b.From, b.To = from, to
	if !hasBits {
		return nil
	}
	n, err := strconv.Atoi(bits)
	if err != nil || n < 8 || n > 30 {
		return problem.Invalidf("%s: prefix length %s is not 8 to 30", b.Name, quoteValue(bits))
	}
	if network, _ := from.Prefix(n); !network.Contains(to) {
		return problem.Invalidf("%s: %s and %s are not in one network of /%d", b.Name, from, to, n)
	}
	b.Bits = n
	return nil
}

func (b *BootInterface) extra(f string) error {
	key, value, _ := strings.Cut(f, "=")
	switch key {
	case "guests":
		b.Guests = true
		if f == key {
			return nil
		}
	case "advertise":
		b.Advertise = true
		if f == key {
			return nil
		}
	case "gateway":
		a, err := netip.ParseAddr(value)
		if b.Gateway = a; err == nil && a.Is4() {
			return nil
		}
	case "dns":
		for s := range strings.SplitSeq(value, "+") {
			a, err := netip.ParseAddr(s)
			if err != nil || !a.Is4() {
				return problem.Invalidf("%s: dns %s is not an IPv4 address", b.Name, quoteValue(s))
			}
			b.DNS = append(b.DNS, a)
		}
		return nil
	}
	return problem.Invalidf("%s: %s is none of gateway=IP, dns=IP+IP, guests, advertise", b.Name, quoteValue(f))
}
