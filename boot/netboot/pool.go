package netboot

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"

	"salvor/problem"
)

// Range is a stretch of addresses that is leased on one network.
type Range struct {
	// Network is the network with its prefix length; relayed requests find their range by it. Zero: that
	// of the interface's address.
	Network netip.Prefix
	// From and To are the first and the last address, both included.
	From, To netip.Addr
	// Gateway is needed where the URLs of plans lie in another network; our own address does, where
	// that network is on this machine too. None where zero.
	Gateway netip.Addr
	DNS     []netip.Addr
}

// maxRange bounds the memory that a flood of invented MACs can take.
const maxRange = 1 << 16

func (r Range) check() error {
	n := r.Network.Masked()
	if !n.IsValid() || !n.Addr().Is4() {
		return problem.Invalidf("DHCP range: network %s is not an IPv4 network", r.Network)
	}
	if !n.Contains(r.From) || !n.Contains(r.To) || r.To.Less(r.From) {
		return problem.Invalidf("DHCP range: %s to %s is not a range in %s", r.From, r.To, n)
	}
	if addrToUint32(r.To)-addrToUint32(r.From) >= maxRange {
		return problem.Invalidf("DHCP range: %s to %s has more than %d addresses", r.From, r.To, maxRange)
	}
	return nil
}

// addressPool leases the addresses of a range. Which address a MAC gets follows from the MAC
// alone as long as nobody else has it, and what clients say they have is believed where it is free: so
// a restarted or a second server gives the same answers without a lease file.
type addressPool struct {
	Range
	reserved []netip.Addr

	mu     sync.Mutex
	holder map[netip.Addr]addressLease
	byMAC  map[string]netip.Addr
}

// addressLease is who has an address until when. An empty MAC holds an address that a client
// found in use by somebody else.
type addressLease struct {
	mac   string
	until time.Time
}

func newPool(r Range, reserved ...netip.Addr) *addressPool {
	n := r.Network.Masked()
	reserved = append(reserved, n.Addr(), broadcast(n), r.Gateway)
	return &addressPool{Range: r, reserved: append(reserved, r.DNS...), holder: map[netip.Addr]addressLease{}, byMAC: map[string]netip.Addr{}}
}

// offer finds an address for a MAC and keeps it until then: the one it has, the one it
// asks for, or the one that follows from the MAC. It is false when none is free.
func (p *addressPool) offer(mac string, wanted netip.Addr, now, until time.Time) (netip.Addr, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.byMAC[mac]; ok && p.takeLocked(mac, a, now, until) {
		return a, true
	}
	if p.takeLocked(mac, wanted, now, until) {
		return wanted, true
	}
	first, size := addrToUint32(p.From), addrToUint32(p.To)-addrToUint32(p.From)+1
	h := fnv.New32a()
	_, _ = h.Write([]byte(mac))
	start := h.Sum32() % size
	for i := range size {
		a := uint32ToAddr(first + (start+i)%size)
		if p.takeLocked(mac, a, now, until) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// take gives a MAC the address it names, if it may have it.
func (p *addressPool) take(mac string, a netip.Addr, now, until time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.takeLocked(mac, a, now, until)
}

func (p *addressPool) takeLocked(mac string, a netip.Addr, now, until time.Time) bool {
	if !p.has(a) || slices.Contains(p.reserved, a) {
		return false
	}
	h, held := p.holder[a]
	if held && h.mac != mac && now.Before(h.until) {
		return false
	}
	if held && h.mac == mac && until.Before(h.until) {
		until = h.until
	}
	if held && h.mac != mac {
		delete(p.byMAC, h.mac)
	}
	if old, ok := p.byMAC[mac]; ok && old != a {
		delete(p.holder, old)
	}
	p.holder[a] = addressLease{mac, until}
	p.byMAC[mac] = a
	return true
}

// decline keeps an address that its client found in use from everybody until then.
func (p *addressPool) decline(mac string, a netip.Addr, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holder[a].mac != mac || p.byMAC[mac] != a {
		return
	}
	delete(p.byMAC, mac)
	p.holder[a] = addressLease{until: until}
}

// release gives back the address of a MAC.
func (p *addressPool) release(mac string, a netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byMAC[mac] == a {
		delete(p.byMAC, mac)
		delete(p.holder, a)
	}
}

// hasLeased tells whether a MAC has an address from us, as far as that is remembered.
func (p *addressPool) hasLeased(mac string, a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	had, ok := p.byMAC[mac]
	return ok && had == a
}

// free tells whether a MAC has an address already, or there is one that nobody holds.
func (p *addressPool) free(macs []string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, mac := range macs {
		if _, ok := p.byMAC[mac]; ok {
			return true
		}
	}
	held := 0
	for _, h := range p.holder {
		if now.Before(h.until) {
			held++
		}
	}
	size := int(addrToUint32(p.To)-addrToUint32(p.From)) + 1
	if held+len(p.reserved) < size {
		return true
	}
	for i := range size {
		a := uint32ToAddr(addrToUint32(p.From) + uint32(i))
		if h, taken := p.holder[a]; !slices.Contains(p.reserved, a) && (!taken || !now.Before(h.until)) {
			return true
		}
	}
	return false
}

// has tells whether an address lies in the range.
func (p *addressPool) has(a netip.Addr) bool {
	return a.Is4() && !a.Less(p.From) && !p.To.Less(a)
}

func addrToUint32(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

func uint32ToAddr(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// broadcast gives the last address of a network.
func broadcast(n netip.Prefix) netip.Addr {
	return uint32ToAddr(addrToUint32(n.Addr()) | uint32(uint64(1)<<(32-n.Bits())-1))
}
