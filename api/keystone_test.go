package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/access"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

// identity is a keystone that knows one user and the tokens of subjects.
type identity struct {
	*httptest.Server
	subjects map[string]map[string]any
	asked    atomic.Int32
	logins   atomic.Int32
	failed   atomic.Int32
	down     atomic.Bool
	hold     chan struct{} // nil: tokens are validated at once
	expired  atomic.Bool   // the service user's token
}

func newIdentity(t *testing.T) *identity {
	t.Helper()
	i := &identity{subjects: map[string]map[string]any{}}
	i.Server = httptest.NewServer(http.HandlerFunc(i.serve))
	t.Cleanup(i.Close)
	return i
}

func (i *identity) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case i.down.Load():
		i.failed.Add(1)
		http.Error(w, "down", http.StatusServiceUnavailable)
	case r.Method == http.MethodPost && r.URL.Path == "/v3/auth/tokens":
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		if !strings.Contains(body.String(), "hush") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		i.logins.Add(1)
		i.expired.Store(false)
		w.Header().Set("X-Subject-Token", "service-token")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"token": map[string]any{"expires_at": "2100-01-01T00:00:00.000000Z"}})
	case r.Method == http.MethodGet && r.URL.Path == "/v3/auth/tokens":
		i.asked.Add(1)
		if r.Header.Get("X-Subject-Token") == "tok-cut" {
			panic(http.ErrAbortHandler)
		}
		if i.hold != nil {
			<-i.hold
		}
		if r.Header.Get("X-Auth-Token") != "service-token" || i.expired.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		token, ok := i.subjects[r.Header.Get("X-Subject-Token")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"token": token})
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

func (i *identity) keystone(t *testing.T, password string, log *bytes.Buffer) *Keystone {
	t.Helper()
	k := must.Get(NewKeystone(KeystoneOptions{
		URL: i.URL + "/v3", PublicURL: "https://keystone.example/v3", Username: "salvor", Password: secret.New(password), UserDomainName: "Default",
		ProjectName: "service", ProjectDomainName: "Default", Timeout: 5 * time.Second, CacheTime: time.Minute, OutageTime: 2 * time.Minute, Log: slog.New(slog.NewTextHandler(log, nil)),
	}))(t)
	return k
}

func asking(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/nodes", nil)
	if token != "" {
		r.Header.Set("X-Auth-Token", token)
	}
	return r
}

func TestKeystone(t *testing.T) {
	i, log := newIdentity(t), &bytes.Buffer{}
	i.subjects["tok-project"] = map[string]any{
		"expires_at": "2100-01-01T00:00:00.000000Z", "user": map[string]any{"name": "ann"}, "roles": []any{map[string]any{"name": "Member"}, map[string]any{"name": "reader"}},
		"project": map[string]any{"id": "p1", "name": "one", "domain": map[string]any{"id": "default", "name": "Default"}},
	}
	i.subjects["tok-system"] = map[string]any{
		"expires_at": "2100-01-01T00:00:00.000000Z", "user": map[string]any{"name": "root"}, "roles": []any{map[string]any{"name": "admin"}}, "system": map[string]any{"all": true},
	}
	i.subjects["tok-old"] = map[string]any{"expires_at": "2000-01-01T00:00:00.000000Z", "user": map[string]any{"name": "bob"}}
	k := i.keystone(t, "hush", log)
	now := time.Now()
	k.now = func() time.Time { return now }

	for range 3 {
		who, err := k.Authenticate(asking("tok-project"))
		if err != nil || who.User != "ann" || who.Role != access.Scoped || who.Scope.Project != "p1" || who.Scope.ProjectName != "one" ||
			who.Scope.ProjectDomain != "default" || who.Scope.ProjectDomainName != "Default" || strings.Join(who.Scope.Roles, " ") != "member reader" || who.Scope.System {
			t.Fatalf("%+v, %v", who, err)
		}
	}
	if n := i.asked.Load(); n != 1 {
		t.Errorf("keystone was asked %d times about one token", n)
	}
	if who, err := k.Authenticate(asking("tok-system")); err != nil || !who.Scope.System {
		t.Errorf("%+v, %v", who, err)
	}
	for _, token := range []string{"", "nonsense", "tok-old", strings.Repeat("x", maxTokenBytes+1)} {
		_, err := k.Authenticate(asking(token))
		e, _ := err.(*Error)
		if e == nil || e.Status != http.StatusUnauthorized || e.Header.Get("Www-Authenticate") != `Keystone uri="https://keystone.example/v3"` {
			t.Errorf("token %.20q: %v", token, err)
		}
	}

	now = now.Add(time.Minute)
	i.expired.Store(true) // the service user logs in again by itself
	if _, err := k.Authenticate(asking("tok-project")); err != nil || i.logins.Load() != 2 {
		t.Errorf("after the service token ended: %v, %d log-ins", err, i.logins.Load())
	}
	for _, s := range []string{"tok-", "hush", "service-token"} {
		if strings.Contains(log.String(), s) {
			t.Errorf("the log tells %q: %s", s, log)
		}
	}
}

