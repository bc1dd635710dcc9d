package crash

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
)

var errNotServed = errors.New("not served")

// place is where a request can be held.
type place string

const (
	atBMC       place = "BMC request"
	atLookup    place = "lookup"
	atHeartbeat place = "heartbeat"
	atAgent     place = "agent call"
)

// stop holds one request of a machine until the server is dead. The request then has
// either never arrived, or it was carried out and its answer is lost.
type stop struct {
	place   place
	nth     int // from 1
	carried bool
}

func (s stop) String() string {
	how := "lost"
	if s.carried {
		how = "carried out, its answer lost"
	}
	return fmt.Sprintf("%s %d %s", s.place, s.nth, how)
}

// turnstile lets all requests through but the one of its stop.
type turnstile struct {
	gate    sync.Mutex
	at      *stop
	counts  map[place]int
	held    chan struct{}
	release chan struct{}
}

// arm sets the stop, counting from now on; held is closed when it has been reached.
func (g *turnstile) arm(s *stop) (held <-chan struct{}) {
	g.gate.Lock()
	defer g.gate.Unlock()
	g.at, g.counts = s, map[place]int{}
	g.held, g.release = make(chan struct{}), make(chan struct{})
	return g.held
}

// letGo ends the holding, and the stop.
func (g *turnstile) letGo() {
	g.gate.Lock()
	defer g.gate.Unlock()
	if g.release != nil {
		close(g.release)
	}
	g.at, g.release = nil, nil
}

// arrive counts a request; it returns the stop if this is the one to hold.
func (g *turnstile) arrive(p place) (s *stop, held, release chan struct{}) {
	g.gate.Lock()
	defer g.gate.Unlock()
	if g.at == nil || g.at.place != p {
		return nil, nil, nil
	}
	if g.counts[p]++; g.counts[p] != g.at.nth {
		return nil, nil, nil
	}
	return g.at, g.held, g.release
}

// pass serves a request, or holds it and then cuts the connection.
func (g *turnstile) pass(p place, w http.ResponseWriter, serve func(http.ResponseWriter)) {
	s, held, release := g.arrive(p)
	if s == nil {
		serve(w)
		return
	}
	if s.carried {
		serve(httptest.NewRecorder())
	}
	close(held)
	<-release
	panic(http.ErrAbortHandler)
}

// relay stands between the server and one agent, which is reached by it only.
type relay struct {
	m        *machine
	listener net.Listener
	target   string

	mu   sync.Mutex
	lost chan struct{} // closed once the agent has given the answer that is held
}

// relayed gives the URL under which the server shall call an agent's URL.
func (m *machine) relayed(callback string) (string, error) {
	u, err := url.Parse(callback)
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.relays[callback]
	if r == nil {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		r = &relay{m: m, listener: listener, target: u.Host}
		m.relays[callback] = r
		m.live.Go(r.serve)
	}
	u.Host = r.listener.Addr().String()
	return u.String(), nil
}

// dropRelays closes the doors of an agent that is gone.
func (m *machine) dropRelays() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.relays {
		r.listener.Close()
		r.gone()
		delete(m.relays, name)
	}
}

// gone tells who holds the answer that the agent has given it, and has ended.
func (r *relay) gone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost != nil {
		close(r.lost)
		r.lost = nil
	}
}

func (r *relay) serve() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		s, held, release := r.m.arrive(atAgent)
		switch {
		case s == nil:
			r.m.live.Go(func() { r.join(conn, nil) })
		case s.carried:
			r.mu.Lock()
			r.lost = held
			r.mu.Unlock()
			r.m.live.Go(func() { r.join(conn, release) })
		default:
			close(held)
			r.m.live.Go(func() { <-release; conn.Close() })
		}
	}
}

// join copies both ways. With release, the agent's words after it set the password
// are dropped, and the connection stays open until then.
func (r *relay) join(conn net.Conn, release <-chan struct{}) {
	defer conn.Close()
	agent, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer agent.Close()
	r.m.live.Go(func() { _, _ = io.Copy(agent, conn); agent.Close() })
	if release == nil {
		_, _ = io.Copy(conn, agent)
		return
	}
	buffer := make([]byte, 32<<10)
	for {
		n, err := agent.Read(buffer)
		if n > 0 && len(r.m.opened()) == 0 {
			_, _ = conn.Write(buffer[:n])
		}
		if err != nil {
			break
		}
	}
	<-release
}
