package api

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"salvor/problem"
)

// SameSite refuses changes that a browser asks for a page of another site: such a page cannot read the answer, but where
// nobody has to prove who it is, its request would be done all the same. Programs that are no browsers say no site and pass.
func SameSite(h http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	fail := Faults(nil, nil, "error")
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, problem.Forbiddenf("A page of another site may not ask for changes here."))
	}))
	return guard.Handler(h)
}

// NamedHere refuses requests whose host is neither an address, nor localhost, nor one of names. Without it, a page of another site could
// let its own name point to this machine (DNS rebinding): for a browser, that page and salvor would then be the same site.
func NamedHere(h http.Handler, names []string) http.Handler {
	fail := Faults(nil, nil, "error")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := strings.ToLower(strings.TrimSuffix((&url.URL{Host: r.Host}).Hostname(), "."))
		if _, err := netip.ParseAddr(host); err != nil && host != "localhost" && !slices.Contains(names, host) {
			fail(w, r, problem.Forbiddenf("This API asks nobody for a proof of identity, so it takes requests by address and by known names only. It does not know %.100q. "+
				"Use the address, set [api]public_endpoint to the URL with this name, or choose another auth_strategy than noauth.", host))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Unproxied refuses requests that a proxy has handed on: where nobody has to prove who it is, the proxy's clients would be administrators.
func Unproxied(h http.Handler) http.Handler {
	fail := Faults(nil, nil, "error")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
			if r.Header.Get(name) != "" {
				fail(w, r, problem.Forbiddenf("This API asks nobody for a proof of identity, and this request comes through a proxy (%s): set [DEFAULT]auth_strategy, or write noauth there if that is meant.", name))
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}
