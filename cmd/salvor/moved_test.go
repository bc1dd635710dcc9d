package main

import (
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
)

// TestLabIsMissing: the former name of a command of salvor-lab says where that program is had, and help does not show the name.
func TestLabIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, errs, status := salvor(t, &fakeAPI{}, "", "lab", "up", "--machines", "2")
	if status != kit.StatusFailed || !strings.Contains(errs, `"salvor lab" is "salvor-lab lab" now`) || !strings.Contains(errs, "install the package salvor-lab") {
		t.Errorf("salvor lab up: status %d, %s", status, errs)
	}
	out, _, _ := salvor(t, &fakeAPI{}, "", "--help")
	if strings.Contains(out, "\n  lab") || strings.Contains(out, "\n  sim") {
		t.Errorf("help shows the former names:\n%s", out)
	}
}
