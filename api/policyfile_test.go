package api

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/access"
	"salvor/problem"
	"salvor/test/must"
)

// TestPolicyFileIsReadAgain: a file that was exchanged holds at once; one that is broken, half written or gone changes nothing, and is
// told of once.
func TestPolicyFileIsReadAgain(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), "policy.yaml"), &bytes.Buffer{}
	write := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(path+".new", []byte(text), 0o600))
		must.OK(t, os.Rename(path+".new", path))
	}
	known := func(name string) bool { return name == "volume:get" }
	logger := slog.New(slog.NewTextHandler(log, nil))
	if _, err := NewPolicyFile(path, known, logger); !problem.Is(err, problem.Invalid) {
		t.Errorf("no file: %v", err)
	}
	write(`"volume:get": "!"` + "\n" + `"volume:fly": "!"`)
	f, err := NewPolicyFile(path, known, logger)
	if err != nil || strings.Count(log.String(), "it does nothing") != 1 || !strings.Contains(log.String(), "volume:fly") {
		t.Fatalf("%v: %s", err, log)
	}
	var changed []string
	f.Changed = func(_ context.Context, rules []string) error {
		changed = append(changed, strings.Join(rules, " "))
		return nil
	}
	defer func() {
		if len(changed) == 0 || changed[0] != "volume:fly volume:get" {
			t.Errorf("the changes were told as %q, want first the rules that were changed", changed)
		}
	}()
	who := access.Principal{Role: access.Scoped, Scope: access.Scope{Project: "p", Roles: []string{"member"}}}
	allowed := func(want bool, when string) {
		t.Helper()
		for range 3 {
			f.refresh(t.Context())
		}
		if got, decided := (access.Policy{Rules: f.Rules()}).Overruled("volume:get", who, access.Target{}); got != want || !decided {
			t.Errorf("%s: %v %v, want %v", when, got, decided, want)
		}
	}
	allowed(false, "at first")
	write(`"volume:get": "@"`)
	allowed(true, "exchanged")
	for _, text := range []string{`"volume:get": "role`, "", "# " + strings.Repeat("x", policyMaxBytes)} {
		log.Reset()
		write(text)
		allowed(true, "broken")
		if strings.Count(log.String(), "the rules of before stay") != 1 {
			t.Errorf("%.20q: %s", text, log)
		}
	}
	must.OK(t, os.Remove(path))
	allowed(true, "gone")
	write(`"volume:get": "!"`)
	allowed(false, "back")
}
