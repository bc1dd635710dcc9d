package fleet

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"salvor/lab/try"
	"salvor/test/must"
	"salvor/test/program"
)

// TestTry: a person who knows nothing sees machines, servers and a diagnosis with a cause; each printed command does what its comment says; and the end
// leaves no file behind.
func TestTry(t *testing.T) {
	salvor := program.Path(t, "salvor")
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var shown program.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- try.Run(ctx, try.Config{Program: salvor, Address: "127.0.0.1:0", Machines: 20, Out: &shown})
	}()
	program.Until(t, "the trial says what to type", 2*time.Minute, func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("it ended before: %v; it said\n%s", err, shown.String())
		default:
		}
		if !strings.Contains(shown.String(), "Ctrl-C") {
			return os.ErrNotExist
		}
		return nil
	})
	url := regexp.MustCompile(`export SALVOR_URL=(\S+)`).FindStringSubmatch(shown.String())
	if url == nil {
		t.Fatalf("no address is named:\n%s", shown.String())
	}
	cli := program.CLI{URL: url[1]}
	wants := map[string]string{"node list": "sim-1-000019", "diagnosis show": "the cause is found: fstab-device-missing", "node rescue": `"provision_state": "rescue"`}
	for _, m := range regexp.MustCompile(`(?m)^  `+regexp.QuoteMeta(salvor)+` (.*?) +# `).FindAllStringSubmatch(shown.String(), -1) {
		words := strings.Fields(m[1])
		key := strings.Join(words[:2], " ")
		out, err := cli.Try(t, words...)
		if key == "node rescue" && err == nil {
			out = cli.Run(t, "node", "show", words[2], "-f", "json")
		}
		if err != nil || wants[key] == "" || !strings.Contains(out, wants[key]) {
			t.Errorf("salvor %s: %v, %.600s; want %q", m[1], err, out, wants[key])
		}
		delete(wants, key)
	}
	if len(wants) > 0 {
		t.Errorf("it names no command for %v:\n%s", wants, shown.String())
	}
	if got := cli.Run(t, "server", "list", "-f", "value", "-c", "Name"); strings.Count(got, "\n")+1 < 4 {
		t.Errorf("the servers are %q, want 4", got)
	}
	end()
	must.OK(t, <-ended)
	if left := must.Get(os.ReadDir(dir))(t); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
}
