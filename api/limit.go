package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"salvor/access"
)

// Limits hold up those who are refused again and again without proving who they are. What
// they are refused costs them; what is proved costs nothing, and who was right before from
// the same address is heard even while others there are not: a fleet behind one address
// suffers from none of its neighbours.
type Limits struct {
	config LimitConfig
	seed   [32]byte

	mu              sync.Mutex
	refused, logins refusalCounters
	proven          trustedClients
	bodies          largeBodies
}

// LimitConfig says how many refusals are borne, per second; 0 is no bound.
type LimitConfig struct {
	Refusals, AllRefusals int // of who shows no credential: per source, of all together
	Logins, AllLogins     int // of credentials that are wrong
	// Burst is for how long that many may come at once; 0 means 20 s.
	Burst time.Duration
	// Proxies are believed when they say for whom they ask (X-Forwarded-For).
	Proxies []netip.Prefix
	Now     func() time.Time // nil means time.Now
}

// NewLimits makes limits for all listeners of a process.
func NewLimits(c LimitConfig) *Limits {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Burst <= 0 {
		c.Burst = 20 * time.Second
	}
	l := &Limits{config: c, proven: trustedClients{}, bodies: newBodies()}
	_, _ = rand.Read(l.seed[:]) // never fails: it ends the program instead
	l.refused = newCounters(c.Refusals, c.AllRefusals, c.Burst)
	l.logins = newCounters(c.Logins, c.AllLogins, c.Burst)
	return l
}

// requestState is one request as the limits see it.
type requestState struct {
	limits *Limits
	source netip.Addr
	proof  uint64 // what was shown, hashed with its source; 0: nothing
	login  bool   // a credential was shown, or is what is asked for
	open   bool   // it went through an endpoint that asks for none
	proved bool
	// held are the counters that count it until it is answered.
	held    []refusalReservation
	settled bool
	large   int          // bytes of its body that is in work among the large ones
	hurried bool         // it is held up, and its body may not take long
	conn    *boundedConn // nil: its connection is not bounded
}

// isProved tells whether the asker is known by now.
func (v *requestState) isProved() bool {
	v.limits.mu.Lock()
	defer v.limits.mu.Unlock()
	return v.proved
}

// refusalReservation is one request that is counted, and what it shares with others.
type refusalReservation struct {
	by     *refusalCounters
	shared *tokenBucket
}

const requestStateKey contextKey = iota + 100

// Guard counts what h refuses.
func (l *Limits) Guard(h http.Handler) RouteLister {
	inner, _ := h.(RouteLister)
	return RouteLister{Endpoints: inner.Endpoints, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &requestState{limits: l, source: l.source(r), conn: connectionOf(r.Context())}
		out := &responseRecorder{statusRecorder{ResponseWriter: w}, v}
		status := http.StatusNotFound // whoever is answered by silence was refused
		defer func() {
			v.settle(status)
			if v.large > 0 {
				l.bodies.end(v.source, v.large)
			}
		}()
		h.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), requestStateKey, v)))
		status = http.StatusOK
	})}
}

// responseRecorder settles a request as soon as its answer begins: a long one holds nobody up.
type responseRecorder struct {
	statusRecorder
	state *requestState
}

func (w *responseRecorder) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.state.settle(status)
	}
	w.statusRecorder.WriteHeader(status)
}

func (w *responseRecorder) Write(b []byte) (int, error) {
	w.state.settle(http.StatusOK)
	return w.statusRecorder.Write(b)
}

// openCost is what an endpoint costs that asks for no credential and answers: little, but not nothing.
const openCost = 0.1

// settle charges what the first answer says.
func (v *requestState) settle(status int) {
	l := v.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.settled {
		return
	}
	v.settled = true
	now := l.config.Now()
	defer v.release(now)
	switch {
	case v.proved || status == http.StatusTooManyRequests:
	case isClientFault(status) && v.login:
		l.logins.charge(v.source, 1, now)
	case isClientFault(status):
		l.refused.charge(v.source, 1, now)
	case status < http.StatusBadRequest && v.proof != 0:
		l.proven.put(v.proof, now)
		v.conn.prove()
	case v.open && status < http.StatusInternalServerError && v.proof == 0:
		l.refused.charge(v.source, openCost, now)
	}
}

// release ends what is held of the limits, whose lock is held.
func (v *requestState) release(now time.Time) {
	for _, h := range v.held {
		h.by.release(v.source, h.shared, now)
	}
	v.held = nil
}

