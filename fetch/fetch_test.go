package fetch

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

func TestAddressesThatAreRefused(t *testing.T) {
	listener := netip.MustParseAddrPort("192.0.2.1:6385")
	g := Guard{Listeners: func() []netip.AddrPort { return []netip.AddrPort{listener, netip.MustParseAddrPort("0.0.0.0:6386")} }}
	for _, host := range []string{
		"127.0.0.1", "127.255.0.9", "0.0.0.0", "169.254.169.254", "100.100.100.200", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0",
		"fec0::1", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "192.0.0.192", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:fffe::7f00:1", "::ffff:0:7f00:1", "2002:7f00:1::1", "::127.0.0.1",
	} {
		if err := g.CheckHost(host, 80); !problem.Is(err, problem.Forbidden) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1", "a.name", "100.100.100.201"} {
		if err := g.CheckHost(host, 80); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if g.CheckHost("192.0.2.1", 6385) == nil || g.CheckHost("::ffff:192.0.2.1", 6385) == nil {
		t.Error("our own door is reached")
	}
	g.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")}
	if g.CheckHost("127.0.0.1", 6386) == nil || g.CheckHost("192.0.2.1", 6385) == nil {
		t.Error("our own door is reached where its network is configured")
	}
	if err := g.CheckHost("127.0.0.1", 8080); err != nil {
		t.Error(err)
	}
	g.Only = true
	if g.CheckHost("10.0.0.1", 80) == nil {
		t.Error("a network that is not configured is reached")
	}
	g = Guard{Own: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.9.8.7")} }}
	for networks, reached := range map[string]bool{"": false, "10.0.0.0/8": false, "127.0.0.0/8": false, "10.9.8.7/32": true} {
		if g.Networks = nil; networks != "" {
			g.Networks = []netip.Prefix{netip.MustParsePrefix(networks)}
		}
		if got := g.CheckHost("10.9.8.7", 80) == nil; got != reached {
			t.Errorf("our own address with the networks %q: reached %v", networks, got)
		}
	}
	// A listener on all addresses is refused by each address of this machine.
	g = Guard{Listeners: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:6386")} }, Networks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
	for _, own := range OwnAddresses() {
		if g.Check(netip.AddrPortFrom(own, 6386)) == nil {
			t.Errorf("our own door is reached by %s", own)
		}
	}
}

// TestNamesAreCheckedWhenTheyAreConnectedTo has a name that leads to this machine: it
// passes every look at the URL, and no connection is made.
func TestNamesAreCheckedWhenTheyAreConnectedTo(t *testing.T) {
	asked := make(chan struct{}, 8)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	g := Guard{}
	u := &url.URL{Scheme: "http", Host: "localhost:" + port}
	if err := g.CheckURL(u); err != nil {
		t.Fatalf("the name alone is refused: %v", err)
	}
	_, err := Client(g).Get(u.String())
	if !problem.Is(err, problem.Forbidden) {
		t.Fatalf("want Forbidden, have %v", err)
	}
	if len(asked) > 0 {
		t.Fatal("the server was asked")
	}
	must.Get(Client(Loopback).Get(u.String()))(t)
}

// TestRedirectsCarryNothingElsewhere leads a request with all sorts of keys from one
// server to another, and back.
func TestRedirectsCarryNothingElsewhere(t *testing.T) {
	var seen http.Header
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() }))
	defer other.Close()
	var home *httptest.Server
	home = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL+"/?x", http.StatusFound)
		case "/round":
			http.Redirect(w, r, home.URL+"/end", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, home.URL+"/loop", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/user":
			w.Header().Set("Location", strings.Replace(other.URL, "://", "://a:b@", 1))
			w.WriteHeader(http.StatusFound)
		case "/metadata":
			http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusFound)
		case "/end":
			seen = r.Header.Clone()
		}
	}))
	defer home.Close()
	get := func(path string) error {
		r := must.Get(http.NewRequestWithContext(context.Background(), http.MethodGet, home.URL+path+"?signature=canary", nil))(t)
		seen = nil
		for _, name := range []string{"Authorization", "Cookie", "X-Auth-Token", "X-Subject-Token", "Proxy-Authorization", "X-Anything"} {
			r.Header.Set(name, "canary")
		}
		r.Header.Set("Range", "bytes=5-")
		answer, err := Client(Loopback).Do(r)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	must.OK(t, get("/away"))
	for name, values := range seen {
		if slices.Contains(values, "canary") || strings.Contains(strings.Join(values, ""), "canary") {
			t.Errorf("the other server was told %s: %s", name, values)
		}
	}
	if seen.Get("Range") == "" {
		t.Error("the range was lost on the way")
	}
	if err := get("/round"); err != nil || seen.Get("X-Auth-Token") != "canary" {
		t.Errorf("the same server: %v, %v", err, seen)
	}
	for _, path := range []string{"/loop", "/file", "/user", "/metadata"} {
		if err := get(path); err == nil {
			t.Errorf("%s was followed", path)
		}
	}
}

func TestNoRedirectAwayFromTLS(t *testing.T) {
	ask := func(from ...string) error {
		var via []*http.Request
		for _, f := range from {
			r := must.Get(http.NewRequest(http.MethodGet, f, nil))(t)
			via = append(via, r)
		}
		return Redirect(via[len(via)-1], via[:len(via)-1])
	}
	if ask("https://a/", "http://a/") == nil || ask("http://a/", "https://a/", "http://a/") == nil {
		t.Error("a redirect leads away from TLS")
	}
	if err := ask("http://a/", "https://b/"); err != nil {
		t.Error(err)
	}
}

func TestURLsThatAreNotFetched(t *testing.T) {
	for _, text := range []string{"file:///etc/passwd", "file://host/dev/zero", "gopher://a/", "ftp://a/x", "unix:///run/x", "http:opaque", "http://", "http://:80/", "http://a:0/", "//a/x", "/etc/passwd", "http://127.0.0.1/", "http://[::1]:80/"} {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		if err := (Guard{}).CheckURL(u); err == nil {
			t.Errorf("%s is fetched", text)
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"http://127.0.0.1/", "http://[::ffff:127.0.0.1%25a]/", "http://a:80/x", "https://[64:ff9b::7f00:1]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil || (Guard{}).CheckURL(u) != nil {
			return
		}
		if a, err := netip.ParseAddr(u.Hostname()); err == nil && (a.Unmap().IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified()) {
			t.Errorf("%q is let through", text)
		}
	})
}

// TestAProxyIsNotAskedForWhatIsRefused: the proxy that the environment names makes the connection, so the guard has to look at the URL.
func TestAProxyIsNotAskedForWhatIsRefused(t *testing.T) {
	asked := ""
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.URL.String() }))
	defer proxy.Close()
	at := must.Get(url.Parse(proxy.URL))(t)
	c := Client(Guard{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	defer c.CloseIdleConnections()
	c.Transport.(guarded).inner.Proxy = http.ProxyURL(at) // net/http reads the environment once, and never for loopback
	for refused, target := range map[bool]string{false: "http://192.0.2.9/image", true: "http://169.254.169.254/latest/meta-data"} {
		asked = ""
		resp, err := c.Get(target)
		if err == nil {
			_ = resp.Body.Close()
		}
		if refused && (!problem.Is(err, problem.Forbidden) || asked != "") || !refused && (err != nil || asked != target) {
			t.Errorf("%s: %v; the proxy was asked for %q", target, err, asked)
		}
	}
}
