package access

import (
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

func ruled(t testing.TB, text string) (Policy, []string) {
	t.Helper()
	p := Policy{EnforceScope: true, Rules: &Rules{}}
	warnings, err := p.Rules.Read(text, func(name string) bool { return name == ComputeRules+"servers:show" })
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p, warnings
}

// TestExpressions asks each for a member of project p1 about what p1 owns, what it leases, and what is foreign.
func TestExpressions(t *testing.T) {
	who := scoped(Scope{Project: "p1", ProjectName: "one", ProjectDomain: "default", Bound: true}, "member", "reader")
	for text, want := range map[string]string{
		`""`: "111", `"@"`: "111", `"!"`: "000", `"not !"`: "111", `"role:member"`: "111", `"role:MEMBER"`: "111", `"role:admin"`: "000",
		`"project_id:%(node.owner)s"`: "100", `"project_id:%(node.lessee)s"`: "010", `"rule:is_node_owner or rule:is_node_lessee"`: "110",
		`"role:admin or (role:reader and project_id:%(project_id)s)"`: "100", `"role:admin and role:reader or project_id:%(node.owner)s"`: "100",
		`"not (role:reader and project_id:%(node.owner)s)"`: "011", `"not role:admin and not project_id:%(node.owner)s"`: "011", `"((role:member))"`: "111",
		`"system_scope:all"`: "000", `"project_name:one"`: "111", `"project_domain_id:default"`: "111", `"user_name:ann"`: "111", `"'p1':%(node.owner)s"`: "100",
		`"domain_id:%(node.lessee)s"`: "000", `"is_admin:True"`: "000", `"is_admin:False"`: "111", `"rule:baremetal:node:get"`: "110", `rule:context_is_admin`: "000",
	} {
		p, _ := ruled(t, `"baremetal:node:validate": `+text+"\n")
		got := ""
		for _, target := range []Target{{Owner: "p1"}, {Owner: "p2", Lessee: "p1"}, {Owner: "p2"}} {
			if p.Allows("node:validate", who, target) {
				got += "1"
			} else {
				got += "0"
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestPolicyFile(t *testing.T) {
	p, warnings := ruled(t, `# a comment
---
"baremetal:node:delete": "rule:retirer"   # who retires machines
retirer: role:retirer and rule:is_node_owner
'os_compute_api:servers:show': '!'
"baremetal:node:fly": "@"
`)
	mine := Scope{Project: "p1", Bound: true}
	if !p.Allows("node:delete", scoped(mine, "retirer"), Target{Owner: "p1"}) || p.Allows("node:delete", scoped(Scope{System: true}, "admin"), Target{Owner: "p1"}) {
		t.Error("the rule of the file does not stand over the default")
	}
	if !p.Allows("node:delete", Principal{Role: Admin}, Target{}) {
		t.Error("who is no user of a policy is held to one")
	}
	if allowed, decided := p.Overruled(ComputeRules+"servers:show", scoped(mine, "admin"), Target{}); allowed || !decided {
		t.Error(allowed, decided)
	}
	if _, decided := p.Overruled(ComputeRules+"servers:index", scoped(mine, "admin"), Target{}); decided {
		t.Error("a rule that the file has not is overruled")
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "baremetal:node:fly") {
		t.Errorf("warnings: %q", warnings)
	}
	if p, _ = ruled(t, `{"baremetal:node:get": "!", "baremetal:node:list": ""}`); p.Allows("node:get", scoped(mine, "member"), Target{Owner: "p1"}) {
		t.Error("JSON is not read")
	}
}

// TestUserNamesOfProjects: who administers a project, and names its tokens, gives no name that a rule means another user by.
func TestUserNamesOfProjects(t *testing.T) {
	p, _ := ruled(t, `{"baremetal:node:get": "user_name:monitoring or user_name:lab/ci"}`)
	for _, tt := range []struct {
		token Token
		want  bool
	}{
		{Token{Name: "monitoring", Role: Reader}, true}, {Token{Name: "monitoring", Role: Admin, Project: "p1", ProjectName: "lab"}, false},
		{Token{Name: "ci", Role: Reader, Project: "p1", ProjectName: "lab"}, true}, {Token{Name: "ci", Role: Reader}, false},
	} {
		if got := p.Allows("node:get", tt.token.Principal(), Target{Owner: "p1"}); got != tt.want {
			t.Errorf("%+v: %v", tt.token, got)
		}
	}
}

// TestCutPolicyFile: a file that is just being written looks as if it had no rules; that takes none away.
func TestCutPolicyFile(t *testing.T) {
	var r Rules
	known := func(string) bool { return true }
	if _, err := r.Read("", known); err != nil {
		t.Errorf("a first one without rules: %v", err)
	}
	must.Get(r.Read(`"baremetal:node:get": "!"`, known))(t)
	for _, text := range []string{"", "\n", "# rules to come\n", "---\n"} {
		if _, err := r.Read(text, known); err == nil || r.of("baremetal:node:get") == nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := r.Read("{}", known); err != nil || r.of("baremetal:node:get") != nil {
		t.Errorf("none, said: %v", err)
	}
}

// TestBrokenPolicyFiles: what is not understood whole changes nothing.
func TestBrokenPolicyFiles(t *testing.T) {
	for text, want := range map[string]string{
		`"a": "role:x and"`: "it ends where", `"a": "role:x role:y"`: "is not expected there", `"a": "(role:x"`: "not closed", `"a": "role"`: "is no check",
		`"a": "rule:b"`: "no rule", `"a": "rule:baremetal:node:fly"`: "no rule", "a: rule:b\nb: rule:a\n": "leads to itself", `"a": "rule:a"`: "leads to itself",
		`"a": "shoe_size:42"`: "nobody who asks has", `"a": "project_id:%(moon)s"`: "no object has", "a:\n  - role:x\n": "is missing", "  a: role:x\n": "not indented",
		"a: !\n": "in quotes", `"a": "x`: "not closed", `"a" "x"`: "colon", `{"a": 1}`: "JSON", `{"a": null}`: "null", `"a": ` + `"` + strings.Repeat("(", 100) + `@"`: "nested",
		"a: null\n": "is no check", "a: ~\n": "is no check", "a: '@'\na: '!'\n": "twice", `"a": "` + strings.Repeat("@ or ", 2000) + `@"`: "longer",
	} {
		p, _ := ruled(t, `"baremetal:node:get": "!"`)
		_, err := p.Rules.Read(text, func(string) bool { return false })
		if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
		if p.Allows("node:get", scoped(system, "admin"), Target{}) {
			t.Errorf("%.80q: the rules of before are gone", text)
		}
	}
}

// FuzzPolicyFile: whatever is read ends, and lets nobody in by a rule that it does not hold.
func FuzzPolicyFile(f *testing.F) {
	for _, seed := range []string{`"baremetal:node:get": "role:x or not rule:y"`, `{"a":"@"}`, "a: rule:b\nb: rule:a", `"a": "((not @))" # x`, "---\n", `'a': 'x:%(node.owner)s'`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := Policy{Rules: &Rules{}}
		_, err := p.Rules.Read(text, func(string) bool { return true })
		if err != nil && !problem.Is(err, problem.Invalid) {
			t.Fatal(err)
		}
		got := p.Allows("node:delete", scoped(Scope{Project: "p9"}, "stranger"), Target{Owner: "p1"})
		if got && (err != nil || !strings.Contains(text, "node:delete") && !strings.Contains(text, `\u`)) {
			t.Fatalf("%q lets a stranger in", text)
		}
	})
}
