package serve

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"salvor/access"
	"salvor/api"
	"salvor/config"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// openDoorsOf are all that answer without a credential. A door that is missing here has to
// answer 401, or to be none (404).
var openDoorsOf = map[string][]string{
	"ramdisk": {
		"GET /", "GET /v1", "GET /v1/lookup", "POST /v1/heartbeat/{}", "POST /v1/continue_inspection",
		"GET /healthz",
	},
	"api": {
		// machines that boot
		"GET /", "GET /v1", "GET /v1/lookup", "POST /v1/heartbeat/{}", "POST /v1/continue_inspection",
		// who watches the process
		"GET /healthz",
		// the version roots of the other faces
		"GET /compute", "GET /compute/v2.1", "GET /compute/v2", "GET /cyclades/compute/v2.0", "GET /image", "GET /image/versions", "GET /image/v2",
		"GET /volume", "GET /volume/v3", "GET /salvor/v1", "GET /identity", "GET /identity/v3",
		// the issue of tokens, against a password
		"POST /identity/v3/auth/tokens",
		// the console's files
		"GET /console",
	},
	"hosts": {"POST " + wire.JoinPath}, // against a join token
	// who watches the process, and collects its metrics
	"health": {"GET /healthz", "GET /metrics"},
}

// legacyDoors are open too where they are switched on.
var legacyDoors = []string{"POST /v1/drivers/{}/vendor_passthru/lookup", "POST /v1/nodes/{}/vendor_passthru/heartbeat"}

// TestEveryDoor walks every route of every listener without a credential, by every method.
func TestEveryDoor(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		t.Run(fmt.Sprint("legacy doors ", legacy), func(t *testing.T) { walkDoors(t, legacy) })
	}
}

func walkDoors(t *testing.T, legacy bool) {
	p := newTestControlPlane(t, fmt.Sprintf("[api]\nlegacy_ramdisk_passthru = %t\n", legacy))
	main, ramdisk, err := p.Handlers()
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := p.hostsDoor()
	if err != nil {
		t.Fatal(err)
	}
	list := func(h http.Handler) []api.Endpoint {
		l, ok := h.(api.RouteLister)
		if !ok || len(l.Endpoints) == 0 {
			t.Fatalf("%T does not tell its doors", h)
		}
		return l.Endpoints
	}
	walk := func(listener string, doors []api.Endpoint, ask func(method, path string) int) {
		w := walker{t: t, listener: listener, ask: ask, allowed: slices.Clone(openDoorsOf[listener])}
		if legacy && (listener == "api" || listener == "ramdisk") {
			w.allowed = append(w.allowed, legacyDoors...)
		}
		w.walk(slices.Concat(doors, strangePaths))
	}
	walk("api", list(main), asker(main))
	walk("ramdisk", append(list(ramdisk), list(main)...), asker(ramdisk)) // what the main listener has and this one must not
	walk("hosts", list(hosts.server.Handler), overTLS(t, hosts))
	health := p.healthDoor()
	walk("health", slices.Concat(list(health), list(main)), asker(health))
}

// TestNoAuthIsAskedByKnownNames: where nobody proves who it is, a page's own name that was led here opens nothing.
func TestNoAuthIsAskedByKnownNames(t *testing.T) {
	for _, one := range []struct {
		strategy, host string
		want           int
	}{{"noauth", "evil.example:6385", 403}, {"noauth", "salvor.example", 200}, {"noauth", "127.0.0.1:6385", 200}, {"http_basic", "evil.example:6385", 401}} {
		p := newTestControlPlane(t, "[api]\npublic_endpoint = https://salvor.example:6385\n[DEFAULT]\nauth_strategy = "+one.strategy+"\n")
		main, _, err := p.Handlers()
		if err != nil {
			t.Fatal(err)
		}
		r, w := httptest.NewRequest(http.MethodGet, "/v1/nodes", nil), httptest.NewRecorder()
		r.Host = one.host
		if main.ServeHTTP(w, r); w.Code != one.want {
			t.Errorf("%s, asked as %s: %d, want %d: %s", one.strategy, one.host, w.Code, one.want, w.Body)
		}
	}
}

// TestNoDoorIsGuessedAt: whoever shows wrong credentials again and again is held up, at whichever door.
func TestNoDoorIsGuessedAt(t *testing.T) {
	p := newTestControlPlane(t, "[limits]\nlogins = 2\nrefusals = 2\npatience = 1\nall_logins = 0\nall_refusals = 0\n")
	main, _, err := p.Handlers()
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range main.(api.RouteLister).Endpoints {
		for j, name := range []string{"Authorization", "X-Auth-Token"} {
			if d.Open {
				continue
			}
			path, _ := filled(d.Path)
			held := false
			for try := 0; try < 20 && !held; try++ {
				r := httptest.NewRequest(d.Method, "http://127.0.0.1"+path, strings.NewReader("{}"))
				r.RemoteAddr = fmt.Sprintf("10.%d.%d.1:1", i/256*2+j, i%256) // each door has its own
				r.Header.Set(name, map[string]string{
					"Authorization": fmt.Sprintf("Basic %s", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "admin:guess%d", try))),
					"X-Auth-Token":  fmt.Sprintf("%s%043d", access.TokenMark, try),
				}[name])
				w := httptest.NewRecorder()
				main.ServeHTTP(w, r)
				held = w.Code == http.StatusTooManyRequests
				if !held && w.Code != http.StatusUnauthorized {
					t.Errorf("%s %s: a wrong %s is answered %d", d.Method, path, name, w.Code)
				}
			}
			if !held {
				t.Errorf("%s %s: %s may be guessed without an end", d.Method, path, name)
			}
		}
	}
}

