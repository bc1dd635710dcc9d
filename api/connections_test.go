package api_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/test/must"
)

// listen serves a listener of which everybody may ask, and who shows the token "right" is known, within bounds.
func listen(t *testing.T, c api.ConnectionConfig, reserved bool) (address string, log *lines) {
	t.Helper()
	log = &lines{}
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	limits := api.NewLimits(api.LimitConfig{})
	auth := limits.Auth(known{}, false)
	handler := limits.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			api.Arrive(r)
			if _, err := api.ReadBody(w, r, 16<<20); err != nil {
				w.WriteHeader(api.Status(err))
				return
			}
		}
		if _, err := auth.Authenticate(r); err != nil {
			w.WriteHeader(api.Status(err))
			return
		}
		_, _ = io.WriteString(w, "ok")
	}))
	return serveWithin(t, handler, api.NewConnections(c), reserved), log
}

// serveWithin serves one more listener within bounds.
func serveWithin(t *testing.T, handler http.Handler, bounds *api.Connections, reserved bool) (address string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := api.NewServer(handler, slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(bounds.Listener(l, "test", reserved)) }()
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// lines is a log that several goroutines write.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(b) }
func (l *lines) text() string                { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

type known struct{}

func (known) Authenticate(r *http.Request) (access.Principal, error) {
	switch r.Header.Get("X-Auth-Token") {
	case "right":
		return access.Principal{Role: access.Admin}, nil
	case "":
		return access.Principal{}, &api.Error{Status: http.StatusNotFound}
	}
	return access.Principal{}, &api.Error{Status: http.StatusUnauthorized}
}

// dialed opens a connection from an address of this machine.
func dialed(t testing.TB, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 30 * time.Second}
	c := must.Get(d.Dial("tcp", to))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// leaves closes a connection, and waits until its place is free: the server gives that up before it closes its end.
func leaves(t testing.TB, c net.Conn) {
	t.Helper()
	must.OK(t, c.(*net.TCPConn).CloseWrite())
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, err := io.Copy(io.Discard, c)
	must.OK(t, errors.Join(err, c.Close()))
}

// asks sends a request on a connection and gives the status, 0: the connection was closed.
func asks(t testing.TB, c net.Conn, token string) int {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Auth-Token: %s\r\n\r\n", token); err != nil {
		return 0
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// TestIdleStrangersSilenceNobody has thousands of idle connections of two sources beside others that ask.
func TestIdleStrangersSilenceNobody(t *testing.T) {
	const many = 3000
	at, log := listen(t, api.ConnectionConfig{PerSource: 100, PerListener: 150, All: 1000}, false)
	proven := dialed(t, "127.0.0.1", at)
	if got := asks(t, proven, "right"); got != http.StatusOK {
		t.Fatalf("before the flood: %d", got)
	}
	flood := make([]net.Conn, 0, many)
	for i := range many {
		c := dialed(t, []string{"127.0.0.2", "127.0.0.3"}[i%2], at)
		if i%10 == 0 {
			asks(t, c, "")
		}
		flood = append(flood, c)
		if i%500 == 499 {
			began := time.Now()
			if got := asks(t, dialed(t, "127.0.0.4", at), ""); got != http.StatusNotFound {
				t.Fatalf("another stranger beside %d connections: %d", i+1, got)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("another stranger waited %s", took)
			}
		}
	}
	if got := asks(t, proven, "right"); got != http.StatusOK {
		t.Errorf("one that has authenticated, after the flood: %d", got)
	}
	awaitOpen(t, flood, 150)
	if n := strings.Count(log.text(), "closing connections"); n != 1 {
		t.Errorf("%d lines in the log: %s", n, log.text())
	}
}

// awaitOpen waits until the other side has closed all connections except most of them.
func awaitOpen(t *testing.T, all []net.Conn, most int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		open := 0
		for _, c := range all {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); isTimeout(err) {
				open++
			}
		}
		if open <= most {
			return
		}
		if time.Now().After(end) {
			t.Errorf("%d connections are open, want at most %d", open, most)
			return
		}
	}
}

// TestOneSourceDoesNotHoldAListener: the connections of one source displace each other, and not an idle one of another source.
func TestOneSourceDoesNotHoldAListener(t *testing.T) {
	at, _ := listen(t, api.ConnectionConfig{PerSource: 5, PerListener: 20}, false)
	other := dialed(t, "127.0.0.4", at)
	if got := asks(t, other, ""); got != http.StatusNotFound {
		t.Fatalf("before the flood: %d", got)
	}
	var flood []net.Conn
	for range 40 {
		c := dialed(t, "127.0.0.2", at)
		asks(t, c, "") // the listener has accepted it
		flood = append(flood, c)
	}
	if got := asks(t, other, ""); got != http.StatusNotFound {
		t.Errorf("another source's connection, after the flood: %d", got)
	}
	awaitOpen(t, flood, 5)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// TestClientsBehindOneAddress: those who have authenticated, and a trusted proxy, hold as many connections as they like.
func TestClientsBehindOneAddress(t *testing.T) {
	for name, c := range map[string]struct {
		token   string
		proxies []netip.Prefix
		status  int
	}{
		"clients that have authenticated": {token: "right", status: http.StatusOK},
		"a trusted proxy":                 {proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, status: http.StatusNotFound},
	} {
		at, log := listen(t, api.ConnectionConfig{PerSource: 10, PerListener: 20, Proxies: c.proxies}, false)
		var all []net.Conn
		for range 100 {
			conn := dialed(t, "127.0.0.2", at)
			if got := asks(t, conn, c.token); got != c.status {
				t.Fatalf("%s: %d", name, got)
			}
			all = append(all, conn)
		}
		for _, conn := range all {
			if got := asks(t, conn, c.token); got != c.status {
				t.Fatalf("%s, asked again: %d: %s", name, got, log.text())
			}
		}
	}
}

// TestReservedListenersHaveRoom: hosts find a descriptor when all others are taken.
func TestReservedListenersHaveRoom(t *testing.T) {
	for reserved, want := range map[bool]int{true: http.StatusOK, false: 0} {
		at, _ := listen(t, api.ConnectionConfig{All: 5}, reserved)
		var last int
		for range 10 {
			last = asks(t, dialed(t, "127.0.0.2", at), "right")
		}
		if last != want {
			t.Errorf("reserved %v: %d, want %d", reserved, last, want)
		}
	}
	// Another listener has all places of the process.
	c := api.NewConnections(api.ConnectionConfig{All: 5})
	full, hosts := listenWithin(t, c, "full", false), listenWithin(t, c, "hosts", true)
	for range 5 {
		if got := asks(t, dialed(t, "127.0.0.2", full), "right"); got != http.StatusOK {
			t.Fatalf("below the bound: %d", got)
		}
	}
	if got := asks(t, dialed(t, "127.0.0.2", full), "right"); got != 0 {
		t.Errorf("beyond the bound: %d", got)
	}
	if got := asks(t, dialed(t, "127.0.0.3", hosts), "right"); got != http.StatusOK {
		t.Errorf("a host beside a full listener: %d", got)
	}
}

// listenWithin serves one of several listeners that share the bounds.
func listenWithin(t *testing.T, c *api.Connections, name string, reserved bool) (address string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	limits := api.NewLimits(api.LimitConfig{})
	auth := limits.Auth(known{}, false)
	server := api.NewServer(limits.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := auth.Authenticate(r); err != nil {
			w.WriteHeader(api.Status(err))
		}
	})), slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(c.Listener(l, name, reserved)) }()
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// TestBodiesOfStrangersCloseNobodyElse: a listener is full of requests whose bodies do not come, and their senders open more connections.
func TestBodiesOfStrangersCloseNobodyElse(t *testing.T) {
	const perListener = 40
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"a client that authenticated before on another connection": {"right", http.StatusOK},
		"one who asks for the first time":                          {"", http.StatusNotFound},
	} {
		at, log := listen(t, api.ConnectionConfig{PerSource: 1000, PerListener: perListener}, false)
		if got := asks(t, dialed(t, "127.0.0.4", at), c.token); got != c.want {
			t.Fatalf("%s, before: %d", name, got)
		}
		for i := range perListener {
			stuck(t, dialed(t, []string{"127.0.0.2", "127.0.0.3"}[i%2], at))
		}
		for range 3 {
			late := dialed(t, "127.0.0.4", at)
			for range 3 { // they are newer than the one that has not asked yet
				dialed(t, "127.0.0.2", at)
			}
			if got := asks(t, late, c.token); got != c.want {
				t.Errorf("%s: %d, want %d: %s", name, got, c.want, log.text())
			}
			late.Close()
		}
	}
}

