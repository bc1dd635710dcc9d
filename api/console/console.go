// Package console serves the web console, /console/: files that are compiled in and never
// change while the program runs. It knows HTTP and those files, and no record, no token and
// nobody who asks: all that the console shows it reads by the REST API, from the browser.
package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"salvor/api"
)

//go:embed static
var static embed.FS

const root = "/console"

// policy lets a page load and speak to nobody but this server, run nothing but the files that are served here, and
// refuses to be framed. Trusted types make a text that is inserted as HTML an error of the browser.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// headers go with every answer.
var headers = map[string]string{
	"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
	"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
	"Cache-Control":      "no-cache", // asked again each time, answered by 304 while it is the same
}

// kinds are all that is served.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

type file struct {
	kind, tag string
	body      []byte
}

// New serves the files to everybody: nothing in them is secret.
func New() api.RouteLister {
	files := map[string]file{}
	all, _ := fs.Glob(static, "static/*") // the pattern is one, and compiled in with the files
	for _, name := range all {
		body, err := static.ReadFile(name)
		kind := kinds[path.Ext(name)]
		if err != nil || kind == "" {
			continue
		}
		sum := sha256.Sum256(body)
		files[root+strings.TrimPrefix(name, "static")] = file{kind, `"` + hex.EncodeToString(sum[:12]) + `"`, body}
	}
	files[root+"/"] = files[root+"/index.html"]
	endpoints := []api.Endpoint{{Method: http.MethodGet, Path: root, Open: true}}
	for name := range files {
		endpoints = append(endpoints, api.Endpoint{Method: http.MethodGet, Path: name, Open: true})
	}
	return api.RouteLister{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, files) }), Endpoints: endpoints}
}

func serve(w http.ResponseWriter, r *http.Request, files map[string]file) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET is allowed here", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == root {
		http.Redirect(w, r, root+"/", http.StatusMovedPermanently)
		return
	}
	f, ok := files[r.URL.Path]
	if !ok {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	w.Header().Set("Etag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Content-Length", fmt.Sprint(len(f.body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.body) // a browser that went away is nobody's error
	}
}
