package api_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/access"
	"salvor/api"
)

// gate is a listener behind limits: it knows one token, of agents and of users.
type gate struct {
	t    *testing.T
	now  time.Time
	h    http.Handler
	asks int           // how often a credential was compared
	slow chan struct{} // not nil: what a comparison waits for
}

func newGate(t *testing.T, c api.LimitConfig) *gate {
	g := &gate{t: t, now: time.Unix(1e9, 0)}
	c.Now = func() time.Time { return g.now }
	limits := api.NewLimits(c)
	auth := limits.Auth(g, true)
	g.h = limits.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := func() error {
			switch r.URL.Path {
			case "/heartbeat":
				token := r.URL.Query().Get("token")
				if err := api.Admit(r, "node "+token); err != nil {
					return err
				}
				if token != "right" {
					return &api.Error{Status: http.StatusBadRequest}
				}
				return nil
			case "/boot":
				if err := api.Admit(r, r.URL.RawQuery); err != nil {
					return err
				}
				panic(http.ErrAbortHandler)
			case "/findings":
				if err := api.Admit(r, ""); err != nil {
					return err
				}
				_, err := api.ReadBody(w, r, 16<<20)
				return err
			case "/lookup":
				if err := api.Admit(r, ""); err != nil {
					return err
				}
				if r.URL.RawQuery == "busy" {
					return &api.Error{Status: http.StatusConflict}
				}
				return &api.Error{Status: http.StatusNotFound}
			}
			if _, err := auth.Authenticate(r); err != nil {
				return err
			}
			return &api.Error{Status: http.StatusNotFound}
		}()
		if err == nil {
			return
		}
		var known *api.Error
		if errors.As(err, &known) {
			for k, v := range known.Header {
				w.Header()[k] = v
			}
		}
		w.WriteHeader(api.Status(err))
	}))
	return g
}

func (g *gate) Authenticate(r *http.Request) (access.Principal, error) {
	if g.slow != nil {
		<-g.slow
	} else {
		g.asks++
	}
	if r.Header.Get("X-Auth-Token") != "right" {
		return access.Principal{}, &api.Error{Status: http.StatusUnauthorized}
	}
	return access.Principal{Role: access.Admin}, nil
}

func (g *gate) ask(from, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(from), 4321).String()
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	g.h.ServeHTTP(w, r)
	return w
}

func (g *gate) want(status int, from, target string, header ...string) {
	g.t.Helper()
	if got := g.ask(from, target, header...).Code; got != status {
		g.t.Fatalf("%s from %s: %d, want %d", target, from, got, status)
	}
}

// spend asks until it is held up, and tells how often it was not.
func (g *gate) spend(most int, from, target string, header ...string) int {
	for n := range most {
		if g.ask(from, target, header...).Code == http.StatusTooManyRequests {
			return n
		}
	}
	return most
}

const (
	office = "192.0.2.7" // where a fleet, users and a guesser share one address
	abroad = "198.51.100.9"
)

func TestWhoIsRefusedTooOftenWaits(t *testing.T) {
	g := newGate(t, api.LimitConfig{Refusals: 10, AllRefusals: 1000, Burst: 2 * time.Second})
	if n := g.spend(1000, office, "/lookup"); n < 20 || n > 22 {
		t.Fatalf("%d refusals before the first wait, want 20", n)
	}
	w := g.ask(office, "/lookup")
	wait, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil || wait < 1 || wait > 2 {
		t.Fatalf("Retry-After %q", w.Header().Get("Retry-After"))
	}
	g.want(http.StatusNotFound, abroad, "/lookup") // others do not wait
	g.now = g.now.Add(time.Duration(wait) * time.Second)
	g.want(http.StatusNotFound, office, "/lookup")
	// To be told that a node is locked is nobody's fault.
	g = newGate(t, api.LimitConfig{Refusals: 10, AllRefusals: 1000, Burst: 2 * time.Second})
	if n := g.spend(150, office, "/lookup?busy"); n < 150 {
		t.Errorf("held up after %d conflicts", n)
	}
}

// TestAFleetBehindOneAddressIsNotHeldUp has many machines beat from behind one address
// whose other users are refused without end.
func TestAFleetBehindOneAddressIsNotHeldUp(t *testing.T) {
	g := newGate(t, api.LimitConfig{Refusals: 100, AllRefusals: 2000})
	for i := range 20000 {
		if w := g.ask(office, "/heartbeat?token=right&node="+strconv.Itoa(i)); w.Code != http.StatusOK {
			t.Fatalf("heartbeat %d: %d", i, w.Code)
		}
	}
	g.spend(100000, office, "/heartbeat?token=wrong")
	g.want(http.StatusTooManyRequests, office, "/heartbeat?token=wrong")
	g.want(http.StatusTooManyRequests, office, "/lookup")
	for range 1000 {
		g.want(http.StatusOK, office, "/heartbeat?token=right")
	}
	g.now = g.now.Add(15 * time.Minute)
	g.want(http.StatusOK, office, "/heartbeat?token=right")
}

