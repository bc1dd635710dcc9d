package ironic_test

import (
	"strings"
	"testing"

	"salvor/access"
	"salvor/api/ironic"
	"salvor/test/fixture"
)

// TestHiddenStaysHidden asks one server as those who may see all and as those who may not,
// in every order: what was written for one is shown to no other from whom it is hidden.
func TestHiddenStaysHidden(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	scoped := func(s access.Scope, roles ...string) access.Principal {
		s.Roles = roles
		return access.Principal{User: "u", Role: access.Scoped, Scope: s}
	}
	c := w.config
	c.Policy = access.Policy{EnforceScope: true}
	c.Auth = fixture.TokenAuth{
		"system": scoped(access.Scope{System: true}, "reader"), "lessee": scoped(access.Scope{Project: "p1", ProjectName: "one"}, "reader"),
		"local": {User: "root", Role: access.Admin},
	}
	h := ironic.New(c)
	get := func(who, path string) string {
		return fixture.Ask(h, "GET", path, nil, "X-OpenStack-Ironic-API-Version", "1.115", "X-Auth-Token", who).Body
	}
	for round := range 2 {
		for _, path := range []string{"/v1/nodes/detail", "/v1/nodes/" + leased} {
			for _, who := range []string{"lessee", "system", "lessee", "local", "lessee"} {
				body := get(who, path)
				if !strings.Contains(body, leased) {
					t.Fatalf("%s sees no node: %s", who, body)
				}
				n := strings.Count(body, "bmc.example is away")
				if who == "lessee" && (strings.Contains(body, foreign) || path != "/v1/nodes/detail" && n > 0) {
					t.Errorf("round %d: the lessee sees at %s what is hidden from him: %s", round, path, body)
				}
				if who != "lessee" && n == 0 {
					t.Errorf("round %d: %s is kept from what he may see at %s", round, who, path)
				}
			}
		}
	}
}
