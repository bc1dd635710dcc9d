package access_test

import (
	"testing"

	"salvor/access"
)

// TestSeesFleet: administrators and readers do, whose token holds them to a project does not.
func TestSeesFleet(t *testing.T) {
	for want, all := range map[bool][]access.Principal{
		true: {{Role: access.Admin}, {Role: access.Reader}, {Role: access.Scoped, Scope: access.Scope{System: true, Roles: []string{"reader"}}}},
		false: {{}, {Role: access.Scoped, Scope: access.Scope{Project: "p", Roles: []string{"admin", "manager", "member", "reader"}, Bound: true}},
			{Role: access.Scoped, Scope: access.Scope{Roles: []string{"member", "reader"}}}},
	} {
		for _, principal := range all {
			if got := (access.Policy{}).SeesFleet(principal); got != want {
				t.Errorf("%+v: %v", principal, got)
			}
		}
	}
}
