package serve

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"salvor/test/must"
)

// TestOTLPIsLinkedByTag: only a program built with the tag otlp has the modules of OTLP.
func TestOTLPIsLinkedByTag(t *testing.T) {
	otlp := []string{"go.opentelemetry.io/otel/exporters/", "go.opentelemetry.io/proto/otlp/", "google.golang.org/grpc", "github.com/grpc-ecosystem/"}
	for tags, want := range map[string]bool{"": false, "otlp": true} {
		out := must.Get(exec.Command("go", "list", "-deps", "-tags", tags, ".").Output())(t)
		packages := strings.Fields(string(out))
		for _, prefix := range otlp {
			if got := slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(p, prefix) }); got != want {
				t.Errorf("tags %q: packages of %s are linked: %t, want %t", tags, prefix, got, want)
			}
		}
	}
}
