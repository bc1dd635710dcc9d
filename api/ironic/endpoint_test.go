package ironic

import (
	"net/http"
	"strings"
	"testing"

	"salvor/access"
	"salvor/api"
	"salvor/test/fixture"
)

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
			path := strings.NewReplacer("{", "", "}", "").Replace(r.path)
			return fixture.Ask(New(Config{Auth: auth}), method, path, nil, "X-OpenStack-Ironic-API-Version", "latest").Status
		}
		name := r.method + " " + r.path
		if open[name] {
			if r.need != access.Open {
				t.Errorf("%s is not open", name)
			}
			continue
		}
		if status := ask(fixture.Nobody()); status != 401 {
			t.Errorf("%s without a credential: %d", name, status)
		}
		if method != http.MethodGet {
			if status := ask(fixture.FixedAuth{Principal: access.Principal{User: "ron", Role: access.Reader}}); status != 403 {
				t.Errorf("%s as a reader: %d", name, status)
			}
		}
	}
}
