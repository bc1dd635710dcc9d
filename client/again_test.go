package client

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"salvor/problem"
)

// TestRefusedChangesAreAskedAgain: a change that a busy server refuses with a time is asked again after it, within the bound and
// where the caller allows it; nothing else is.
func TestRefusedChangesAreAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		method, after string
		bound         time.Duration
		asked         int
		accepted      bool
	}{
		"allowed":            {"PUT", "1", time.Minute, 2, true},
		"at once":            {"POST", "0", time.Minute, 2, true},
		"not allowed":        {"PUT", "1", 0, 1, false},
		"a read":             {"GET", "1", time.Minute, 1, false},
		"beyond the bound":   {"PUT", "61", time.Minute, 1, false},
		"no time":            {"PUT", "", time.Minute, 1, false},
		"a date":             {"PUT", "Mon, 23 Nov 2026 02:00:00 GMT", time.Minute, 1, false},
		"more than any time": {"PUT", "99999999999999999", time.Minute, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, told := 0, 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked++; asked > 1 {
					w.WriteHeader(http.StatusAccepted)
					return
				}
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			defer server.Close()
			api, err := New(Config{Endpoint: server.URL, AskAgainFor: c.bound, AskingAgain: func(r Request, after time.Duration, why error) {
				if told++; after != time.Second || !problem.Is(why, problem.Unavailable) || r.Method != c.method {
					t.Errorf("told %s, %s, %v", r, after, why)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = api.Do(t.Context(), Request{Method: c.method, Path: "/v1/nodes/n/states/provision"}, nil)
			if asked != c.asked || told != c.asked-1 || (err == nil) != c.accepted {
				t.Errorf("asked %d times, told %d times: %v; want %d", asked, told, err, c.asked)
			}
			if took := time.Since(began); c.asked == 2 && took < time.Second {
				t.Errorf("asked again after %s", took)
			}
		})
	}
}
