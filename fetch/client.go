package fetch

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"salvor/problem"
)

const (
	connectTime = 30 * time.Second
	// maxRedirects is how often an answer may lead on.
	maxRedirects = 5
	maxHeader    = 64 << 10
)

// Client makes a client for what users name by URL. It speaks http and https, goes where
// the guard lets it, follows few redirects, each looked at anew, and bounds the time until
// an answer begins. The body's size and time are its reader's to bound.
func Client(g Guard) *http.Client {
	way := newRoad(g)
	return &http.Client{Transport: guarded{g, &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: way.dial, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: connectTime, ResponseHeaderTimeout: connectTime, MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: connectTime, DisableCompression: true, // what is fetched is to arrive as it is
	}}, CheckRedirect: Redirect}
}

// Redirect decides on a redirect, for clients of any kind: few, never from TLS to plain
// HTTP, never with a user in the URL, and to another server without anything that opens
// the first one. net/http itself hands a header such as X-Auth-Token on to everybody.
func Redirect(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return problem.Unavailablef("it redirects more than %d times", maxRedirects)
	case r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return problem.Forbiddenf("it redirects to a URL that is neither http nor https")
	case r.URL.User != nil:
		return problem.Forbiddenf("it redirects to a URL with a user")
	case r.URL.Scheme != "https" && slices.ContainsFunc(via, func(v *http.Request) bool { return v.URL.Scheme == "https" }):
		return problem.Forbiddenf("it redirects away from TLS")
	}
	r.Header.Del("Referer") // the query of the page before may be what opens it
	if origin(r.URL) == origin(first) {
		return nil
	}
	for name := range r.Header {
		if !slices.Contains(harmless, name) {
			r.Header.Del(name)
		}
	}
	return nil
}

// harmless are the headers that another server may see too.
var harmless = []string{"Accept", "Range", "User-Agent", "If-None-Match", "If-Modified-Since"}

func origin(u *url.URL) string { return u.Scheme + "://" + net.JoinHostPort(u.Hostname(), portOf(u)) }

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// guarded looks at each request before it is sent, for through a proxy no connection to its address is made.
type guarded struct {
	guard Guard
	inner *http.Transport
}

func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.guard.CheckURL(r.URL); err != nil {
		return nil, err
	}
	return g.inner.RoundTrip(r)
}

func (g guarded) CloseIdleConnections() { g.inner.CloseIdleConnections() }

// CheckURL refuses what is no URL of a web server, or leads to an address that is refused.
func (g Guard) CheckURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		return problem.Invalidf("only http and https URLs with a host are fetched")
	}
	port, err := strconv.ParseUint(portOf(u), 10, 16)
	if err != nil || port == 0 {
		return problem.Invalidf("there is no port %.20s", u.Port())
	}
	return g.CheckHost(u.Hostname(), uint16(port))
}

// transport makes connections: to where the guard lets, or to the proxy that the environment names.
type transport struct {
	guard   Guard
	proxies []string // HOST:PORT, which the operator has chosen
}

func newRoad(g Guard) transport {
	w := transport{guard: g}
	for _, scheme := range []string{"http", "https"} {
		u, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "proxied.invalid"}})
		if err == nil && u != nil {
			w.proxies = append(w.proxies, net.JoinHostPort(u.Hostname(), portOf(u)))
		}
	}
	return w
}

func (w transport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: connectTime, Control: w.guard.Control}
	if slices.Contains(w.proxies, address) {
		d.Control = nil
	}
	return d.DialContext(ctx, network, address)
}