func TestPasswordsAreNotGuessedQuickly(t *testing.T) {
	g := newGate(t, api.LimitConfig{Refusals: 1000, AllRefusals: 1000, Logins: 5, AllLogins: 100, Burst: 10 * time.Second})
	g.want(http.StatusNotFound, office, "/nodes", "X-Auth-Token", "right")
	if n := g.spend(1000, office, "/nodes", "X-Auth-Token", "wrong"); n < 50 || n > 52 {
		t.Fatalf("%d guesses before the first wait, want 50", n)
	}
	asks := g.asks
	g.want(http.StatusTooManyRequests, office, "/nodes", "X-Auth-Token", "wronger")
	g.want(http.StatusTooManyRequests, office, "/nodes", "Authorization", "Basic eDp5")
	if g.asks != asks {
		t.Error("a guess was compared though its source waits")
	}
	for range 100 { // who was right before is heard, whatever he asks for
		g.want(http.StatusNotFound, office, "/nodes", "X-Auth-Token", "right")
	}
	g.want(http.StatusUnauthorized, office, "/nodes") // no guess at all
	g.want(http.StatusNotFound, abroad, "/nodes", "X-Auth-Token", "right")
	// Many sources together: their number helps them up to a bound.
	g = newGate(t, api.LimitConfig{Logins: 5, AllLogins: 20, Burst: 10 * time.Second})
	total := 0
	for i := range 50 {
		total += g.spend(100, fmt.Sprintf("203.0.113.%d", i), "/nodes", "X-Auth-Token", "wrong")
	}
	if total < 200 || total > 252 { // 50 of them are a source's first
		t.Errorf("%d guesses of all sources, want 200 to 250", total)
	}
}

func TestSourcesBehindProxies(t *testing.T) {
	proxy := "10.0.0.2"
	g := newGate(t, api.LimitConfig{Refusals: 1, AllRefusals: 1000, Burst: time.Second, Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}})
	held := func(from, said string) bool {
		return g.ask(from, "/lookup", "X-Forwarded-For", said).Code == http.StatusTooManyRequests
	}
	g.spend(10, proxy, "/lookup", "X-Forwarded-For", office)
	if !held(proxy, office) || !held(office, "") || !held(office, abroad) {
		t.Error("a source is another one by what it says")
	}
	if !held(proxy, "1.2.3.4, "+office) || !held(proxy, office+", 10.0.0.9") || !held(proxy, office+":1234") {
		t.Error("words before the proxy's own count")
	}
	if held(proxy, abroad) {
		t.Error("another source is held up")
	}
	// A network of 64 bits is one source.
	g.spend(10, "2001:db8::1", "/lookup")
	if g.ask("2001:db8::ffff", "/lookup").Code != http.StatusTooManyRequests || g.ask("2001:db8:1::1", "/lookup").Code == http.StatusTooManyRequests {
		t.Error("sources of version 6")
	}
	// This machine's own programs, a proxy among them, are no source.
	for _, own := range []string{"127.0.0.1", "::1"} {
		if n := g.spend(100, own, "/lookup"); n < 100 {
			t.Errorf("%s is held up after %d refusals", own, n)
		}
	}
}

// TestLimitsNeedLittleMemory asks from more addresses than are told apart, with as many proofs.
func TestLimitsNeedLittleMemory(t *testing.T) {
	g := newGate(t, api.LimitConfig{Refusals: 10, Burst: 2 * time.Second})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 80000 {
		a := netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)})
		g.want(http.StatusNotFound, a.String(), "/lookup")
		g.want(http.StatusOK, a.String(), "/heartbeat?token=right")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 24<<20 {
		t.Errorf("%d bytes", grown)
	}
	runtime.KeepAlive(g)
}

func TestLimitsAtOnce(t *testing.T) {
	g := newGate(t, api.LimitConfig{Refusals: 100, AllRefusals: 200})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			from := fmt.Sprintf("192.0.2.%d", i%4)
			for range 200 {
				g.ask(from, "/lookup")
				g.ask(from, "/heartbeat?token=right")
			}
		})
	}
	all.Wait()
}

func TestNoBounds(t *testing.T) {
	g := newGate(t, api.LimitConfig{})
	if n := g.spend(5000, office, "/lookup"); n < 5000 {
		t.Errorf("held up after %d", n)
	}
}

// TestSilenceIsARefusal: who is answered by a connection that ends pays for it, and what he showed is not believed.
func TestSilenceIsARefusal(t *testing.T) {
	g := newGate(t, api.LimitConfig{Refusals: 10, Burst: 2 * time.Second})
	guess := func(path string) (held bool) {
		defer func() { _ = recover() }()
		return g.ask(office, "/boot?"+path).Code == http.StatusTooManyRequests
	}
	n := 0
	for ; n < 100 && !guess("path"+strconv.Itoa(n)); n++ {
	}
	if n < 20 || n > 22 {
		t.Fatalf("%d guesses before the first wait, want 20", n)
	}
	if !guess("path0") {
		t.Error("a path that led nowhere is taken for a proof")
	}
}

