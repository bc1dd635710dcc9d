package access

import "testing"

// TestSeesQuotations: text of BMCs is read by principals who see all projects, readers of the whole system among them, and by nobody of one project.
func TestSeesQuotations(t *testing.T) {
	project := func(roles ...string) Principal {
		return Principal{Role: Scoped, Scope: Scope{Project: "p", Bound: true, Roles: roles}}
	}
	system := func(roles ...string) Principal {
		return Principal{Role: Scoped, Scope: Scope{System: true, Roles: roles}}
	}
	for name, c := range map[string]struct {
		who  Principal
		want bool
	}{
		"administrator": {Principal{Role: Admin}, true}, "reader": {Principal{Role: Reader}, true}, "system admin": {system("admin"), true}, "system reader": {system("reader"), true},
		"system without a role": {system(), false}, "admin of a project": {project("admin"), false}, "member": {project("member"), false}, "reader of a project": {project("reader"), false},
	} {
		if got := c.who.SeesQuotations(); got != c.want {
			t.Errorf("%s: want SeesQuotations %v, got %v", name, c.want, got)
		}
	}
}