func TestKeystoneRefusesSalvor(t *testing.T) {
	i, log := newIdentity(t), &bytes.Buffer{}
	k := i.keystone(t, "wrong", log)
	if _, err := k.Authenticate(asking("tok")); !problem.Is(err, problem.Unavailable) || strings.Contains(err.Error(), "salvor") {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "log in as salvor") || strings.Contains(log.String(), "wrong") {
		t.Error(log)
	}
}

// TestKeystoneIsAskedOnceOfABadToken sends one again and again; a while later it may be good.
func TestKeystoneIsAskedOnceOfABadToken(t *testing.T) {
	i := newIdentity(t)
	k := i.keystone(t, "hush", &bytes.Buffer{})
	now := time.Now()
	k.now = func() time.Time { return now }
	for range 3 {
		if _, err := k.Authenticate(asking("tok")); Status(err) != http.StatusUnauthorized {
			t.Fatal(err)
		}
	}
	if n := i.asked.Load(); n != 1 {
		t.Errorf("keystone was asked %d times about one bad token", n)
	}
	i.subjects["tok"] = map[string]any{"expires_at": "2100-01-01T00:00:00.000000Z", "user": map[string]any{"name": "ann"}}
	now = now.Add(refuseTime)
	if who, err := k.Authenticate(asking("tok")); err != nil || who.User != "ann" {
		t.Errorf("%+v, %v", who, err)
	}
	i.down.Store(true) // that keystone is away is nobody's bad token
	for range 2 {
		if _, err := k.Authenticate(asking("other")); Status(err) != http.StatusServiceUnavailable {
			t.Error(err)
		}
	}
}

// TestKeystoneAway: what was known is served up to a bound, all else is told to come again, and keystone is left alone a while.
func TestKeystoneAway(t *testing.T) {
	i := newIdentity(t)
	for name, expires := range map[string]string{"tok": "2100-01-01T00:00:00Z", "tok-short": "2026-01-01T00:01:30Z"} {
		i.subjects[name] = map[string]any{"expires_at": expires, "user": map[string]any{"name": name}}
	}
	k := i.keystone(t, "hush", &bytes.Buffer{})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	k.now = func() time.Time { return now }
	check := func(step, token string, want int) {
		t.Helper()
		_, err := k.Authenticate(asking(token))
		got := http.StatusOK
		if err != nil {
			got = Status(err)
		}
		var e *Error
		if got != want || got == http.StatusServiceUnavailable && (!errors.As(err, &e) || e.Header.Get("Retry-After") == "" || !problem.Is(err, problem.Unavailable)) {
			t.Errorf("%s: %s: %v, want %d", step, token, err, want)
		}
	}
	check("there", "tok", 200)
	check("there", "tok-short", 200)
	i.down.Store(true)
	check("fresh", "tok", 200)
	check("away", "tok-new", 503)
	now = now.Add(time.Minute + time.Second)
	check("stale", "tok", 200)
	check("stale", "tok-short", 200)
	now = now.Add(40 * time.Second)
	check("ended meanwhile", "tok-short", 503)
	now = now.Add(78 * time.Second) // the last second that is served
	asked := i.asked.Load() + i.failed.Load()
	for range 20 {
		check("stale", "tok", 200)
	}
	if more := i.asked.Load() + i.failed.Load() - asked; more > 2 { // of the token, and whether it is there at all
		t.Errorf("keystone was asked %d times while it was known to be away", more)
	}
	now = now.Add(time.Second)
	check("too long", "tok", 503)
	i.down.Store(false)
	check("not asked yet", "tok", 503)
	now = now.Add(awayMost)
	check("back", "tok", 200)
	delete(i.subjects, "tok") // revoked
	now = now.Add(time.Minute)
	check("revoked", "tok", 401)
	i.down.Store(true)
	now = now.Add(refuseTime)
	check("revoked, then away", "tok", 503)
}

