package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := must.Get(New(Config{Endpoint: server.URL + "/v1/"}))(t)
	return c
}

func TestNew(t *testing.T) {
	for _, bad := range []string{"", "ironic", "ftp://x", "http://", "http://user:pw@x", "http://[::1", "/v1"} {
		if _, err := New(Config{Endpoint: bad}); !problem.Is(err, problem.Invalid) || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for given, want := range map[string]string{
		"http://x:6385": "http://x:6385", "http://x/v1": "http://x", "https://x/baremetal/v1/": "https://x/baremetal", " http://x/?q=1#f": "http://x",
	} {
		c, err := New(Config{Endpoint: given})
		if err != nil || c.Endpoint() != want {
			t.Errorf("%q: %v, want %q", given, c.Endpoint(), want)
		}
	}
}

func TestDo(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(map[string]string{
			"method": r.Method, "url": r.URL.String(), "version": r.Header.Get(VersionHeader), "type": r.Header.Get("Content-Type"),
			"user": user + ":" + password, "body": string(body), "agent": r.UserAgent(), "extra": r.Header.Get("X-Extra"),
		})
	}))
	defer server.Close()
	c := must.Get(New(Config{Endpoint: server.URL + "/base", Username: "admin", Password: secret.New("pw"), UserAgent: "salvor/1"}))(t)
	var got map[string]string
	request := Request{
		Method: "PUT", Path: "/v1/nodes/a%2Fb", Query: map[string][]string{"q": {"1"}}, Body: map[string]int{"n": 1},
		Version: 82, Header: http.Header{"X-Extra": {"x"}},
	}
	answer, err := c.Do(t.Context(), request, &got)
	if err != nil || answer.Status != http.StatusOK {
		t.Fatal(answer, err)
	}
	for key, want := range map[string]string{
		"method": "PUT", "url": "/base/v1/nodes/a%2Fb?q=1", "version": "1.82", "type": "application/json", "user": "admin:pw",
		"body": `{"n":1}`, "agent": "salvor/1", "extra": "x",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}

func TestErrors(t *testing.T) {
	double := func(inner string) string {
		text, _ := json.Marshal(inner)
		return `{"error_message": ` + string(text) + `}`
	}
	for name, c := range map[string]struct {
		status int
		body   string
		kind   problem.Kind
		text   string
	}{
		"doubly":    {404, double(`{"faultcode": "Client", "faultstring": "Node x could not be found.", "debuginfo": null}`), problem.NotFound, "Node x could not be found."},
		"singly":    {413, `{"error_message": {"faultstring": "too large"}}`, problem.Invalid, "too large"},
		"router":    {404, double(`{"code": 404, "title": "Not Found", "description": "no such path"}`), problem.NotFound, "no such path"},
		"titled":    {405, double(`{"code": 405, "title": "Method Not Allowed", "description": ""}`), problem.Invalid, "Method Not Allowed"},
		"text":      {400, double(`just words`), problem.Invalid, "just words"},
		"agent":     {401, `{"faultcode": "Client", "faultstring": "Token invalid."}`, problem.Forbidden, "Token invalid."},
		"html":      {502, "<html>\n<body>x</body>", problem.Unavailable, "Bad Gateway"},
		"plain":     {503, "go away\nstack", problem.Unavailable, "go away"},
		"empty":     {409, "", problem.Conflict, "Conflict"},
		"null":      {403, "null", problem.Forbidden, "Forbidden"},
		"406":       {406, double(`{"faultstring": "versions 1.1 to 1.82"}`), problem.Unsupported, "1.82"},
		"429":       {429, "", problem.Unavailable, "Too Many Requests"},
		"501":       {501, "", problem.Unsupported, "Not Implemented"},
		"redirect":  {302, "", problem.Invalid, "Found"},
		"bad bytes": {400, double("a\x00b\x1b[2Jc"), problem.Invalid, "a b [2Jc"},
		"long":      {500, strings.Repeat("x", 9000), problem.Unavailable, "..."},
	} {
		client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		_, err := client.Do(t.Context(), Request{Method: "GET", Path: "/v1/nodes"}, nil)
		if problem.KindOf(err) != c.kind || StatusOf(err) != c.status || !strings.Contains(err.Error(), c.text) || len(err.Error()) > 3000 {
			t.Errorf("%s: kind %v, status %d: %v", name, problem.KindOf(err), StatusOf(err), err)
		}
		if !strings.HasPrefix(err.Error(), "GET /v1/nodes: ") {
			t.Errorf("%s does not name the operation: %v", name, err)
		}
	}
}