// stuck sends a request whose body never comes, and returns when the server waits for it.
func stuck(t *testing.T, c net.Conn) {
	t.Helper()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("%q, %v: want the server to wait for the body", line, err)
	}
}

// TestKnownSourcesAreBoundedTogether: sources that have authenticated lately cannot hold more connections of a listener than strangers do. One
// of them with few connections is still served.
func TestKnownSourcesAreBoundedTogether(t *testing.T) {
	at, _ := listen(t, api.ConnectionConfig{PerSource: 1000, PerListener: 20}, false)
	var flood []net.Conn
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"} {
		c := dialed(t, from, at)
		if got := asks(t, c, "right"); got != http.StatusOK {
			t.Fatalf("%s: %d", from, got)
		}
		leaves(t, c)
	}
	for i := range 90 {
		c := dialed(t, []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}[i%3], at)
		asks(t, c, "") // the listener has accepted it
		flood = append(flood, c)
	}
	if got := asks(t, dialed(t, "127.0.0.5", at), "right"); got != http.StatusOK {
		t.Errorf("a known source that has one connection: %d", got)
	}
	awaitOpen(t, flood, 20)
}

// TestNoRoomInTheProcess: if all connections of the process are taken, the next client of another listener displaces the one that has been
// idle longest on any listener, else one of the source that has the most. A stranger displaces no connection of a known source.
func TestNoRoomInTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		known  bool // the flood comes from a source that has authenticated
		idle   bool // it has been idle for some time
		before bool // the newcomer has a connection that has not authenticated yet
		token  string
		want   int
	}{
		"young strangers":                             {token: "right", want: http.StatusOK},
		"idle strangers":                              {idle: true, token: "right", want: http.StatusOK},
		"idle strangers, and a second connection":     {idle: true, before: true, token: "right", want: http.StatusOK},
		"a known source, and a newcomer":              {known: true, idle: true, token: "right", want: 0},
		"a known source, and another known source":    {known: true, idle: true, before: true, token: "right", want: http.StatusOK},
		"a young known source, and another known one": {known: true, before: true, token: "right", want: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bounds := api.NewConnections(api.ConnectionConfig{All: 10})
			full, other := listenWithin(t, bounds, "full", false), listenWithin(t, bounds, "other", false)
			if c.known {
				first := dialed(t, "127.0.0.2", full)
				asks(t, first, "right")
				leaves(t, first)
			}
			places := 10
			if c.before {
				first := dialed(t, "127.0.0.3", other)
				if c.known {
					asks(t, first, "right") // proven: it counts among all, and cannot be displaced
				} else {
					asks(t, first, "")
				}
				places--
			}
			var flood []net.Conn
			for range places {
				conn := dialed(t, "127.0.0.2", full)
				asks(t, conn, "")
				flood = append(flood, conn)
			}
			if c.idle {
				time.Sleep(2100 * time.Millisecond) // displaceAfter; no event tells that it has passed
			}
			if got := asks(t, dialed(t, "127.0.0.3", other), c.token); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
			if c.want == http.StatusOK && (c.known || !c.before) { // else the newcomer's other connection has been idle longest
				awaitOpen(t, flood, places-1)
			}
		})
	}
}
