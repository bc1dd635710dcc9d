package program

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// CLI is salvor's command line for somebody who asks a server. Without a URL it is for commands that ask none.
type CLI struct{ URL, Token string }

// Run gives what a command printed, which must succeed.
func (c CLI) Run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.Try(t, args...)
	if err != nil {
		t.Fatalf("salvor %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// Try is Run for commands that may fail: the error holds what they complained of.
func (c CLI) Try(t testing.TB, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Path(t, "salvor"), args...)
	cmd.Env = append(os.Environ(), "SALVOR_TOKEN="+c.Token)
	if c.URL != "" {
		cmd.Env = append(cmd.Env, "SALVOR_URL="+c.URL)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &said)
	}
	return strings.TrimSpace(string(out)), err
}