func TestNoAnswer(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/slow":
			<-release
		case "/v1/long":
			_, _ = io.WriteString(w, strings.Repeat("x", 2000))
		case "/v1/away":
			http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
		case "/v1/near":
			http.Redirect(w, r, "/v1/near/", http.StatusMovedPermanently)
		case "/v1/loop":
			http.Redirect(w, r, "/v1/loop", http.StatusFound)
		case "/v1/near/":
			_, _ = io.WriteString(w, "{}")
		case "/v1/rubbish":
			_, _ = io.WriteString(w, "rubbish")
		}
	}))
	defer server.Close()
	with := func(timeout time.Duration) *Client {
		c := must.Get(New(Config{Endpoint: server.URL, Timeout: timeout, MaxBody: 1000}))(t)
		return c
	}
	c, hasty := with(20*time.Second), with(200*time.Millisecond)
	var out map[string]any
	for path, want := range map[string]struct {
		kind   problem.Kind
		status int
	}{
		"/v1/slow": {problem.Unavailable, 0}, "/v1/long": {problem.Unavailable, 0}, "/v1/away": {problem.Invalid, 302}, "/v1/loop": {problem.Invalid, 302},
		"/v1/rubbish": {problem.Unavailable, 0},
	} {
		by := c
		if path == "/v1/slow" {
			by = hasty
		}
		_, err := by.Do(t.Context(), Request{Method: "GET", Path: path, Query: map[string][]string{"token": {"geheim"}}}, &out)
		if problem.KindOf(err) != want.kind || StatusOf(err) != want.status || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := c.Do(t.Context(), Request{Method: "GET", Path: "/v1/near"}, &out); err != nil {
		t.Errorf("a slash more: %v", err)
	}
	close(release)
	server.Close()
	if _, err := c.Do(t.Context(), Request{Method: "GET", Path: "/v1/x"}, nil); !problem.Is(err, problem.Unavailable) {
		t.Errorf("closed server: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Do(ended, Request{Method: "GET", Path: "/v1/x"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}

func TestVersions(t *testing.T) {
	for name, c := range map[string]struct {
		low, high, body string
		want            Range
	}{
		"headers": {"1.1", "1.82", "", Range{1, 82}},
		"body":    {"", "", `{"version": {"min_version": "1.1", "version": "1.115"}}`, Range{1, 115}},
		"none":    {"", "", `{}`, Range{}},
		"rubbish": {"x", "1.82", `[]`, Range{}},
		"turned":  {"1.9", "1.2", ``, Range{}},
		"other":   {"2.1", "2.82", ``, Range{}},
	} {
		asked := 0
		client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.Header().Set(MinVersionHeader, c.low)
			w.Header().Set(MaxVersionHeader, c.high)
			_, _ = io.WriteString(w, c.body)
		})
		for range 2 {
			if got, err := client.Versions(t.Context()); err != nil || got != c.want {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		if asked != 1 {
			t.Errorf("%s: asked %d times", name, asked)
		}
	}
	asked := 0
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set(MinVersionHeader, "1.1")
		w.Header().Set(MaxVersionHeader, "1.50")
	})
	if _, err := client.Versions(t.Context()); !problem.Is(err, problem.Unavailable) {
		t.Errorf("502: %v", err)
	}
	got, err := client.Versions(t.Context())
	if err != nil || got.Pick(82) != 50 || got.Pick(31) != 31 || (Range{Min: 10, Max: 20}).Pick(5) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"error_message": "{\"faultstring\": \"x\"}"}`))
	f.Add([]byte(`{"error_message": {"error_message": {"error_message": "x"}}}`))
	f.Add([]byte("<html>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		text := errorMessage(body)
		if len(text) > maxMessage+3 || strings.ContainsAny(text, "\n\x00\x1b") {
			t.Errorf("%q", text)
		}
	})
}

func FuzzParseVersion(f *testing.F) {
	f.Add("1.82")
	f.Add("1.-1")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := ParseVersion(text); err == nil && (v <= 0 || v > 65535) {
			t.Errorf("%q is %d", text, v)
		}
	})
}
