//go:build e2e

package gettingstarted

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/lab"
	"salvor/test/machine"
	"salvor/test/must"
	"salvor/test/program"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) { machine.Main(m) }

// longest bounds a command of the page. To build the ramdisk takes a minute, and longer where its packages are downloaded slowly.
const longest = 5 * time.Minute

// walk is a reader of the page: a directory, a shell inside the lab, and a second terminal in which salvor serve runs.
type walk struct {
	*machine.World
	dir      string
	replaced *strings.Replacer
}

// TestGettingStarted types the commands of the page in their order. Each must succeed and print what the page shows.
func TestGettingStarted(t *testing.T) {
	w := newWalk(t)
	for _, s := range readSteps(t) {
		began := time.Now()
		if _, left := notRun[s.command]; left {
			continue
		}
		for i := range s.shows {
			s.shows[i] = w.replaced.Replace(s.shows[i])
		}
		command := w.replaced.Replace(s.command)
		switch {
		case strings.HasPrefix(command, "salvor serve"):
			w.serve(s, command)
		case strings.HasPrefix(command, "salvor ramdisk build") && os.Getenv("SALVOR_RAMDISK") != "":
			w.takeRamdisk(command)
		case strings.HasPrefix(command, "sshpass "):
			w.await(s, command) // its ssh server starts some seconds after the state has become rescue
		default:
			printed, err := w.run(command)
			if err == nil {
				err = compare(s.shows, printed)
			}
			if err != nil {
				t.Fatalf("line %d: $ %s\n%s\n%v", s.line, command, printed, err)
			}
		}
		t.Logf("line %d, %.1f s: $ %s", s.line, time.Since(began).Seconds(), command)
	}
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	w := &walk{World: machine.Up(t, lab.Spec{Name: "started", Firmware: lab.BIOS, Memory: 1024}), dir: t.TempDir()}
	var pairs []string
	for _, s := range substitutions {
		pairs = append(pairs, s.page, s.lab(w.Machine))
	}
	w.replaced = strings.NewReplacer(pairs...)
	t.Setenv("PATH", filepath.Dir(program.Path(t, "salvor"))+":"+os.Getenv("PATH"))
	return w
}

// run types a command, and returns what a terminal shows of it.
func (w *walk) run(command string) (string, error) {
	ctx, cancel := context.WithTimeout(w.Context(), longest)
	defer cancel()
	out, err := w.command(ctx, command).CombinedOutput()
	return string(out), err
}

// await types a command until it succeeds and prints what the page shows.
func (w *walk) await(s step, command string) {
	w.Helper()
	var printed string
	err := program.Await(longest, func() (err error) {
		if printed, err = w.run(command); err != nil {
			return err
		}
		return compare(s.shows, printed)
	})
	if err != nil {
		w.Fatalf("line %d: $ %s\n%s\n%v", s.line, command, printed, err)
	}
}

// serve runs salvor serve until the end of the test, and waits until it has printed what the page shows.
func (w *walk) serve(s step, command string) {
	w.Helper()
	var out program.Buffer
	ctx, stop := context.WithCancel(context.Background())
	cmd := w.command(ctx, "exec "+command)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		stop()
		w.Fatal(err)
	}
	w.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if w.Failed() {
			log := out.String()
			w.Logf("salvor serve:\n%s", log[max(0, len(log)-10_000):])
		}
	})
	if err := program.Await(longest, func() error { return compare(s.shows, out.String()) }); err != nil {
		w.Fatalf("line %d: $ %s\n%v", s.line, command, err)
	}
}

// takeRamdisk puts the ramdisk of $SALVOR_RAMDISK where the command would build one.
func (w *walk) takeRamdisk(command string) {
	w.Helper()
	words := strings.Fields(command)
	out := filepath.Join(w.dir, words[len(words)-1])
	must.OK(w, os.MkdirAll(filepath.Dir(out), 0o755))
	must.OK(w, os.CopyFS(out, os.DirFS(os.Getenv("SALVOR_RAMDISK"))))
}

// command is a shell of the walk inside of the lab.
func (w *walk) command(ctx context.Context, line string) *exec.Cmd {
	cmd := w.Lab.Command(ctx, "bash", "-c", line)
	cmd.Dir = w.dir
	return cmd
}
