package serve

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestOTLPIsLinkedByTag: only a program built with the tag otlp has the modules of OTLP.
func TestOTLPIsLinkedByTag(t *testing.T) {
	otlp := []string{"go.opentelemetry.io/otel/exporters/", "go.opentelemetry.io/proto/otlp/", "google.golang.org/grpc", "github.com/grpc-ecosystem/"}
	for tags, want := range map[string]bool{"": false, "otlp": true} {
		out, err := exec.Command("go", "list", "-deps", "-tags", tags, ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		packages := strings.Fields(string(out))
		for _, prefix := range otlp {
			if got := slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(p, prefix) }); got != want {
				t.Errorf("tags %q: packages of %s are linked: %t, want %t", tags, prefix, got, want)
			}
		}
	}
}
