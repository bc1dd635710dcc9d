package ironic

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"salvor/access"
	"salvor/test/must"
)

// TestEveryRouteHasARule proves that no route is left to administrators alone by mistake, and
// that a permit names no rule that does not exist.
func TestEveryRouteHasARule(t *testing.T) {
	for _, r := range (&server{}).table() {
		p, rule := permitOf(r.method, r.path)
		if r.need == access.Open {
			continue
		}
		if !access.Known(rule) {
			t.Errorf("%s %s: rule %q", r.method, r.path, rule)
			continue
		}
		if p.of == nil && strings.HasPrefix(r.path, "/v1/nodes/{") {
			t.Errorf("%s %s is held against nobody's node", r.method, r.path)
		}
	}
	for _, p := range permits {
		for _, rule := range []string{p.get, p.post, p.put, p.patch, p.drop, p.see, p.list} {
			if rule != "" && !access.Known(rule) {
				t.Errorf("%s names the rule %q", p.path, rule)
			}
		}
	}
	for name, rule := range nodePatchRules {
		if !access.Known(rule) {
			t.Errorf("%s is changed by the rule %q", name, rule)
		}
	}
}

// TestEveryKindIsServed: the list of kinds names each kind that is defined.
func TestEveryKindIsServed(t *testing.T) {
	files := must.Get(filepath.Glob("*.go"))(t)
	defined := 0
	for _, file := range files {
		source := must.Get(os.ReadFile(file))(t)
		if !strings.HasSuffix(file, "_test.go") {
			defined += len(regexp.MustCompile(`(?m)^var \w+ = defineKind\(`).FindAll(source, -1))
		}
	}
	if served := len((&server{}).kinds()); served != defined {
		t.Errorf("%d kinds are defined, and server.kinds lists %d", defined, served)
	}
}