// isClientFault tells whether an answer says that its asker did something wrong. A locked or
// changed resource is nobody's fault, nor is a failure of ours.
func isClientFault(status int) bool {
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError &&
		!slices.Contains([]int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests}, status)
}

// Admit lets a request through an endpoint that asks for no credential, unless its source was
// refused too often. proof is what it shows instead, such as an agent's token; empty: nothing.
func Admit(r *http.Request, proof string) error {
	v := requestStateOf(r)
	if v == nil {
		return nil
	}
	v.open = true
	return v.admit(&v.limits.refused, proof)
}

// AdmitLogin is Admit for endpoints where credentials are tried, as the issue of tokens.
func AdmitLogin(r *http.Request, proof string) error {
	v := requestStateOf(r)
	if v == nil {
		return nil
	}
	v.login = true
	return v.admit(&v.limits.logins, proof)
}

// Prove says that the request's asker is known: nothing that it is refused counts.
func Prove(r *http.Request) {
	if v := requestStateOf(r); v != nil {
		v.limits.mu.Lock()
		defer v.limits.mu.Unlock()
		v.proved = true
		v.conn.prove()
		v.release(v.limits.config.Now())
	}
}

func requestStateOf(r *http.Request) *requestState {
	v, _ := r.Context().Value(requestStateKey).(*requestState)
	return v
}

func (v *requestState) admit(c *refusalCounters, proof string) error {
	l := v.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	if proof != "" {
		v.proof = l.hash(v.source, proof)
		if l.proven.has(v.proof) {
			v.conn.prove()
			return nil
		}
	}
	if v.settled || slices.ContainsFunc(v.held, func(h refusalReservation) bool { return h.by == c }) {
		return nil
	}
	shared, wait := c.take(v.source, l.config.Now())
	if shared != nil {
		v.held = append(v.held, refusalReservation{c, shared})
		return nil
	}
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	return &Error{
		Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {seconds}},
		Text: fmt.Sprintf("Too many requests from your address were refused; ask again in %s s.", seconds),
	}
}

func (l *Limits) hash(source netip.Addr, proof string) uint64 {
	h := sha256.New()
	h.Write(l.seed[:])
	fmt.Fprintf(h, "%s %s", source, proof)
	return max(1, binary.BigEndian.Uint64(h.Sum(nil)))
}

// source is who asks: an address of version 4, or a network of 64 bits of version 6, for
// who has one address of it has them all.
func (l *Limits) source(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified()
	}
	at := peer.Addr().Unmap()
	if l.isProxy(at) {
		forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for _, word := range slices.Backward(forwarded) {
			next, ok := parseForwardedAddr(strings.TrimSpace(word))
			if !ok {
				break
			}
			if at = next; !l.isProxy(at) {
				break
			}
		}
	}
	if at.Is6() {
		if net, err := at.WithZone("").Prefix(64); err == nil {
			return net.Addr()
		}
	}
	return at
}

func parseForwardedAddr(word string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(word); err == nil {
		word = host
	}
	a, err := netip.ParseAddr(strings.Trim(word, "[]"))
	return a.Unmap(), err == nil
}

func (l *Limits) isProxy(a netip.Addr) bool {
	return slices.ContainsFunc(l.config.Proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Auth has an authenticator's refusals counted. asks: it wants a credential of everybody.
func (l *Limits) Auth(a Authenticator, asks bool) Authenticator { return countedAuthenticator{a, asks} }

type countedAuthenticator struct {
	Authenticator
	asks bool
}

// Authenticate asks nobody's credential to be proved whose source has shown too many wrong ones.
func (c countedAuthenticator) Authenticate(r *http.Request) (access.Principal, error) {
	shown := strings.Join(r.Header.Values("Authorization"), "\n") + "\n" + r.Header.Get("X-Auth-Token")
	var err error
	switch {
	case shown != "\n":
		err = AdmitLogin(r, shown)
	case c.asks:
		err = Admit(r, "")
	}
	if err != nil {
		return access.Principal{}, err
	}
	who, err := c.Authenticator.Authenticate(r)
	if err == nil {
		c.known(r)
	}
	return who, err
}

// known remembers the credential at once: what follows says nothing of it.
func (c countedAuthenticator) known(r *http.Request) {
	v := requestStateOf(r)
	if v == nil {
		return
	}
	l := v.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	v.proved = true
	v.conn.prove()
	now := l.config.Now()
	v.release(now)
	if v.proof != 0 {
		l.proven.put(v.proof, now)
	}
}
