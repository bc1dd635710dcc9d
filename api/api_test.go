package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"salvor/access"
	"salvor/problem"
	"salvor/test/must"
)

var served = Microversions{Major: 1, Min: 1, Max: 82, Service: "baremetal", Header: "X-OpenStack-Ironic-API-Version"}

func TestParseVersion(t *testing.T) {
	for _, tt := range []struct {
		standard, own string
		want          int // 0 is a refusal
		parsed        bool
	}{
		{"", "", 1, false}, {"", "1.1", 1, false}, {"", "1.82", 82, false}, {"", "latest", 82, false}, {"", "LATEST", 82, false}, {"", " 1.38 ", 38, false},
		{"baremetal 1.38", "", 38, false}, {"compute 2.1, baremetal 1.38", "", 38, false}, {"compute 2.1,baremetal latest", "", 82, false}, {"compute 2.1", "1.5", 5, false}, {"compute 2.1", "", 1, false},
		{"baremetal 1.38", "1.5", 38, false}, {"BareMetal 1.7", "", 7, false}, {"baremetal", "", 1, false}, {"baremetal 1.7 x", "", 1, false},
		{"", "1.83", 0, true}, {"", "1.0", 0, true}, {"", "2.1", 0, true}, {"", "0.9", 0, true}, {"baremetal 1.999999", "", 0, true},
		{"", "1", 0, false}, {"", "1.", 0, false}, {"", ".1", 0, false}, {"", "1.x", 0, false}, {"", "1.-1", 0, false}, {"", "1.+1", 0, false}, {"", "1.1.1", 0, false}, {"", "x", 0, false},
		{"", "1.99999999999999999999", 0, false}, {"baremetal " + strings.Repeat("1", 5000), "", 0, false}, {"baremetal 1.٣", "", 0, false},
	} {
		h := http.Header{}
		if tt.standard != "" {
			h.Set("OpenStack-API-Version", tt.standard)
		}
		if tt.own != "" {
			h.Set("X-OpenStack-Ironic-API-Version", tt.own)
		}
		got, err := served.Parse(h)
		var bad *BadVersion
		if errors.As(err, &bad); got != tt.want || (err != nil) != (tt.want == 0) || err != nil && bad.Parsed != tt.parsed {
			t.Errorf("%q, %q: %d, %v", tt.standard, tt.own, got, err)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"1.38", "latest", "baremetal 1.38", "1.", "1.99999999999", "compute 2.1,baremetal latest", ",,,", "baremetal\t1.2"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, standard, own string) {
		h := http.Header{"Openstack-Api-Version": {standard}, "X-Openstack-Ironic-Api-Version": {own}}
		v, err := served.Parse(h)
		if err == nil && (v < served.Min || v > served.Max) {
			t.Fatalf("version %d of %q, %q", v, standard, own)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Fatalf("a long error: %q", err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{}`, `[1,"a",null,true,{"b":[]}]`, `"\u0000"`, `{"a":"\\\""}`, strings.Repeat("[", 30), "\xff", `{} {}`, ``, `"]"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Decode(b)
		if err != nil {
			if Status(err) != http.StatusBadRequest {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if d := depthOf(v); d > MaxDepth {
			t.Fatalf("depth %d", d)
		}
		if strings.ContainsRune(fmt.Sprint(v), 0) {
			t.Fatal("a NUL got through")
		}
	})
}

func depthOf(v any) int {
	deepest := 0
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
	default:
		return 0
	}
	return deepest + 1
}

func TestStatusAndWords(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		words  string
	}{
		{problem.Invalidf("a"), 400, "a"}, {problem.NotFoundf("a"), 404, "a"}, {problem.Conflictf("a"), 409, "a"}, {problem.Forbiddenf("a"), 403, "a"},
		{problem.Unsupportedf("a"), 400, "a"}, {problem.Unavailablef("a"), 503, "a"}, {fmt.Errorf("outside: %w", problem.Invalidf("a")), 400, "outside: a"},
		{NotAcceptablef("needs 1.%d", 3), 406, "needs 1.3"}, {errors.New("disk /dev/secret broke"), 500, "internal error; request id req-1"},
		{fmt.Errorf("read /secret: %w", context.DeadlineExceeded), 503, "The request could not be worked off in its time; ask again."},
	} {
		if s, w := Status(tt.err), UserText(tt.err, "req-1"); s != tt.status || w != tt.words {
			t.Errorf("%v: %d %q", tt.err, s, w)
		}
	}
}

func TestServe(t *testing.T) {
	var log bytes.Buffer
	fail := func(w http.ResponseWriter, r *http.Request, err error) {
		w.WriteHeader(Status(err))
		fmt.Fprint(w, UserText(err, Of(r.Context()).ID))
	}
	h := Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Deadline(); !ok {
			t.Error("no deadline")
		}
		switch r.URL.Path {
		case "/panic":
			panic("a secret? no: a bug")
		case "/late":
			w.WriteHeader(200)
			panic("after the header")
		case "/abort":
			panic(http.ErrAbortHandler)
		}
		Of(r.Context()).User = access.Principal{User: "ann"}
		fmt.Fprint(w, "fine")
	}), fail, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	get := func(path string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		return rec
	}
	if rec := get("/fine?password=hush"); rec.Code != 200 || !strings.HasPrefix(rec.Header().Get("Openstack-Request-Id"), "req-") {
		t.Errorf("fine: %d %v", rec.Code, rec.Header())
	} else if h := rec.Header(); h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("headers: %v", h)
	}
	if l := log.String(); strings.Contains(l, "hush") || !strings.Contains(l, "user=ann") || !strings.Contains(l, "path=/fine") || !strings.Contains(l, "status=200") {
		t.Errorf("log: %s", l)
	}
	rec := get("/panic")
	if id := rec.Header().Get("Openstack-Request-Id"); rec.Code != 500 || rec.Body.String() != "internal error; request id "+id || !strings.Contains(log.String(), "a bug") {
		t.Errorf("panic: %d %s", rec.Code, rec.Body)
	}
	if rec := get("/late"); rec.Code != 200 {
		t.Errorf("late: %d", rec.Code)
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("abort was swallowed")
		}
	}()
	get("/abort")
}

