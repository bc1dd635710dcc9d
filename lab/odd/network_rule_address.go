package odd

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// readNetwork reads an element of networks.
func (r *networkRule) readNetwork(i int, given any) {
	n, isObject := objectOf(given)
	position := fmt.Sprintf("networks[%d]", i)
	if !isObject {
		if given != nil {
			r.nothing(position+" is no object", position, "networks:")
		}
		return
	}
	id, _ := wordOf(n["id"])
	kind, _ := wordOf(n["type"])
	below, isText := wordOf(n["link"])
	address, _ := wordOf(n["ip_address"])
	what := fmt.Sprintf("%s %q", position, id)
	names := []string{position}
	for _, word := range []string{id, strings.TrimSpace(address)} {
		if word != "" {
			names = append(names, quoted(word))
		}
	}
	link := r.link(below)
	switch {
	case link == nil:
		r.nothing(what+" on no link", names...)
		return
	case link.lost:
		r.nothing(what+" on a lost link", append(names, link.names...)...)
		return
	}
	must := link.must && isText && r.bondOf(below) == nil
	place := link.place
	if bond := r.bondOf(below); bond != nil {
		place = bond.place
	}
	switch lower := strings.ToLower(strings.TrimSpace(kind)); {
	case lower == "ipv4_dhcp":
		r.add(NetworkClaim{What: what + " by DHCP", Kind: ClaimLease, Must: must && kind == lower, Names: append(names, link.names...), On: place, Dial: true, Of: -1})
	case slices.Contains([]string{"ipv6_slaac", "ipv6_dhcp", "ipv6_dhcpv6-stateful", "ipv6_dhcpv6-stateless"}, lower), strings.HasPrefix(lower, "ipv6_") && address == "":
		r.add(NetworkClaim{What: what + " by routers or DHCPv6, which this world does not have", Kind: ClaimNothing, Late: true, Names: append(names, link.names...), Of: -1})
	case lower != "" && lower != "ipv4" && lower != "ipv6" && address == "":
		r.nothing(what+" of a type that is not known", names...)
	default: // of a type that is not known, the machine may have the address
		r.readStatic(what, names, n, place, must && (kind == "ipv4" || kind == "ipv6"), kind)
	}
}

// readStatic reads a network with a fixed address, with its routes.
func (r *networkRule) readStatic(what string, names []string, n map[string]any, place LinkPlace, must bool, kind string) {
	prefix, plain := plainPrefix(n["ip_address"], n["netmask"])
	if !prefix.IsValid() {
		r.nothing(what+" without an address", names...)
		return
	}
	a := prefix.Addr()
	must = must && plain && a.Is4() == (kind == "ipv4") && isHost(a) && !isEdge(prefix)
	c := NetworkClaim{What: what + " " + prefix.String(), Kind: ClaimAddress, Must: must, Names: names, On: place, Address: a, Of: -1}
	c.Dial = prefix.Bits() < a.BitLen() && place.Segment >= 0 && isHost(a)
	at := r.add(c)
	r.statics = append(r.statics, ruleNetwork{prefix, place, at})
	for i, given := range listOf(n["routes"]) {
		if given == nil {
			continue
		}
		route, isObject := objectOf(given)
		if !isObject {
			r.add(NetworkClaim{What: fmt.Sprintf("%s routes[%d] is no object", what, i), Kind: ClaimNothing, Names: names, Of: at})
			continue
		}
		to, plain := plainPrefix(route["network"], route["netmask"])
		word, _ := wordOf(route["network"])
		if zero := to.IsValid() && to.Addr().IsUnspecified(); word == "default" || zero && isUntold(route["netmask"]) && !strings.Contains(word, "/") {
			mask, isText := wordOf(route["netmask"])
			to, plain = netip.PrefixFrom(everything(a), 0), word == "default" || zero && to.Addr().Is4() == a.Is4() && isText && mask == ""
		}
		r.readRoute(what, names, prefix, at, to, plain, route["gateway"])
	}
	if gateway, _ := wordOf(n["gateway"]); strings.TrimSpace(gateway) != "" || isComposite(n["gateway"]) {
		if via, err := netip.ParseAddr(gateway); err == nil && via.IsUnspecified() && via.Is4() == a.Is4() {
			return // no gateway at all
		}
		r.readRoute(what, names, prefix, at, netip.PrefixFrom(everything(a), 0), true, n["gateway"])
	}
}