// TestOneOddTokenSaysNothingOfOthers: a token for which a front cuts off the connection keeps nobody else from being asked of.
func TestOneOddTokenSaysNothingOfOthers(t *testing.T) {
	i := newIdentity(t)
	for _, name := range []string{"tok", "tok-other"} {
		i.subjects[name] = map[string]any{"expires_at": "2100-01-01T00:00:00Z", "user": map[string]any{"name": name}}
	}
	k := i.keystone(t, "hush", &bytes.Buffer{})
	for _, token := range []string{"tok", "tok-other"} {
		if _, err := k.Authenticate(asking("tok-cut")); Status(err) != http.StatusServiceUnavailable {
			t.Errorf("the odd one: %v", err)
		}
		if _, err := k.Authenticate(asking(token)); err != nil {
			t.Errorf("%s after the odd one: %v", token, err)
		}
	}
	if _, err := k.Authenticate(asking(strings.Repeat("x", 5000))); Status(err) != http.StatusUnauthorized {
		t.Errorf("a token longer than any: %v", err)
	}
}

// TestKeystoneStampede: a hundred requests with one token are one question, whoever of them goes away.
func TestKeystoneStampede(t *testing.T) {
	i := newIdentity(t)
	i.subjects["tok"] = map[string]any{"expires_at": "2100-01-01T00:00:00Z", "user": map[string]any{"name": "ann"}}
	i.hold = make(chan struct{})
	k := i.keystone(t, "hush", &bytes.Buffer{})
	first, leave := context.WithCancel(t.Context())
	errs := make(chan error, 100)
	ask := func(ctx context.Context) {
		_, err := k.Authenticate(asking("tok").WithContext(ctx))
		errs <- err
	}
	go ask(first)
	awaitTrue(t, "keystone is asked", func() bool { return i.asked.Load() > 0 })
	for range 99 {
		go ask(t.Context())
	}
	leave()
	if err := <-errs; Status(err) != http.StatusServiceUnavailable {
		t.Errorf("who left: %v", err)
	}
	close(i.hold)
	for range 99 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if i.asked.Load() != 1 || i.logins.Load() != 1 {
		t.Errorf("keystone was asked %d times, after %d log-ins", i.asked.Load(), i.logins.Load())
	}
}

// newSlowIdentity is a keystone that knows ann's token tok, and answers once it is released.
func newSlowIdentity(t *testing.T) (i *identity, k *Keystone, release func()) {
	t.Helper()
	i = newIdentity(t)
	i.subjects["tok"] = map[string]any{"expires_at": "2100-01-01T00:00:00Z", "user": map[string]any{"name": "ann"}}
	i.hold = make(chan struct{})
	release = sync.OnceFunc(func() { close(i.hold) })
	t.Cleanup(release)
	return i, i.keystone(t, "hush", &bytes.Buffer{}), release
}

// awaitTrue waits until something holds.
func awaitTrue(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come about that %s", what)
		}
	}
}

// TestMadeUpTokensLeaveSlotsToOthers: one source sends many made-up tokens while keystone is slow. Keystone is asked about a few of them,
// and about the token of another source.
func TestMadeUpTokensLeaveSlotsToOthers(t *testing.T) {
	i, k, release := newSlowIdentity(t)
	k.known.limits.Wait = time.Millisecond // no request waits here; the questions go on
	const forged = 200
	for n := range forged {
		_, _ = k.Authenticate(asking(fmt.Sprint("forged-", n)))
	}
	awaitTrue(t, "keystone is asked about some", func() bool { return i.asked.Load() >= tokensOfSource })
	other := asking("tok")
	other.RemoteAddr = "198.51.100.7:1"
	_, _ = k.Authenticate(other)
	awaitTrue(t, "keystone is asked about the token of the other source", func() bool { return i.asked.Load() == tokensOfSource+1 })
	if got := len(k.slots); got != tokensOfSource+1 {
		t.Errorf("%d slots are held", got)
	}
	release()
	awaitTrue(t, "all questions end", func() bool {
		k.shares.mu.Lock()
		defer k.shares.mu.Unlock()
		return len(k.shares.shared) == 0
	})
	if who, err := k.Authenticate(other); err != nil || who.User != "ann" {
		t.Errorf("the other source: %+v, %v", who, err)
	}
}