func TestReadBodyLimit(t *testing.T) {
	for size, status := range map[int]int{10: 0, 11: 413} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", size)))
		_, err := ReadBody(httptest.NewRecorder(), r, 10)
		if (err != nil) != (status != 0) || err != nil && Status(err) != status {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestServerHasTimeouts(t *testing.T) {
	s := NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.WriteTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 {
		t.Errorf("%+v", s)
	}
}

// htpasswd writes a file of users and their passwords.
func htpasswd(t *testing.T, path string, users map[string]string) {
	t.Helper()
	text := "# users\n\n"
	for user, password := range users {
		hash := must.Get(bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost))(t)
		text += user + ":" + string(hash) + "\n"
	}
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestHTTPBasic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "htpasswd")
	htpasswd(t, path, map[string]string{"ann": "one", "bob": "two"})
	h, err := NewHTTPBasic(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	h.now = func() time.Time { return now }
	who := func(user, password string) (string, int) {
		r := httptest.NewRequest("GET", "/", nil)
		if user != "" {
			r.SetBasicAuth(user, password)
		}
		p, err := h.Authenticate(r)
		if err != nil {
			return "", Status(err)
		}
		if p.Role != access.Admin {
			t.Errorf("role %q", p.Role)
		}
		return p.User, 200
	}
	check := func(user, password string, want int) {
		t.Helper()
		for range 2 { // the second time bcrypt is spared
			if got, status := who(user, password); status != want || want == 200 && got != user {
				t.Errorf("%s: %d, want %d", user, status, want)
			}
		}
	}
	check("ann", "one", 200)
	check("bob", "two", 200)
	check("ann", "two", 401)
	check("ann", "", 401)
	check("eve", "one", 401)
	check("", "", 401)
	check("ann", strings.Repeat("x", 73), 401)
	htpasswd(t, path, map[string]string{"ann": "new", "carol": "three"})
	must.OK(t, os.Chtimes(path, now.Add(time.Minute), now.Add(time.Minute)))
	now = now.Add(2 * time.Second)
	check("ann", "one", 401)
	check("ann", "new", 200)
	check("bob", "two", 401)
	must.OK(t, os.WriteFile(path, []byte("broken\n"), 0o600))
	now = now.Add(2 * time.Second)
	check("eve", "new", 503)
	var known *Error
	_, err = h.Authenticate(httptest.NewRequest("GET", "/", nil))
	if !errors.As(err, &known) || !strings.HasPrefix(known.Header.Get("WWW-Authenticate"), "Basic realm=") {
		t.Errorf("no challenge: %v", err)
	}
}

func TestBadHtpasswd(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"empty": "", "comment": "# x\n", "plain": "ann:secret\n", "md5": "ann:$apr1$aaaaaaaa$bbbbbbbbbbbbbbbbbbbbbb\n", "no user": ":$2a$10$x\n", "no colon": "ann\n",
	} {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := NewHTTPBasic(path); !problem.Is(err, problem.Invalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewHTTPBasic(filepath.Join(dir, "none")); !problem.Is(err, problem.Invalid) {
		t.Errorf("no file: %v", err)
	}
}
