package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDeps keeps the ramdisk small: every package outside of the standard library
// that the agent draws in is in deps.txt, so that a new one is seen in review.
func TestDeps(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	committed, err := os.ReadFile("deps.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != string(committed) {
		t.Errorf("the closure of salvor-agent has changed; if that is meant, write to deps.txt:\n%s", strings.TrimSpace(string(out)))
	}
}
