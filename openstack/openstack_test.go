package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
	peer "salvor/wire/answer"
)

const password = "correct-horse-battery"

// cloud is a Keystone and a service behind one listener.
type cloud struct {
	*httptest.Server
	mu       sync.Mutex
	logins   int
	accepted string                         // the token that the service accepts
	catalog  []map[string]any               // of the service
	serve    http.HandlerFunc               // answers requests with that token
	login    func(http.ResponseWriter) bool // answers a login in place of Keystone; nil: none
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	c.catalog = []map[string]any{{"interface": "public", "region": "one", "region_id": "one", "url": c.URL + "/image"}}
	return c
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.URL.Path == "/v3/auth/tokens" && r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		if c.logins++; c.login != nil && c.login(w) {
			return
		}
		if !strings.Contains(string(body), password) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		c.accepted = fmt.Sprintf("token-%d", c.logins)
		w.Header().Set("X-Subject-Token", c.accepted)
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"token": map[string]any{
			"expires_at": "2100-01-01T00:00:00Z", "catalog": []any{map[string]any{"type": "image", "name": "glance", "endpoints": c.catalog}},
		}})
		return
	}
	if r.Header.Get("X-Auth-Token") != c.accepted {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	c.serve(w, r)
}

func (c *cloud) access() Access {
	return Access{
		Section: "glance", AuthURL: c.URL + "/v3", Username: "salvor", UserDomainName: "Default", ProjectName: "service", ProjectDomainName: "Default",
		Password: secret.New(password), Timeout: time.Minute,
	}
}

// get asks the service for a path and gives the answer's text.
func get(t *testing.T, c *Client, path string) (string, error) {
	t.Helper()
	return getWith(t.Context(), c, path)
}

func getWith(ctx context.Context, c *Client, path string) (string, error) {
	service, err := c.Service(ctx)
	if err != nil {
		return "", err
	}
	answer, err := service.Get(ctx, service.ServiceURL(path), nil, &gophercloud.RequestOpts{KeepResponseBody: true})
	if err != nil {
		return "", c.Classify(err, "read "+path)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// TestLogins: the first request logs in, the next ones do not, and a token that is no longer accepted is replaced once.
func TestLogins(t *testing.T) {
	w := newCloud(t)
	w.serve = func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }
	c := must.Get(New(Image, w.access()))(t)
	if w.logins != 0 {
		t.Fatal("a client logs in before it is used")
	}
	for range 3 {
		if got, err := get(t, c, "images"); err != nil || got != "/image/v2/images" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if w.logins != 1 {
		t.Errorf("%d logins for three requests", w.logins)
	}
	w.mu.Lock()
	w.accepted = "another"
	w.mu.Unlock()
	if got, err := get(t, c, "images"); err != nil || got != "/image/v2/images" || w.logins != 2 {
		t.Errorf("after the token ended: %q, %v, %d logins", got, err, w.logins)
	}
	w.mu.Lock()
	w.accepted = "another"
	w.login = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusUnauthorized); return true }
	w.mu.Unlock()
	if _, err := get(t, c, "images"); !problem.Is(err, problem.Unavailable) || problem.MostTries(err) != refusedTries || !strings.Contains(err.Error(), "[glance]username") || w.logins != 3 {
		t.Errorf("a login that is refused by now, and was accepted a moment ago: %v, %d tries, %d logins; want unavailable, with %d tries", err, problem.MostTries(err), w.logins, refusedTries)
	}
	c.acceptedAt.Store(time.Now().Add(-acceptedLately).UnixNano())
	if _, err := get(t, c, "images"); !problem.Is(err, problem.Invalid) {
		t.Errorf("a login that is refused, and was accepted long ago: %v; want invalid", err)
	}
}

