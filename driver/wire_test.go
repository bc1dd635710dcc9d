package driver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

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

// TestPauseOfTheContext: Pause and PollUntil wait by the function of WithPause.
func TestPauseOfTheContext(t *testing.T) {
	var waited []time.Duration
	over := errors.New("over")
	ctx := WithPause(t.Context(), func(_ context.Context, d time.Duration) error {
		if waited = append(waited, d); len(waited) == 4 {
			return over
		}
		return nil
	})
	if err := Pause(ctx, time.Hour); err != nil {
		t.Errorf("a pause of an hour: want none, got %v", err)
	}
	done, err := PollUntil(ctx, func(context.Context) (bool, error) { return false, nil })
	if want := []time.Duration{time.Hour, proveFirst, 2 * proveFirst, 4 * proveFirst}; done || err != nil || !slices.Equal(waited, want) {
		t.Errorf("PollUntil gives %t, %v after the pauses %v; want false, no error, after %v", done, err, waited, want)
	}
}
