package api

import (
	"container/list"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// displaceAfter is how long an unproven connection may be idle, or work on one request, before a newer connection displaces it first.
	displaceAfter = 2 * time.Second
	// maxCompared bounds the connections whose sources Connections compares when all of a listener's are younger than displaceAfter.
	// It also bounds the known sources among which it looks for the oldest.
	maxCompared = 16
	// knownSourceTime is how long a source is known after one of its requests was proven. maxKnownSources bounds the known sources.
	knownSourceTime = 10 * time.Minute
	maxKnownSources = 1 << 14
)

// boundLog is how often a listener says that it closes connections.
const boundLog = time.Minute

// Connections bounds the connections of all listeners of a process. A connection is proven as soon as one of its requests has
// shown a credential, an agent's token or the path of a boot file, or its TLS client has a certificate that a listener takes.
// Proven connections and those of trusted proxies do not count against a source or a listener. At a bound the oldest idle
// unproven connection is closed, so strangers displace each other and nobody else. A source that has proven a request lately is
// known: strangers of other sources do not close its new connections. The new connections of all known sources have a bound of
// their own, as high as that of strangers, so clients that have authenticated once cannot use up the open files either.
type Connections struct {
	config ConnectionConfig

	mu        sync.Mutex
	listeners []*boundedListener
	all       int
	sources   map[netip.Addr]*unprovenConnections
	known     map[netip.Addr]time.Time // by source: when a request of it was proven last
}

// ConnectionConfig are the bounds; 0 is no bound.
type ConnectionConfig struct {
	PerSource   int // unproven, of one IPv4 address or one /64 of IPv6
	PerListener int // unproven, of one listener; known sources and others are counted separately
	All         int // of all listeners but reserved ones, so that descriptors are left for those, the database and BMCs
	Proxies     []netip.Prefix
	Log         *slog.Logger
}

// NewConnections makes the bounds for the listeners of one process.
func NewConnections(c ConnectionConfig) *Connections {
	return &Connections{config: c, sources: map[netip.Addr]*unprovenConnections{}, known: map[netip.Addr]time.Time{}}
}

// unprovenConnections are the unproven connections of a source or a listener, those that changed longest ago first.
type unprovenConnections struct{ idle, active list.List }

func (p *unprovenConnections) len() int { return p.idle.Len() + p.active.Len() }

// oldest is the connection that waited for a request, or worked on one, for longer than displaceAfter; nil: there is none.
func (p *unprovenConnections) oldest(now time.Time) *boundedConn {
	for _, l := range []*list.List{&p.idle, &p.active} {
		if e := l.Front(); e != nil {
			if b := e.Value.(*boundedConn); now.Sub(b.since) >= displaceAfter {
				return b
			}
		}
	}
	return nil
}

// victim chooses the connection of a source that a newer one of the same source displaces; nil: it has none.
func (p *unprovenConnections) victim(now time.Time) *boundedConn {
	if b := p.oldest(now); b != nil {
		return b
	}
	var out *boundedConn
	for _, l := range []*list.List{&p.idle, &p.active} {
		if e := l.Front(); e != nil && (out == nil || e.Value.(*boundedConn).since.Before(out.since)) {
			out = e.Value.(*boundedConn)
		}
	}
	return out
}

// victim chooses the connection among these that a newer one of the given source displaces; nil: there is none. If all are younger than
// displaceAfter, it is one of the source that has the most. So a source with few connections gets in and has time for its request.
func (c *Connections) victim(p *unprovenConnections, source netip.Addr, now time.Time) *boundedConn {
	if b := p.oldest(now); b != nil {
		return b
	}
	var out *boundedConn
	most := c.unproven(source)
	for _, l := range []*list.List{&p.idle, &p.active} {
		for e, i := l.Front(), 0; e != nil && i < maxCompared; e, i = e.Next(), i+1 {
			b := e.Value.(*boundedConn)
			if n := c.unproven(b.source); n > most || n == most && out != nil && b.since.Before(out.since) {
				out, most = b, n
			}
		}
	}
	return out
}

// victimAnywhere chooses the connection that a newer one of the given source displaces when the process may have no more; nil: there is none.
// It is the one that has been idle longest on any listener, else one of the source that has the most. Strangers are displaced first. Only a
// connection of a known source displaces others of known sources.
func (c *Connections) victimAnywhere(source netip.Addr, known bool, now time.Time) *boundedConn {
	var strangers, knownSources []*unprovenConnections
	for _, l := range c.listeners {
		if !l.reserved {
			strangers, knownSources = append(strangers, &l.strangers), append(knownSources, &l.knownSources)
		}
	}
	if b := c.victimAmong(strangers, source, now); b != nil || !known {
		return b
	}
	return c.victimAmong(knownSources, source, now)
}