func everything(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// readRoute reads a route of the network with a prefix, whose claim is at a position.
func (r *networkRule) readRoute(what string, names []string, own netip.Prefix, at int, to netip.Prefix, plain bool, gateway any) {
	word, _ := wordOf(gateway)
	via, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(word), "[]"))
	what = fmt.Sprintf("%s route to %s by %q", what, to, word)
	if !to.IsValid() || err != nil || via.Zone() != "" {
		r.add(NetworkClaim{What: what, Kind: ClaimNothing, Names: names, Of: at})
		return
	}
	masked := to.Masked()
	c := NetworkClaim{What: what, Kind: ClaimRoute, Names: names, On: r.claims[at].On, Address: own.Addr(), To: masked, Via: via.Unmap(), Of: at}
	same := masked.Addr().Is4() == own.Addr().Is4() && c.Via.Is4() == own.Addr().Is4()
	c.Must = r.claims[at].Must && plain && masked == to && same && !to.Addr().IsUnspecified() && !to.Addr().IsMulticast() && !to.Addr().IsLoopback() && !to.Overlaps(own)
	if masked.Bits() == 0 && masked.Addr().IsUnspecified() {
		c.Must = r.claims[at].Must && plain && same
	} else if masked.Addr().IsUnspecified() || masked.Bits() == 0 {
		c.Must = false
	}
	if c.Via.IsUnspecified() {
		c.Via = netip.Addr{}
		c.Must = c.Must && masked.Bits() > 0
	} else {
		c.Must = c.Must && word == via.String() && isHost(via) && own.Masked().Contains(via) && !isEdge(netip.PrefixFrom(via, own.Bits())) && via != own.Addr()
	}
	c.Dial = c.Must
	c.Far = farAddress(masked)
	for _, o := range r.routes {
		if other := r.claims[o]; other.To == masked && other.Of == at {
			if other.Via == c.Via {
				return // the same route again
			}
			c.Dial = false // the kernel takes the first one
		}
	}
	r.routes = append(r.routes, r.add(c))
}

// Addresses that lie behind every router of the world.
var (
	far4 = netip.MustParseAddr("192.0.2.199")
	far6 = netip.MustParseAddr("2001:db8:ffff::99")
)

// farAddress is an address that a route leads to.
func farAddress(to netip.Prefix) netip.Addr {
	switch {
	case to.Bits() == 0 && to.Addr().Is4():
		return far4
	case to.Bits() == 0:
		return far6
	case to.IsSingleIP():
		return to.Addr()
	}
	return to.Addr().Next()
}

// isHost tells whether a machine or router may have the address.
func isHost(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.Is4In6() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) &&
		(a.Is6() || a.As4()[0] != 0 && a.As4()[0] < 224)
}

// isEdge tells whether an address is the first or the last of its IPv4 network, which no host may have.
func isEdge(p netip.Prefix) bool {
	if !p.Addr().Is4() || p.Bits() > 30 {
		return false
	}
	b := p.Addr().As4()
	host := binary.BigEndian.Uint32(b[:]) << p.Bits() >> p.Bits()
	return host == 0 || host == 1<<(32-p.Bits())-1
}

// plainPrefix reads an address with its netmask. plain tells whether every reader of the format understands both. An address without a netmask that can
// be read has the length of the whole address.
func plainPrefix(address, mask any) (p netip.Prefix, plain bool) {
	word, isText := wordOf(address)
	text, behind, hasSlash := strings.Cut(word, "/")
	a, err := netip.ParseAddr(text)
	plain = isText && err == nil
	if err != nil {
		a, err = netip.ParseAddr(strings.Trim(strings.TrimSpace(text), "[]"))
	}
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	plain = plain && !a.Is4In6()
	a = a.Unmap()
	length, _ := wordOf(mask)
	if hasSlash {
		length = behind
	}
	n, ok := plainLength(length, a)
	if !ok || isComposite(mask) {
		return netip.PrefixFrom(a, a.BitLen()), false
	}
	return netip.PrefixFrom(a, n), plain && (n > 0 || a.IsUnspecified())
}

// plainLength reads the length of a network, or an IPv4 or IPv6 netmask.
func plainLength(word string, of netip.Addr) (int, bool) {
	word = strings.TrimPrefix(strings.TrimSpace(word), "/")
	if n, err := strconv.Atoi(word); err == nil {
		return n, n >= 0 && n <= of.BitLen() && word == strconv.Itoa(n)
	}
	m, err := netip.ParseAddr(word)
	if err != nil || m.Is4() != of.Is4() {
		return 0, false
	}
	ones, all := 0, m.AsSlice()
	for _, b := range all {
		ones += bits.OnesCount8(b)
	}
	for i, b := range all { // the ones must come first
		if want := byte(0xff << (8 - min(8, max(0, ones-8*i)))); b != want {
			return 0, false
		}
	}
	return ones, true
}

