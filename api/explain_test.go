package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"salvor/access"
	"salvor/problem"
)

// TestAPartThatWasDoneIsNotRepeated: a request whose first transaction was committed is not told to be asked again.
func TestAPartThatWasDoneIsNotRepeated(t *testing.T) {
	away := problem.Unavailablef("database: %w", problem.Hide("it does not answer", errors.New("dial db1: refused")))
	for _, changed := range []bool{false, true} {
		r, info := withRequest(t.Context(), httptest.NewRequest(http.MethodPut, "/", nil))
		r = RequestedBy(r, access.Principal{User: "ann"})
		if who, ok := access.RequesterOf(r.Context()); !ok || who.Changed == nil {
			t.Fatal("the store cannot tell of a change")
		} else {
			who.Changed.Store(changed)
		}
		w := httptest.NewRecorder()
		status, message := Explain(w, r, away)
		want := http.StatusServiceUnavailable
		if changed {
			want = http.StatusGatewayTimeout
		}
		if again := w.Header().Get("Retry-After"); status != want || again == "" != changed {
			t.Errorf("changed %v: %d %q, Retry-After %q (%s)", changed, status, message, again, info.ID)
		}
	}
}
