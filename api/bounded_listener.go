package api

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"
)

type boundedListener struct {
	net.Listener
	of       *Connections
	name     string
	reserved bool

	// of.mu guards the rest.
	strangers, knownSources unprovenConnections
	closed                  int       // since it was logged
	logged                  time.Time // when
}

// placesFor are those among which b counts.
func (l *boundedListener) placesFor(b *boundedConn) *unprovenConnections {
	if b.known {
		return &l.knownSources
	}
	return &l.strangers
}

// Accept gives the next connection that has a place.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		b := &boundedConn{Conn: conn, listener: l, source: sourceOf(conn.RemoteAddr())}
		if l.of.enter(b) {
			return b, nil
		}
		_ = conn.Close()
	}
}

// countedIn are the places that count b: those of its source and those of its listener.
func (b *boundedConn) countedIn(source *unprovenConnections) [2]*unprovenConnections {
	return [2]*unprovenConnections{source, b.listener.placesFor(b)}
}

// boundedConn is a connection with its place.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	source   netip.Addr

	// Connections.mu guards the rest.
	counted, proven bool
	known           bool // its source was known when it was accepted
	since           time.Time
	at              [2]*list.Element // among its source's and its listener's
}

// Close gives the place up.
func (b *boundedConn) Close() error {
	b.listener.of.mu.Lock()
	b.listener.of.leave(b)
	b.listener.of.mu.Unlock()
	return b.Conn.Close()
}

// prove exempts the connection from now on.
func (b *boundedConn) prove() {
	if b == nil {
		return
	}
	c := b.listener.of
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rememberSource(b.source, time.Now())
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

func connectionOf(ctx context.Context) *boundedConn {
	b, _ := ctx.Value(boundedKey{}).(*boundedConn)
	return b
}

func boundedOf(conn net.Conn) *boundedConn {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	b, _ := conn.(*boundedConn)
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
