package ironic

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"salvor/access"
	"salvor/api"
)

type nobody struct{}

func (nobody) Authenticate(*http.Request) (access.Principal, error) {
	return access.Principal{}, &api.Error{Status: http.StatusUnauthorized, Text: "Authorization required."}
}

type reader struct{}

func (reader) Authenticate(*http.Request) (access.Principal, error) {
	return access.Principal{User: "ron", Role: access.Reader}, nil
}

// TestOpenDoors proves of every route that it is shut to those without a credential,
// except for the few that machines need which have none, and that readers change nothing.
func TestOpenDoors(t *testing.T) {
	open := map[string]bool{"GET /": true, "GET /v1": true, "GET /v1/lookup": true, "POST /v1/heartbeat/{node}": true, "POST /v1/continue_inspection": true}
	for _, r := range (&server{}).table() {
		if r.old {
			continue
		}
		method := strings.ReplaceAll(r.method, "*", "POST")
		ask := func(auth api.Authenticator) int {
			req := httptest.NewRequest(method, strings.NewReplacer("{", "", "}", "").Replace(r.path), nil)
			req.Header.Set("X-OpenStack-Ironic-API-Version", "latest")
			rec := httptest.NewRecorder()
			New(Config{Auth: auth}).ServeHTTP(rec, req)
			return rec.Code
		}
		name := r.method + " " + r.path
		if open[name] {
			if r.need != access.Open {
				t.Errorf("%s is not open", name)
			}
			continue
		}
		if status := ask(nobody{}); status != 401 {
			t.Errorf("%s without a credential: %d", name, status)
		}
		if method != http.MethodGet {
			if status := ask(reader{}); status != 403 {
				t.Errorf("%s as a reader: %d", name, status)
			}
		}
	}
}
