package client

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"salvor/test/must"
)

// TestWarnings: remarks of the server on a change are passed on, a bounded number of them, and headers in another form are not.
func TestWarnings(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]string{`299 salvor "again"`}, 2*maxWarnings)
	for _, c := range []struct{ headers, want []string }{
		{nil, nil},
		{[]string{`299 salvor "driver_info has \"x\""`, `299 other "y"`, `110 - "stale"`, `299 salvor unquoted`}, []string{`driver_info has "x"`}},
		{many, slices.Repeat([]string{"again"}, maxWarnings)},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Warning"] = c.headers
			_, _ = w.Write([]byte("{}"))
		}))
		var got []string
		api := must.Get(New(Config{Endpoint: server.URL, Version: 82, Warned: func(text string) { got = append(got, text) }}))(t)
		_, err := api.PatchNode(t.Context(), "n", nil, false)
		server.Close()
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("headers %s: passed on %q, error %v; want %q", strings.Join(c.headers, ", "), got, err, c.want)
		}
	}
}