// TestMadeUpTokensLeaveQuestionsToOthers: the made-up tokens that one source has looked into while keystone is slow are fewer than are looked into
// in all.
func TestMadeUpTokensLeaveQuestionsToOthers(t *testing.T) {
	_, k, release := newSlowIdentity(t)
	k.known.limits.Wait, k.known.limits.Most = time.Millisecond, 64
	limits := NewLimits(LimitConfig{})
	authenticate := func(token, source string) (err error) {
		r := asking(token)
		r.RemoteAddr = source + ":1"
		limits.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, err = k.Authenticate(r) })).ServeHTTP(httptest.NewRecorder(), r)
		return err
	}
	for n := range 100 {
		if err := authenticate(fmt.Sprint("forged-", n), "192.0.2.1"); Status(err) != http.StatusServiceUnavailable {
			t.Fatal(err)
		}
	}
	k.known.limits.Wait = 0
	others := make(chan error, 1)
	go func() { others <- authenticate("tok", "198.51.100.7") }()
	awaitTrue(t, "the token of the other source is looked into", func() bool {
		k.known.mu.Lock()
		defer k.known.mu.Unlock()
		return k.known.sources[netip.MustParseAddr("198.51.100.7")] == 1
	})
	release()
	must.OK(t, <-others)
}

// TestKeystoneUsersOfOneName: the same name in two domains is two users.
func TestKeystoneUsersOfOneName(t *testing.T) {
	i, log := newIdentity(t), &bytes.Buffer{}
	owners := map[string]bool{}
	for _, domain := range []string{"default", "other"} {
		i.subjects["tok-"+domain] = map[string]any{"expires_at": "2100-01-01T00:00:00Z", "user": map[string]any{"name": "ann", "id": "id-in-" + domain, "domain": map[string]any{"id": domain}}}
	}
	k := i.keystone(t, "hush", log)
	for token := range i.subjects {
		who, err := k.Authenticate(asking(token))
		if err != nil || who.User != "ann" {
			t.Fatalf("%+v, %v", who, err)
		}
		owners[who.Owner()] = true
	}
	if len(owners) != 2 {
		t.Errorf("things of both are kept by %v", owners)
	}
}

// TestSlowKeystoneServesTheNextTry: a request gets 503 when it has waited long enough. keystone's late answer is not thrown away, so
// a client that tries again gets in, though no single try waits as long as keystone takes.
func TestSlowKeystoneServesTheNextTry(t *testing.T) {
	i, k, release := newSlowIdentity(t)
	k.known.limits.Wait = 5 * time.Millisecond
	for range 3 {
		_, err := k.Authenticate(asking("tok"))
		e, _ := err.(*Error)
		if e == nil || e.Status != http.StatusServiceUnavailable || e.Header.Get("Retry-After") != "1" {
			t.Fatalf("while keystone takes its time: %v", err)
		}
	}
	release()
	k.known.limits.Wait = 0 // the question ends now
	if who, err := k.Authenticate(asking("tok")); err != nil || who.User != "ann" {
		t.Errorf("after keystone's answer: %+v, %v", who, err)
	}
	if i.asked.Load() != 1 || i.logins.Load() != 1 {
		t.Errorf("keystone was asked %d times, after %d log-ins", i.asked.Load(), i.logins.Load())
	}
}

// TestSlowKeystoneAndAKnownToken: a token that was good a while ago does not wait for a slow keystone.
func TestSlowKeystoneAndAKnownToken(t *testing.T) {
	i := newIdentity(t)
	i.subjects["tok"] = map[string]any{"expires_at": "2100-01-01T00:00:00Z", "user": map[string]any{"name": "ann"}}
	k := i.keystone(t, "hush", &bytes.Buffer{})
	now := time.Now()
	var later atomic.Bool
	k.now = func() time.Time {
		if later.Load() { // past CacheTime, before OutageTime
			return now.Add(time.Minute + time.Second)
		}
		return now
	}
	if _, err := k.Authenticate(asking("tok")); err != nil {
		t.Fatal(err)
	}
	later.Store(true)
	i.hold = make(chan struct{})
	t.Cleanup(func() { close(i.hold) })
	k.known.limits.Wait, k.known.limits.StaleWait = time.Hour, time.Millisecond
	if who, err := k.Authenticate(asking("tok")); err != nil || who.User != "ann" {
		t.Errorf("%+v, %v", who, err)
	}
}
