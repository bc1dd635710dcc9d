package fetch

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/problem"
	"salvor/test/must"
)

// TestFormerAnswers: one that has become too old counts for nothing, even where no new one comes.
func TestFormerAnswers(t *testing.T) {
	refused := problem.Invalidf("the server answers 401 Unauthorized")
	for _, c := range []struct {
		name string
		age  time.Duration
		err  error
		want bool
	}{
		{"a young refusal", missingTTL - 1, refused, true},
		{"an old refusal", missingTTL, refused, false},
		{"a young success", foundTTL - 1, nil, true},
		{"an old success", foundTTL, nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := busyProber()
			p.byURL["http://192.0.2.1/"] = &probe{err: c.err, at: time.Now().Add(-c.age)}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			err := p.Ask(ctx, "http://192.0.2.1/")
			if atOnce := time.Since(began) == 0; atOnce != c.want || (err != nil) != (c.want && c.err != nil) {
				t.Errorf("%s: %v, at once: %v", c.name, err, atOnce)
			}
			time.Sleep(2 * probeTime) // the question has ended
		})
	}
}

// busyProber is a prober all of whose slots are taken.
func busyProber() *Prober {
	p := NewProber(Guard{}, time.Now)
	for range maxProbes {
		p.slots <- struct{}{}
	}
	return p
}

// TestAQuestionWaitsForItsTurn, and not for ever.
func TestAQuestionWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := busyProber()
		began := time.Now()
		if err := p.Ask(t.Context(), "http://192.0.2.1/"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != probeTime {
			t.Errorf("it waited %s", took)
		}
		if e := p.byURL["http://192.0.2.1/"]; e.done != nil || !e.at.IsZero() {
			t.Errorf("%+v is remembered", e)
		}
	})
}

// TestWhatCountsForAll: which answers refuse for a fetcher elsewhere too, and whether a proxy of ours may have given them.
func TestWhatCountsForAll(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		to := func(where string) {
			w.Header().Set("Location", where)
			w.WriteHeader(http.StatusFound)
		}
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/closed":
			w.WriteHeader(http.StatusUnauthorized)
		case "/forbidden":
			w.WriteHeader(http.StatusForbidden)
		case "/file":
			to("file:///etc/shadow")
		case "/round":
			to("/round")
		case "/user":
			to("http://ann:canary@" + r.Host + "/")
		case "/metadata":
			to("http://169.254.169.254/")
		default:
			to(r.URL.Path + "x") // a long way
		}
	}))
	defer s.Close()
	proxy := must.Get(url.Parse(s.URL))(t)
	for path, counts := range map[string]error{
		"/missing": ErrMissing, "/gone": ErrMissing, "/file": ErrRedirect, "/round": ErrRedirect,
		"/closed": nil, "/forbidden": nil, "/user": nil, "/metadata": nil, "/long": nil,
	} {
		for _, by := range []*url.URL{nil, proxy} {
			p := NewProber(Guard{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}, time.Now)
			p.client.Transport.(guarded).inner.Proxy = http.ProxyURL(by)
			err := p.Ask(t.Context(), s.URL+path)
			p.client.CloseIdleConnections()
			if err == nil || !problem.Is(err, problem.Invalid) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v", path, err)
			}
			for _, one := range []error{ErrMissing, ErrRedirect} {
				if got := errors.Is(err, one); got != (one == counts && by == nil) {
					t.Errorf("%s, proxy %v: %v is %v: %v", path, by, err, one, got)
				}
			}
		}
	}
	asked.Store(0)
	withUser := strings.Replace(s.URL, "://", "://ann:canary@", 1) + "/missing"
	if err := NewProber(Loopback, time.Now).Ask(t.Context(), withUser); err != nil || asked.Load() != 0 {
		t.Errorf("a URL with a user: %v, asked %d times", err, asked.Load())
	}
}