// TestLoginFails: a refused login is not for waiting, an absent Keystone is, and neither error shows the password.
func TestLoginFails(t *testing.T) {
	w := newCloud(t)
	for name, c := range map[string]struct {
		login func(http.ResponseWriter) bool
		kind  problem.Kind
	}{
		"refused": {func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusUnauthorized); return true }, problem.Invalid},
		"quotes":  {func(w http.ResponseWriter) bool { http.Error(w, "no "+password, http.StatusBadRequest); return true }, problem.Invalid},
		"away":    {func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusServiceUnavailable); return true }, problem.Unavailable},
		"no json": {func(w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "<html>")
			return true
		}, problem.Unavailable},
		"too long": {func(w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"token": {"x": "`+strings.Repeat("x", maxAnswer)+`"}}`)
			return true
		}, problem.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w.login = c.login
			_, err := get(t, must.Get(New(Image, w.access()))(t), "images")
			if !problem.Is(err, c.kind) || strings.Contains(err.Error(), password) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestReach: any answer of the service will do, but one of a proxy before it, or a refusal of the token.
func TestReach(t *testing.T) {
	w := newCloud(t)
	for status, ok := range map[int]bool{200: true, 300: true, 404: true, 401: false, 502: false} {
		w.serve = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		if err := must.Get(New(Image, w.access()))(t).Reach(t.Context()); (err == nil) != ok {
			t.Errorf("%d: %v", status, err)
		}
	}
	a := w.access()
	a.Password = secret.New("another")
	if err := must.Get(New(Image, a))(t).Reach(t.Context()); !problem.Is(err, problem.Invalid) {
		t.Errorf("a refused login: %v", err)
	}
}

// TestEndpoints: the catalog is searched by interface and region; an endpoint of the configuration wins, with or without its version.
func TestEndpoints(t *testing.T) {
	w := newCloud(t)
	w.serve = func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }
	for _, at := range []string{"internal one /in", "public one /out", "public two /two/v2"} {
		var kind, region, path string
		_, _ = fmt.Sscan(at, &kind, &region, &path)
		w.catalog = append(w.catalog, map[string]any{"interface": kind, "region": region, "region_id": region, "url": w.URL + path})
	}
	w.catalog = w.catalog[1:]
	for name, c := range map[string]struct {
		change func(*Access)
		want   string
	}{
		"none":             {func(*Access) {}, "/out/v2/x"},
		"internal first":   {func(a *Access) { a.Interfaces = []string{"internal", "public"} }, "/in/v2/x"},
		"no internal":      {func(a *Access) { a.Interfaces, a.Region = []string{"internal", "public"}, "two" }, "/two/v2/x"},
		"override":         {func(a *Access) { a.Endpoint = w.URL + "/own" }, "/own/v2/x"},
		"override version": {func(a *Access) { a.Endpoint = w.URL + "/own/v2/" }, "/own/v2/x"},
		"no such region":   {func(a *Access) { a.Region = "three" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.access()
			c.change(&a)
			got, err := get(t, must.Get(New(Image, a))(t), "x")
			if got != c.want || (c.want == "") != (problem.Is(err, problem.Invalid) && strings.Contains(err.Error(), "region three")) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := New(Image, Access{Section: "glance"}); !problem.Is(err, problem.Invalid) {
		t.Errorf("neither auth_url nor endpoint: %v", err)
	}
	if _, err := New(Image, Access{Section: "glance", Endpoint: w.URL, CA: []byte("none")}); !problem.Is(err, problem.Invalid) {
		t.Errorf("a CA without a certificate: %v", err)
	}
}

// TestRedirects: one to the same server is followed, one to another server is not, and the other server gets no token.
func TestRedirects(t *testing.T) {
	w := newCloud(t)
	asked := make(chan string, 8)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("X-Auth-Token") }))
	defer other.Close()
	w.serve = func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/away"):
			http.Redirect(rw, r, other.URL, http.StatusFound)
		case strings.HasSuffix(r.URL.Path, "/loop"):
			http.Redirect(rw, r, r.URL.Path, http.StatusFound)
		case strings.HasSuffix(r.URL.Path, "/here"):
			http.Redirect(rw, r, w.URL+"/image/v2/there", http.StatusFound)
		default:
			_, _ = io.WriteString(rw, "there")
		}
	}
	c := must.Get(New(Image, w.access()))(t)
	if got, err := get(t, c, "here"); err != nil || got != "there" {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{"away", "loop"} {
		if _, err := get(t, c, path); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "answers 302") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if len(asked) > 0 {
		t.Errorf("the other server was asked with token %q", <-asked)
	}
}

// TestBounds: an answer ends after its time and its size; a streamed one has neither bound, but ends with its context.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := newCloud(t)
	ended := make(chan struct{})
	defer close(ended)
	w.serve = func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/long") {
			_, _ = io.CopyN(rw, zeros{}, maxAnswer+1)
			return
		}
		_, _ = io.WriteString(rw, "begun")
		rw.(http.Flusher).Flush()
		w.mu.Unlock()
		select {
		case <-ended:
		case <-r.Context().Done():
		}
		w.mu.Lock()
	}
	a := Access{Section: "glance", Endpoint: w.URL, Timeout: time.Minute}
	c := must.Get(New(Image, a))(t)
	if _, err := get(t, c, "long"); !errors.Is(err, peer.ErrTooLarge) {
		t.Errorf("an answer that is too long: want %v, got %v", peer.ErrTooLarge, err)
	}
	if got, err := getWith(Stream(t.Context()), c, "long"); err != nil || len(got) != maxAnswer+1 {
		t.Errorf("a stream: %d bytes, %v", len(got), err)
	}
	a.Timeout = 2 * time.Second // enough for a loaded machine to begin an answer
	c = must.Get(New(Image, a))(t)
	if got, err := get(t, c, "slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an answer that never ends: %q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), a.Timeout+time.Second)
	defer cancel()
	// An answer that begins too late ends too, on a loaded machine.
	if got, err := getWith(Stream(ctx), c, "slow"); err == nil || got == "begun" && ctx.Err() == nil {
		t.Errorf("a stream that never ends: %q, %v, and its context: %v", got, err, ctx.Err())
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestOthersWaitNoLonger: whoever waits for the login of another request stops waiting with its own request.
func TestOthersWaitNoLonger(t *testing.T) {
	w := newCloud(t)
	began, goOn := make(chan struct{}), make(chan struct{})
	w.login = func(http.ResponseWriter) bool { close(began); <-goOn; return false }
	w.serve = func(http.ResponseWriter, *http.Request) {}
	c := must.Get(New(Image, w.access()))(t)
	done := make(chan error, 1)
	go func() {
		_, err := c.Service(context.Background())
		done <- err
	}()
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Service(ctx); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v", err)
	}
	close(goOn)
	must.OK(t, <-done)
}
