package console

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"salvor/api"
)

// TestRedirectBrowsers: browsers get the console at /, by the headers that they send. Whoever else asks gets the API's document.
func TestRedirectBrowsers(t *testing.T) {
	const document, console = http.StatusTeapot, http.StatusFound
	h := RedirectBrowsers(api.RouteLister{Endpoints: []api.Endpoint{{Path: "/"}}, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(document) })}, slog.New(slog.DiscardHandler))
	if len(h.Endpoints) != 1 {
		t.Errorf("it hides endpoints: %v", h.Endpoints)
	}
	const firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for name, c := range map[string]struct {
		method, path, accept string
		want                 int
	}{
		"Firefox":             {"GET", "/", firefox, console},
		"an older Firefox":    {"GET", "/", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", console},
		"Chromium":            {"GET", "/", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7", console},
		"w3m":                 {"GET", "/", "text/html, text/*;q=0.5, image/*, application/*", document},
		"lynx":                {"GET", "/", "text/html, text/plain, text/sgml, */*;q=0.01", console},
		"a look before":       {"HEAD", "/", firefox, console},
		"with a query":        {"GET", "/?a=b", firefox, console},
		"curl":                {"GET", "/", "*/*", document},
		"python's requests":   {"GET", "/", "*/*", document},
		"python's urllib, Go": {"GET", "/", "", document},
		"keystoneauth":        {"GET", "/", "application/json", document},
		"a fetch of a page":   {"GET", "/", "application/json, text/plain, */*", document},
		"JSON rather":         {"GET", "/", "text/html;q=0.5, application/json", document},
		"HTML and JSON alike": {"GET", "/", "text/html, application/json", document},
		"HTML refused":        {"GET", "/", "text/html;q=0, */*;q=0", document},
		"another path":        {"GET", "/v1", firefox, document},
		"two slashes":         {"GET", "//", firefox, document},
		"another method":      {"POST", "/", firefox, document},
		"rubbish":             {"GET", "/", ";;,,q=,text/html;q=NaN,text/html;q=9,text/html;q=x,\x00\xff,=,*/*;q", document},
		"much":                {"GET", "/", "text/html" + strings.Repeat(",a/b", 1<<20), document},
		"many empty ones":     {"GET", "/", strings.Repeat(",", maxAccept-9) + "text/html", console},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), c.method, "http://salvor.example"+c.path, nil)
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		h.ServeHTTP(w, r)
		if location := w.Header().Get("Location"); w.Code != c.want || (location == "/console/") != (c.want == console) {
			t.Errorf("%s: %d to %q, want %d", name, w.Code, location, c.want)
		}
		if id := w.Header().Get("Openstack-Request-Id"); (id != "") != (c.want == console) {
			t.Errorf("%s: request id %q", name, id)
		}
		if varies := w.Header().Get("Vary") == "Accept"; varies != (r.URL.Path == "/" && c.method != "POST") {
			t.Errorf("%s: Vary %q", name, w.Header().Get("Vary"))
		}
	}
	twice := httptest.NewRequestWithContext(t.Context(), "GET", "http://salvor.example/", nil)
	twice.Header["Accept"] = []string{"application/json", "text/html"}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, twice); w.Code != document {
		t.Errorf("JSON and HTML in two headers: %d", w.Code)
	}
}
