package console

import (
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"salvor/api"
)

// maxAccept bounds what is read of an Accept header, in bytes; no browser sends so much.
const maxAccept = 1024

// RedirectBrowsers redirects (302) a browser that opens / to the console. All other requests go to next, also GET / of a client of the API. A
// redirect has a request id and a line in the log, as each answer of next has.
func RedirectBrowsers(next http.Handler, log *slog.Logger) api.RouteLister {
	var endpoints []api.Endpoint
	if l, ok := next.(api.RouteLister); ok {
		endpoints = l.Endpoints
	}
	fail := api.Faults(nil, nil, "error")
	redirect := api.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := api.Admit(r, ""); err != nil {
			fail(w, r, err)
			return
		}
		w.Header().Set("Location", root+"/")
		w.WriteHeader(http.StatusFound)
	}), fail, log)
	return api.RouteLister{Endpoints: endpoints, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Vary", "Accept")
		if !prefersHTML(r.Header) {
			next.ServeHTTP(w, r)
			return
		}
		redirect.ServeHTTP(w, r)
	})}
}

// prefersHTML tells whether a client names text/html in its Accept header and likes it better than JSON, as browsers do. A range that names
// a type goes over one with wildcards. Parts that cannot be read count for nothing.
func prefersHTML(h http.Header) bool {
	accept := strings.Join(h.Values("Accept"), ",")
	if len(accept) > maxAccept {
		return false
	}
	var html, json float64
	precision := 0 // of the range that gave json its weight
	for part := range strings.SplitSeq(accept, ",") {
		kind, parameters, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, given := parameters["q"]; given {
			if weight, err = strconv.ParseFloat(q, 64); err != nil || !(weight >= 0 && weight <= 1) {
				continue
			}
		}
		if kind == "text/html" {
			html = weight
		}
		if p := map[string]int{"*/*": 1, "application/*": 2, "application/json": 3}[kind]; p > precision {
			precision, json = p, weight
		}
	}
	return html > json
}