func (c *Connections) victimAmong(all []*unprovenConnections, source netip.Addr, now time.Time) *boundedConn {
	var out *boundedConn
	for _, p := range all {
		if b := p.oldest(now); b != nil && (out == nil || b.since.Before(out.since)) {
			out = b
		}
	}
	if out != nil {
		return out
	}
	slices.SortFunc(all, func(p, q *unprovenConnections) int { return q.len() - p.len() })
	for _, p := range all {
		if b := c.victim(p, source, now); b != nil {
			return b
		}
	}
	return nil
}

// unproven counts the unproven connections of a source.
func (c *Connections) unproven(source netip.Addr) int {
	if p := c.sources[source]; p != nil {
		return p.len()
	}
	return 0
}

// isKnown tells whether a request of the source was proven lately.
func (c *Connections) isKnown(source netip.Addr, now time.Time) bool {
	at, ok := c.known[source]
	return ok && now.Sub(at) < knownSourceTime
}

// rememberSource makes a source known. If maxKnownSources are known, it forgets the oldest of maxCompared that it picks at random.
func (c *Connections) rememberSource(source netip.Addr, now time.Time) {
	if _, ok := c.known[source]; !ok && len(c.known) >= maxKnownSources {
		var oldest netip.Addr
		var since time.Time
		looked := 0
		for a, at := range c.known { // in an order that no client can choose
			if looked == 0 || at.Before(since) {
				oldest, since = a, at
			}
			if looked++; looked == maxCompared {
				break
			}
		}
		delete(c.known, oldest)
	}
	c.known[source] = now
}

// Listener bounds what l accepts. Where it is reserved, its connections do not count among all.
func (c *Connections) Listener(l net.Listener, name string, reserved bool) net.Listener {
	bounded := &boundedListener{Listener: l, of: c, name: name, reserved: reserved}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, bounded)
	return bounded
}

// sourceOf is an IPv4 address, or the /64 of an IPv6 address.
func sourceOf(at net.Addr) netip.Addr {
	p, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return netip.IPv6Unspecified()
	}
	a := p.Addr().Unmap().WithZone("")
	if a.Is6() {
		if n, err := a.Prefix(64); err == nil {
			return n.Addr()
		}
	}
	return a
}

// enter takes a place for b, if need be that of an older one; false: there is none.
func (c *Connections) enter(b *boundedConn) bool {
	l := b.listener
	c.mu.Lock()
	now := time.Now()
	exempt := slices.ContainsFunc(c.config.Proxies, func(p netip.Prefix) bool { return p.Contains(b.source) })
	b.known = c.isKnown(b.source, now)
	var full bool
	var out *boundedConn
	switch {
	case exempt:
	case c.config.PerSource > 0 && c.unproven(b.source) >= c.config.PerSource:
		full, out = true, c.sources[b.source].victim(now)
	case c.config.PerListener > 0 && l.placesFor(b).len() >= c.config.PerListener:
		full, out = true, c.victim(l.placesFor(b), b.source, now)
	}
	if !l.reserved && c.config.All > 0 && c.all >= c.config.All && (!full || out != nil && out.listener.reserved) {
		full, out = true, c.victimAnywhere(b.source, b.known, now)
	}
	if full {
		closes := b
		if out != nil {
			closes = out
		}
		c.noteClosed(closes, now)
	}
	if full && out == nil {
		c.mu.Unlock()
		return false
	}
	if out != nil {
		c.leave(out)
	}
	if !l.reserved {
		c.all++
	}
	b.counted, b.proven = true, exempt
	c.place(b, false, now)
	c.mu.Unlock()
	if out != nil {
		_ = out.Conn.Close()
	}
	return true
}

// noteClosed logs, once in boundLog for each listener, that connections are closed.
func (c *Connections) noteClosed(b *boundedConn, now time.Time) {
	l := b.listener
	l.closed++
	if now.Sub(l.logged) >= boundLog && c.config.Log != nil {
		c.config.Log.Warn("closing connections of clients that have not authenticated: too many are open", "door", l.name, "source", b.source, "closed", l.closed)
		l.closed, l.logged = 0, now
	}
}

// place puts an unproven connection among the newest idle or active ones.
func (c *Connections) place(b *boundedConn, active bool, now time.Time) {
	if b.proven || !b.counted {
		return
	}
	c.displace(b)
	b.since = now
	s := c.sources[b.source]
	if s == nil {
		s = &unprovenConnections{}
		c.sources[b.source] = s
	}
	for i, p := range b.countedIn(s) {
		if active {
			b.at[i] = p.active.PushBack(b)
		} else {
			b.at[i] = p.idle.PushBack(b)
		}
	}
}

func (c *Connections) displace(b *boundedConn) {
	if b.at[0] == nil {
		return
	}
	s := c.sources[b.source]
	for i, p := range b.countedIn(s) {
		p.idle.Remove(b.at[i]) // the list that it is not in leaves it alone
		p.active.Remove(b.at[i])
		b.at[i] = nil
	}
	if s.len() == 0 {
		delete(c.sources, b.source)
	}
}

func (c *Connections) leave(b *boundedConn) {
	if !b.counted {
		return
	}
	c.displace(b)
	if b.counted = false; !b.listener.reserved {
		c.all--
	}
}
