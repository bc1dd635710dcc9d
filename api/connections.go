package api

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// activeGrace is how long a stranger's request may be in work before its connection gives its place to a newer one.
const activeGrace = 2 * time.Second

// boundLog is how often a listener says that it closes connections.
const boundLog = time.Minute

// Connections bounds the connections of all listeners of a process. A connection is proven as soon as one of its requests has
// shown a credential, an agent's token or the path of a boot file, or its TLS client has a certificate that a listener takes.
// Proven connections and those of trusted proxies do not count against a source or a listener. At a bound the oldest idle
// unproven connection is closed, so strangers displace each other and nobody else.
type Connections struct {
	config ConnectionConfig

	mu      sync.Mutex
	all     int
	sources map[netip.Addr]*places
}

// ConnectionConfig are the bounds; 0 is no bound.
type ConnectionConfig struct {
	PerSource int // unproven, of one IPv4 address or one /64 of IPv6
	PerDoor   int // unproven, of one listener
	All       int // of all listeners but reserved ones, so that descriptors are left for those, the database and BMCs
	Proxies   []netip.Prefix
	Log       *slog.Logger
}

// NewConnections makes the bounds for the listeners of one process.
func NewConnections(c ConnectionConfig) *Connections {
	return &Connections{config: c, sources: map[netip.Addr]*places{}}
}

// places are the unproven connections of a source or a listener, those that changed longest ago first.
type places struct{ idle, active list.List }

func (p *places) len() int { return p.idle.Len() + p.active.Len() }

// oldest is the connection that gives its place away; nil: each is busy with a new request.
func (p *places) oldest(now time.Time) *bounded {
	if e := p.idle.Front(); e != nil {
		return e.Value.(*bounded)
	}
	if e := p.active.Front(); e != nil {
		if b := e.Value.(*bounded); now.Sub(b.since) >= activeGrace {
			return b
		}
	}
	return nil
}

// Listener bounds what l accepts. Where it is reserved, its connections do not count among all.
func (c *Connections) Listener(l net.Listener, name string, reserved bool) net.Listener {
	return &boundedListener{Listener: l, of: c, name: name, reserved: reserved}
}

type boundedListener struct {
	net.Listener
	of       *Connections
	name     string
	reserved bool
	places   places
	closed   int       // since it was logged; of.mu guards both
	logged   time.Time // when
}

// Accept gives the next connection that has a place.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		b := &bounded{Conn: conn, listener: l, source: sourceOf(conn.RemoteAddr())}
		if l.of.enter(b) {
			return b, nil
		}
		_ = conn.Close()
	}
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
func (c *Connections) enter(b *bounded) bool {
	l := b.listener
	c.mu.Lock()
	var out *bounded
	now := time.Now()
	full := func(p *places, most int) bool {
		if most <= 0 || p == nil || p.len() < most {
			return false
		}
		out = p.oldest(now)
		return true
	}
	exempt := slices.ContainsFunc(c.config.Proxies, func(p netip.Prefix) bool { return p.Contains(b.source) })
	bounded := !exempt && (full(c.sources[b.source], c.config.PerSource) || full(&l.places, c.config.PerDoor))
	if !bounded && !l.reserved && c.config.All > 0 && c.all >= c.config.All {
		bounded, out = true, l.places.oldest(now)
	}
	if bounded {
		l.closed++
		if now.Sub(l.logged) >= boundLog && c.config.Log != nil {
			c.config.Log.Warn("closing connections of clients that have not authenticated: too many are open", "door", l.name, "source", b.source, "closed", l.closed)
			l.closed, l.logged = 0, now
		}
	}
	if bounded && out == nil {
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

// place puts an unproven connection among the newest idle or active ones.
func (c *Connections) place(b *bounded, active bool, now time.Time) {
	if b.proven || !b.counted {
		return
	}
	c.displace(b)
	b.active, b.since = active, now
	s := c.sources[b.source]
	if s == nil {
		s = &places{}
		c.sources[b.source] = s
	}
	for i, p := range []*places{s, &b.listener.places} {
		if active {
			b.at[i] = p.active.PushBack(b)
		} else {
			b.at[i] = p.idle.PushBack(b)
		}
	}
}

func (c *Connections) displace(b *bounded) {
	if b.at[0] == nil {
		return
	}
	s := c.sources[b.source]
	for i, p := range []*places{s, &b.listener.places} {
		p.idle.Remove(b.at[i]) // the list that it is not in leaves it alone
		p.active.Remove(b.at[i])
		b.at[i] = nil
	}
	if s.len() == 0 {
		delete(c.sources, b.source)
	}
}

func (c *Connections) leave(b *bounded) {
	if !b.counted {
		return
	}
	c.displace(b)
	if b.counted = false; !b.listener.reserved {
		c.all--
	}
}

// bounded is a connection with its place.
type bounded struct {
	net.Conn
	listener *boundedListener
	source   netip.Addr

	// Connections.mu guards the rest.
	counted, proven, active bool
	since                   time.Time
	at                      [2]*list.Element // among its source's and its listener's
}

// Close gives the place up.
func (b *bounded) Close() error {
	b.listener.of.mu.Lock()
	b.listener.of.leave(b)
	b.listener.of.mu.Unlock()
	return b.Conn.Close()
}

// prove exempts the connection from now on.
func (b *bounded) prove() {
	if b == nil {
		return
	}
	c := b.listener.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.proven {
		b.proven = true
		c.displace(b)
	}
}

type boundedKey struct{}

// withConnection has requests find their connection.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if b := boundedOf(conn); b != nil {
		return context.WithValue(ctx, boundedKey{}, b)
	}
	return ctx
}

func connectionOf(ctx context.Context) *bounded {
	b, _ := ctx.Value(boundedKey{}).(*bounded)
	return b
}

func boundedOf(conn net.Conn) *bounded {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	b, _ := conn.(*bounded)
	return b
}

// noteState moves a connection between those that wait for a request and those that work on one.
func noteState(conn net.Conn, state http.ConnState) {
	b := boundedOf(conn)
	if b == nil || state != http.StateActive && state != http.StateIdle {
		return
	}
	c := b.listener.of
	c.mu.Lock()
	defer c.mu.Unlock()
	c.place(b, state == http.StateActive, time.Now())
}
