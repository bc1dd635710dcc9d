package driver

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"salvor/test/must"
)

// TestDialOfTheContext: a request reaches the host of its URL by the function of WithDial.
func TestDialOfTheContext(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Seen-Host", r.Host) }))
	defer server.Close()
	client, release := HTTPConfig{Base: must.Get(url.Parse("http://bmc.invalid"))(t), Locks: &AddressLocks{}}.Client()
	defer release()
	get := func(ctx context.Context) (*http.Response, error) {
		return client.Do(must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://bmc.invalid/", nil))(t))
	}
	var asked string
	resp, err := get(WithDial(t.Context(), func(ctx context.Context, network, address string) (net.Conn, error) {
		asked = address
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}))
	if err != nil || asked != "bmc.invalid:80" || resp.Header.Get("Seen-Host") != "bmc.invalid" {
		t.Errorf("%v, dialed %q; want an answer of bmc.invalid:80", err, asked)
	}
}
