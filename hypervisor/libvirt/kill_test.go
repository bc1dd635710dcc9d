package libvirt

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/test/fixture"
	"salvor/test/must"
)

// asQEMU starts a program that does nothing under QEMU's name, with the arguments that libvirt gives.
func asQEMU(t *testing.T, program, id, name string) *exec.Cmd {
	t.Helper()
	// A shell takes what follows its script as that one's own arguments.
	cmd := exec.Command(program, "-c", "read x", "sh", "-name", "guest="+name+",debug-threads=on", "-uuid", id)
	in := must.Get(cmd.StdinPipe())(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func copyProgram(t *testing.T, from, to string) string {
	t.Helper()
	b := must.Get(os.ReadFile(from))(t)
	must.OK(t, os.WriteFile(to, b, 0o755))
	return to
}

// TestKillEndsOursAlone: without libvirt, processes that its notes or our memory prove to be ours are ended, and no other.
func TestKillEndsOursAlone(t *testing.T) {
	dir := t.TempDir()
	qemu := copyProgram(t, "/bin/sh", filepath.Join(dir, "qemu-system-test"))
	shell := copyProgram(t, "/bin/sh", filepath.Join(dir, "another"))
	h := must.Get(New(Options{URI: filepath.Join(dir, "no-socket"), Status: dir}))(t)
	note := func(name, id string, pid int, marked bool) {
		metadata := ""
		if marked {
			metadata = fmt.Sprintf(`<metadata><salvor:server xmlns:salvor=%q id=%q epoch="3"/></metadata>`, namespace, id)
		}
		text := fmt.Sprintf("<domstatus state='running' reason='booted' pid='%d'>\n<monitor path='x'/><domain type='qemu' id='1'><name>%s</name><uuid>%s</uuid>%s</domain></domstatus>", pid, name, id, metadata)
		must.OK(t, os.WriteFile(filepath.Join(dir, name+".xml"), []byte(text), 0o600))
	}
	ids := map[string]string{}
	start := func(what, program string) *exec.Cmd {
		ids[what] = uuid.NewString()
		return asQEMU(t, program, ids[what], what)
	}
	marked, known := start("marked", qemu), start("known", qemu)
	foreign, restarted, lookalike := start("foreign", qemu), start("restarted", qemu), start("lookalike", shell)
	note("marked", ids["marked"], marked.Process.Pid, true)
	note("foreign", ids["foreign"], foreign.Process.Pid, false)
	note("restarted", ids["restarted"], 1, true) // a note of another process
	note("lookalike", ids["lookalike"], lookalike.Process.Pid, true)
	gone := make(chan string, 2)
	for what, cmd := range map[string]*exec.Cmd{"marked": marked, "known": known} {
		go func() { _ = cmd.Wait(); gone <- what }()
	}
	// A process shows its own name only once it runs its own program.
	fixture.Poll(t, "the processes are found", func() bool {
		left, err := h.processes([]string{ids["known"]})
		return err == nil && len(left) == 2
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must.OK(t, h.Kill(ctx, []string{ids["known"]}))
	for range 2 {
		<-gone
	}
	for what, cmd := range map[string]*exec.Cmd{"foreign": foreign, "restarted": restarted, "lookalike": lookalike} {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)); err != nil || strings.Contains(string(stat), ") Z") {
			t.Errorf("%s was ended: %s", what, stat)
		}
	}
	if err := h.Kill(ctx, []string{ids["known"]}); err != nil {
		t.Errorf("again: %v", err)
	}
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte(`<domstatus pid="7"><domain><uuid>x</uuid></domain></domstatus>`))
	f.Add([]byte("qemu\x00-name\x00guest=a,,b,x=y\x00-uuid\x00f1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, _ := parseStatus(b); m.ID != "" && uuid.Validate(m.ID) != nil {
			t.Fatalf("%+v", m)
		}
		if id, _ := guestOf(b); id != "" && uuid.Validate(id) != nil {
			t.Fatalf("%q", id)
		}
	})
}
