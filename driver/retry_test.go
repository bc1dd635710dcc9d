package driver

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

// TestWhatIsNotRetried: what cannot heal by waiting is not tried for minutes: refused TLS once, an unknown name three times. A name server
// that fails, and a port where nothing listens, may come back.
func TestWhatIsNotRetried(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	wrapped := func(address string) error {
		base := must.Get(url.Parse(address))(t)
		client, release := HTTPConfig{Base: base, Locks: &AddressLocks{}}.Client()
		defer release()
		resp, err := client.Get(address)
		if err == nil {
			resp.Body.Close()
			t.Fatalf("%s answers", address)
		}
		return Trouble(err)
	}
	dns := func(missing bool) error {
		return Trouble(&url.Error{Op: "Get", URL: "http://h/", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "x", Name: "bmc.example", IsNotFound: missing, IsTemporary: !missing}}})
	}
	for name, c := range map[string]struct {
		err   error
		kind  problem.Kind
		tries int
		words string
	}{
		"no TLS there":      {wrapped(strings.Replace(plain.URL, "http:", "https:", 1)), problem.Invalid, 0, "does not speak TLS"},
		"unknown name":      {dns(true), problem.Unavailable, 3, "nobody knows the name bmc.example"},
		"name server fails": {dns(false), problem.Unavailable, 0, "bmc.example"},
		"refused port":      {wrapped("https://127.0.0.1:1"), problem.Unavailable, 0, "nothing listens"},
	} {
		t.Run(name, func(t *testing.T) {
			if !problem.Is(c.err, c.kind) || problem.MostTries(c.err) != c.tries || !strings.Contains(c.err.Error(), c.words) {
				t.Errorf("%v: %s, tries %d; want %s, %d, %q", c.err, problem.KindOf(c.err), problem.MostTries(c.err), c.kind, c.tries, c.words)
			}
		})
	}
}