// readServers reads the name servers. The C library reads the first three only, so beyond those nothing is claimed.
func (r *networkRule) readServers(top map[string]any) {
	var found []NetworkClaim
	count := map[string]bool{}
	one := func(at string, address any) {
		word, isText := wordOf(address)
		parts := strings.FieldsFunc(word, func(c rune) bool { return c == ',' || c == ' ' || c == ';' })
		names := []string{at, "name server"}
		for _, part := range parts {
			count[part] = true
			a, err := netip.ParseAddr(part)
			c := NetworkClaim{What: at + " " + part, Kind: ClaimDNS, Names: names, DNS: a.Unmap(), Of: -1, Must: isText && len(parts) == 1 && word == part && isHost(a)}
			if err != nil {
				c.Kind, c.Must = ClaimNothing, false
			}
			found = append(found, c)
		}
		if len(parts) == 0 {
			found = append(found, NetworkClaim{What: at + " without an address", Kind: ClaimNothing, Names: names, Of: -1})
		}
	}
	services := func(at string, v any) {
		for i, given := range listOf(v) {
			where := fmt.Sprintf("%s[%d]", at, i)
			switch s := unwrap(given).(type) {
			case nil:
			case map[string]any:
				if kind, _ := wordOf(s["type"]); strings.EqualFold(strings.TrimSpace(kind), "dns") {
					one(where, s["address"])
				} else if isComposite(s["type"]) {
					found = append(found, NetworkClaim{What: where, Kind: ClaimNothing, Names: []string{at}, Of: -1})
				}
			default:
				found = append(found, NetworkClaim{What: where + " is no object", Kind: ClaimNothing, Names: []string{at}, Of: -1})
			}
		}
	}
	services("services", top["services"])
	for i, given := range listOf(top["networks"]) {
		if n, isObject := objectOf(given); isObject {
			services(fmt.Sprintf("networks[%d].services", i), n["services"])
			for _, server := range rawListOf(n["dns_nameservers"]) {
				if !isUntoldText(server) {
					one(fmt.Sprintf("networks[%d].dns_nameservers", i), server)
				}
			}
		}
	}
	for _, c := range found {
		if c.Kind == ClaimNothing || len(count) <= 3 {
			r.add(c)
		}
	}
}

// judgeConflicts takes the connection from claims whose answers another line of the document may lead elsewhere, and the certainty from addresses that
// are there twice.
func (r *networkRule) judgeConflicts() {
	for i, n := range r.statics {
		c := &r.claims[n.claim]
		for j, o := range r.statics {
			if i == j {
				continue
			}
			if o.prefix.Addr() == n.prefix.Addr() {
				c.Must, c.Dial = false, false
			} else if !samePlace(o.place, n.place) && o.prefix.Masked().Contains(Neighbour(n.prefix.Addr())) && o.prefix.Bits() >= n.prefix.Bits() {
				c.Dial = false
			}
		}
		for _, at := range r.routes {
			if route := r.claims[at]; route.To.Contains(Neighbour(n.prefix.Addr())) && route.To.Bits() >= n.prefix.Bits() {
				c.Dial = false
			}
		}
	}
	for _, at := range r.routes {
		c := &r.claims[at]
		if !r.claims[c.Of].Must {
			c.Must, c.Dial = false, false
		}
		for _, n := range r.statics {
			if n.prefix.Masked().Contains(c.Far) || n.prefix.Addr() == c.Via || n.claim != c.Of && n.prefix.Masked().Contains(c.Via) {
				c.Dial = false
			}
			if n.prefix.Addr() == c.Via { // the machine is its own gateway
				c.Must = false
			}
		}
		for _, o := range r.routes {
			other := r.claims[o]
			if o != at && other.To.Contains(c.Far) && (other.To.Bits() > c.To.Bits() || other.To.Bits() == c.To.Bits() && c.To.Bits() > 0) {
				c.Dial = false
			}
		}
	}
}

func samePlace(a, b LinkPlace) bool {
	return a.Stack == b.Stack && a.Segment == b.Segment && a.Tag == b.Tag && slices.Equal(a.NICs, b.NICs)
}

// Neighbour is the other address of the pair that an address is in.
func Neighbour(a netip.Addr) netip.Addr {
	b := a.AsSlice()
	b[len(b)-1] ^= 1
	out, _ := netip.AddrFromSlice(b)
	return out
}
