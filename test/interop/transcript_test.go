//go:build e2e

package interop

import (
	"context"
	_ "embed"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"salvor/test/must"
	"salvor/test/program"
)

var update = flag.Bool("update", false, "write what the commands say to transcript.txt")

//go:embed transcript.py
var transcriber string

// readTranscript reads the file anew: -update may just have written it.
func readTranscript(t *testing.T) string {
	t.Helper()
	text := must.Get(os.ReadFile("transcript.txt"))(t)
	return string(text)
}

// TestTranscript gives every command that Debian's clients have for bare metal to a real
// server, once as "openstack baremetal ..." and once as "baremetal ...", and compares what they say.
func TestTranscript(t *testing.T) {
	if *update {
		must.OK(t, os.WriteFile("transcript.txt", []byte(transcribe(t, readTranscript(t), "baremetal", true)), 0o644))
		return
	}
	transcript := readTranscript(t)
	var both sync.WaitGroup
	for _, command := range []string{"openstack", "baremetal"} {
		both.Go(func() {
			if d := cmp.Diff(strings.Split(transcript, "\n"), strings.Split(transcribe(t, transcript, command, false), "\n")); d != "" {
				t.Errorf("%s differs from transcript.txt (go test -tags e2e ./test/interop -run Transcript -update):\n%s", command, d)
			}
		})
	}
	both.Wait()
}

// TestTranscriptIsWhole proves that no command is left out.
func TestTranscriptIsWhole(t *testing.T) {
	list := `import importlib.metadata as m; print("\n".join(e.name for e in m.entry_points(group="openstack.baremetal.v1")))`
	out, err := exec.CommandContext(t.Context(), python, "-c", list).Output()
	if err != nil || len(out) < 1000 {
		t.Fatalf("the commands of python3-ironicclient: %v %s", err, out)
	}
	lines := strings.Split(readTranscript(t), "\n")
	for _, name := range strings.Fields(string(out)) {
		words := strings.ReplaceAll(strings.TrimPrefix(name, "baremetal_"), "_", " ")
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "$ "+words+" ") || strings.HasPrefix(l, "~ "+words+" ") || l == "$ "+words
		}) {
			t.Errorf("no line of transcript.txt uses the command %q", words)
		}
	}
}

// transcribe runs the transcript against a server of its own. Secrets must be in neither's words.
func transcribe(t *testing.T, transcript, command string, again bool) string {
	s := program.Serve(t, "[DEFAULT]\nhost = tower\n[conductor]\nsync_power_state_interval = 0\nautomated_clean = false\n")
	dir := t.TempDir()
	script, text := filepath.Join(dir, "transcript.py"), filepath.Join(dir, "transcript.txt")
	for name, body := range map[string]string{script: transcriber, text: transcript} {
		if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, script, command, s.URL, text)
	cmd.Env = append(os.Environ(), "HOME="+dir, "no_proxy=*", "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1", "COLUMNS=200", "LANG=C.UTF-8")
	if again {
		cmd.Env = append(cmd.Env, "TRANSCRIPT_WRITE=1")
	}
	var errs program.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, errs.String())
	}
	if log := s.Log(); strings.Contains(log, rescuePassword) || strings.Contains(log, "hush") {
		t.Error("a password is in the server's log")
	}
	return string(out)
}