// strangePaths are doors that are none, or ways around the ones there are.
var strangePaths = []api.Endpoint{
	{Path: "/v1/"}, {Path: "//v1/nodes"}, {Path: "/v1/nodes/"}, {Path: "/v1//nodes"}, {Path: "/V1/nodes"}, {Path: "/nodes"}, {Path: "/v2"}, {Path: "/metrics"}, {Path: "/debug/pprof/"},
	{Path: "/v1/../v1/nodes"}, {Path: "/boot/../v1/nodes"}, {Path: "/v1/lookup/../nodes"}, {Path: "/console/../v1/nodes"}, {Path: "/console/%2e%2e/v1/nodes"}, {Path: "/healthz/"}, {Path: "/v1/nodes.json"},
	{Path: "/salvor"}, {Path: "/salvor/v1/nothing"}, {Path: "/identity/v3/users"}, {Path: "/compute/v2.1/servers.json"}, {Path: "/v1/heartbeat"}, {Path: "/v1/lookup/x"}, {Path: "/.git/config"},
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"}

type walker struct {
	t        *testing.T
	listener string
	ask      func(method, path string) int
	allowed  []string
	opened   []string
}

func (w *walker) walk(doors []api.Endpoint) {
	w.t.Helper()
	tried := 0
	for _, d := range doors {
		path, shape := filled(d.Path)
		for _, method := range methods {
			tried++
			status := w.ask(method, path)
			name := method + " " + shape
			if method == "HEAD" { // GET without the body
				name = "GET " + shape
			}
			known := w.opens(name)
			if status == http.StatusUnauthorized || status == http.StatusNotFound {
				continue
			}
			// Other methods of an open path, or of one where files lie, may be told so.
			if !known && status == http.StatusMethodNotAllowed && (strings.HasPrefix(shape, "/boot/") || slices.ContainsFunc(methods, func(m string) bool { return w.opens(m + " " + shape) })) {
				continue
			}
			if !known {
				w.t.Errorf("%s: %s answers %d without a credential", w.listener, name, status)
			}
			w.opened = append(w.opened, name)
		}
	}
	w.t.Logf("%s: %d requests at %d doors; open: %s", w.listener, tried, len(doors), strings.Join(slices.Compact(slices.Sorted(slices.Values(w.opened))), ", "))
	if tried < 100 && w.listener != "hosts" {
		w.t.Errorf("only %d requests", tried)
	}
}

// opens tells whether a door is one of the open ones; where files lie, of which each has a name, whatever lies there is.
func (w *walker) opens(name string) bool {
	if trimmed := strings.TrimSuffix(name, "/"); !strings.HasSuffix(trimmed, " ") {
		name = trimmed
	}
	return slices.Contains(w.allowed, name) || w.listener == "api" && strings.HasPrefix(name, "GET /console/")
}

// filled gives a path with an argument in each place, and its shape.
func filled(path string) (full, shape string) {
	var f, s []string
	for _, part := range strings.Split(path, "/") {
		if strings.HasPrefix(part, "{") {
			f, s = append(f, "00000000-0000-4000-8000-000000000001"), append(s, "{}")
			continue
		}
		f, s = append(f, part), append(s, part)
	}
	return strings.Join(f, "/"), strings.Join(s, "/")
}

func asker(h http.Handler) func(method, path string) int {
	return func(method, path string) int {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		r.Method, r.Host, r.RemoteAddr = method, "salvor.example", "127.0.0.1:1"
		if err := setPath(r, path); err != nil {
			return http.StatusNotFound
		}
		r.Header.Set("X-OpenStack-Ironic-API-Version", "latest")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
}

func setPath(r *http.Request, path string) error {
	u, err := r.URL.Parse("http://salvor.example")
	if err != nil {
		return err
	}
	u.Path = path
	if strings.Contains(path, "%") {
		u.RawPath, u.Path = path, strings.ReplaceAll(path, "%2e", ".")
	}
	r.URL = u
	return nil
}

// overTLS asks the hosts' listener itself, by a client without a certificate.
func overTLS(t *testing.T, w listenerSpec) func(method, path string) int {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	go func() { _ = w.server.Serve(tls.NewListener(l, w.tls)) }()
	t.Cleanup(func() { _ = w.server.Close() })
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(client.CloseIdleConnections)
	return func(method, path string) int {
		r, err := http.NewRequest(method, "https://"+l.Addr().String()+path, strings.NewReader("{}"))
		if err != nil || method == http.MethodConnect {
			return http.StatusNotFound
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		// A redirect to a clean path opens nothing.
		if answer.StatusCode == http.StatusMovedPermanently || answer.StatusCode == http.StatusTemporaryRedirect {
			return http.StatusNotFound
		}
		return answer.StatusCode
	}
}

// newTestControlPlane is the program put together over a fresh SQLite, as serve does it, before anything runs.
func newTestControlPlane(t *testing.T, text string) *ControlPlane {
	t.Helper()
	dir := t.TempDir()
	hash := must.Get(bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost))(t)
	users, file := filepath.Join(dir, "htpasswd"), filepath.Join(dir, "salvor.conf")
	for name, content := range map[string]string{users: "admin:" + string(hash) + "\n", file: fmt.Sprintf(
		"[DEFAULT]\nstate_path = %s\nauth_strategy = http_basic\nhttp_basic_auth_user_file = %s\n[hosts]\nlisten = 127.0.0.1:0\n%s", dir, users, text)} {
		must.OK(t, os.WriteFile(name, []byte(content), 0o600))
	}
	cfg, _, err := config.Load(config.Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
