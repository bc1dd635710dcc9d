package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/test/must"
	"salvor/version"
)

func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	line := filepath.Join(dir, "cmdline")
	must.OK(t, os.WriteFile(line, []byte("quiet\n"), 0o600))
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"version"}, 0, "salvor-agent " + version.Release},
		{[]string{"-h"}, 0, "--cmdline"},
		{[]string{"dance"}, 2, "--cmdline"},
		{[]string{"run", "more"}, 2, "--cmdline"},
		{[]string{"network", "--cmdline", line}, 2, "cmdline"},
		{[]string{"--cmdline", line, "--root", dir}, 1, "ipa-api-url is missing"},
		{[]string{"--cmdline", filepath.Join(dir, "none"), "--root", dir}, 1, "no such file"},
		{[]string{"run", "--cmdline", line}, 1, "refused"},
		{[]string{"network"}, 1, "refused"},
		{[]string{"examine"}, 1, "refused"},
		{[]string{"network", "--root", dir}, 1, "refused"},
	} {
		var out strings.Builder
		if code := run(context.Background(), c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.text) {
			t.Errorf("%q: status %d, want %d: %s", c.args, code, c.code, out.String())
		}
	}
}
