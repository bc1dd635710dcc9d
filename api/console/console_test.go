package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"salvor/test/must"
)

func ask(t *testing.T, method, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for k, v := range header {
		r.Header[k] = v
	}
	New().ServeHTTP(w, r)
	body := must.Get(io.ReadAll(w.Result().Body))(t)
	return w.Result(), string(body)
}

// TestFiles: all files are served, with the headers that keep a page to itself, and nothing else is.
func TestFiles(t *testing.T) {
	all := must.Get(static.ReadDir("static"))(t)
	for _, f := range all {
		resp, body := ask(t, "GET", "/console/"+f.Name(), nil)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") == "" || resp.Header.Get("Content-Security-Policy") != policy {
			t.Errorf("%s: %d %v", f.Name(), resp.StatusCode, resp.Header)
		}
		again, _ := ask(t, "GET", "/console/"+f.Name(), http.Header{"If-None-Match": {resp.Header.Get("Etag")}})
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: asked again: %d", f.Name(), again.StatusCode)
		}
		head, empty := ask(t, "HEAD", "/console/"+f.Name(), nil)
		if empty != "" || head.ContentLength != int64(len(body)) {
			t.Errorf("%s: HEAD: %d bytes, length %d", f.Name(), len(empty), head.ContentLength)
		}
	}
	for path, want := range map[string]int{
		"/console": 301, "/console/": 200, "/console/static/app.js": 404, "/console/../console.go": 404, "/console/console.go": 404, "/console/%2e%2e/x": 404, "/console/app.js/": 404,
	} {
		resp, _ := ask(t, "GET", path, nil)
		if resp.StatusCode != want || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	if resp, _ := ask(t, "POST", "/console/", nil); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

// TestNoMarkup: no file makes markup of a text, runs a text as a program, or names another server.
func TestNoMarkup(t *testing.T) {
	bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function|srcdoc|javascript:|\son[a-z]+=|\sstyle=`)
	far := regexp.MustCompile(`https?://[^"'\s]+`)
	all := must.Get(static.ReadDir("static"))(t)
	for _, f := range all {
		b := must.Get(static.ReadFile("static/" + f.Name()))(t)
		if found := bad.FindString(string(b)); found != "" && !strings.HasSuffix(f.Name(), ".css") {
			t.Errorf("%s has %q", f.Name(), found)
		}
		for _, url := range far.FindAllString(string(b), -1) {
			if url != "http://www.w3.org/2000/svg" {
				t.Errorf("%s names %s", f.Name(), url)
			}
		}
	}
}