// TestManyAtOnceAreNoMoreThanOneAfterTheOther: what is not answered yet counts as if it were refused.
func TestManyAtOnceAreNoMoreThanOneAfterTheOther(t *testing.T) {
	g := newGate(t, api.LimitConfig{Logins: 5, AllLogins: 100, Burst: 10 * time.Second})
	g.slow = make(chan struct{})
	const guesses = 1000
	answers := make(chan int, guesses)
	for i := range guesses {
		go func() { answers <- g.ask(office, "/nodes", "X-Auth-Token", "wrong"+strconv.Itoa(i)).Code }()
	}
	for range guesses - 50 {
		if code := <-answers; code != http.StatusTooManyRequests {
			t.Fatalf("%d before one was compared", code)
		}
	}
	close(g.slow)
	for range 50 {
		if code := <-answers; code != http.StatusUnauthorized {
			t.Errorf("%d for one that was let in", code)
		}
	}
	// Who is right has taken nothing.
	for range 500 {
		g.want(http.StatusNotFound, abroad, "/nodes", "X-Auth-Token", "right")
	}
	if n := g.spend(1000, abroad, "/nodes", "X-Auth-Token", "wrong"); n < 50 || n > 52 {
		t.Errorf("%d guesses before the first wait, want 50", n)
	}
}

// TestOthersDoNotWaitForGuessers has many sources, and many networks of one customer, spend what all together may.
func TestOthersDoNotWaitForGuessers(t *testing.T) {
	for name, from := range map[string]func(i int) string{
		"addresses":                func(i int) string { return fmt.Sprintf("203.0.113.%d", i) },
		"networks of one customer": func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i) },
		"a proxy of this machine":  func(int) string { return "127.0.0.1" },
	} {
		g := newGate(t, api.LimitConfig{Logins: 5, AllLogins: 100, Burst: 10 * time.Second})
		total := 0
		for range 60 {
			for i := range 32 {
				total += g.spend(20, from(i), "/nodes", "X-Auth-Token", "wrong")
			}
			g.now = g.now.Add(time.Second)
			for _, other := range []string{abroad, "2001:db8:7::1"} {
				if w := g.ask(other, "/nodes", "X-Auth-Token", "right"+name); w.Code != http.StatusUnauthorized {
					t.Fatalf("%s: one who has done nothing gets %d", name, w.Code)
				}
				g.now = g.now.Add(10 * time.Millisecond)
			}
		}
		if most := 2 * 100 * 71; total > most {
			t.Errorf("%s: %d guesses, want %d at most", name, total, most)
		}
		if name == "networks of one customer" && total > 8*5*75 {
			t.Errorf("%s: %d guesses, want %d at most", name, total, 8*5*75)
		}
	}
}

// slowBody is a body that stops after its first part.
type slowBody struct {
	first, rest io.Reader
	more        *atomic.Int64 // counts those whose rest is asked for
	goOn        chan struct{}
}

func (b *slowBody) Read(p []byte) (int, error) {
	if n, err := b.first.Read(p); err == nil {
		return n, nil
	}
	if b.goOn != nil {
		b.more.Add(1)
		<-b.goOn
		b.goOn = nil
	}
	return b.rest.Read(p)
}

// TestLargeBodiesOfStrangers: bodies that stand still take no room from those that follow, of one source or of many.
func TestLargeBodiesOfStrangers(t *testing.T) {
	for name, from := range map[string]func(i int) string{
		"one source":   func(int) string { return office },
		"many sources": func(i int) string { return fmt.Sprintf("192.0.2.%d", i) },
	} {
		g := newGate(t, api.LimitConfig{Refusals: 100, AllRefusals: 2000})
		var more atomic.Int64
		goOn, answers := make(chan struct{}), make(chan int, 64)
		send := func(from, body string, goOn chan struct{}) int {
			text := io.MultiReader(strings.NewReader(`{"x":"`), strings.NewReader(strings.Repeat("x", 70<<10)))
			r := httptest.NewRequest(http.MethodPost, "/findings", &slowBody{text, strings.NewReader(body), &more, goOn})
			r.RemoteAddr = from + ":4321"
			w := httptest.NewRecorder()
			g.h.ServeHTTP(w, r)
			return w.Code
		}
		for i := range 64 {
			go func() { answers <- send(from(i), `"}`, goOn) }()
		}
		for until := time.Now().Add(30 * time.Second); more.Load() < 64; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: %d of 64 are read", name, more.Load())
			}
		}
		if code := send(office, `"}`, nil); code != http.StatusOK {
			t.Errorf("%s: %d for one beside 64 that stand still", name, code)
		}
		close(goOn)
		for range 64 {
			if code := <-answers; code != http.StatusOK {
				t.Errorf("%s: %d", name, code)
			}
		}
		if code := send(office, `",`+strings.Repeat("1,", 1<<20), nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d for a million values", name, code)
		}
	}
}
