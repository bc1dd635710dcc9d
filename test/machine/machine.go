// Package machine is for tests on real machines. It starts a lab of QEMU machines or of VM hosts, runs the control plane inside of the lab,
// and asks both. Only tests import it.
package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/client"
	"salvor/lab"
	"salvor/test/must"
	"salvor/test/program"
)

// Main is the TestMain of such tests: the test program is the lab's own parts too.
func Main(m *testing.M) {
	if status, handled := lab.Hidden(os.Args[1:]); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// Ramdisk is a folder with kernel and ramdisk: $SALVOR_RAMDISK, else built here with these options.
func Ramdisk(t testing.TB, options ...string) string {
	t.Helper()
	if dir := os.Getenv("SALVOR_RAMDISK"); dir != "" {
		return must.Get(filepath.Abs(dir))(t)
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), program.Path(t, "salvor"), append([]string{"ramdisk", "build", "--out", dir}, options...)...).CombinedOutput(); err != nil {
		t.Fatalf("build the ramdisk: %v\n%s", err, out)
	}
	return dir
}

// World is a lab, and the control plane in it. Its T may be set to that of a subtest.
type World struct {
	*testing.T
	Lab     *lab.Lab
	Machine lab.MachineStatus // the first machine; zero in a lab of VM hosts alone
	Dir     string            // the lab's state directory. Its path is short, because paths of sockets below it are
	Server  *program.Server   // nil before Serve
	Env     []string          // variables of each program that Inside runs
	// Timeout bounds each stage; an idle machine takes a tenth of it.
	Timeout time.Duration
}

// Up starts a lab that ends with the test. A test that fails logs what the control plane and the machine wrote.
func Up(t *testing.T, spec lab.Spec) *World {
	t.Helper()
	if spec.StateDir == "" {
		spec.StateDir = must.Get(os.MkdirTemp("", "salvor-lab-"))(t)
		t.Cleanup(func() { os.RemoveAll(spec.StateDir) })
	}
	spec.Program, spec.Leashed = []string{must.Get(os.Executable())(t)}, true
	w := &World{T: t, Dir: spec.StateDir, Timeout: 3 * time.Minute}
	start := time.Now()
	w.Lab = must.Get(lab.Up(t.Context(), spec))(t)
	t.Logf("the lab is up: %.1f s", time.Since(start).Seconds())
	t.Cleanup(func() {
		if err := w.Lab.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if all := must.Get(w.Lab.Status(t.Context()))(t).Machines; len(all) > 0 {
		w.Machine = all[0]
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.logs())
		}
	})
	return w
}

func (w *World) logs() string {
	text := ""
	if w.Server != nil {
		text = "the server:\n" + Tail(w.Server.Log(), 8000)
	}
	if w.Machine.SerialLog != "" {
		serial, _ := os.ReadFile(w.Machine.SerialLog)
		text += "\nthe machine:\n" + Tail(string(serial), 3000)
	}
	return text
}

// Tail is the end of a log, without the lines about requests.
func Tail(log string, most int) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "msg=request ") {
			b.WriteString(line)
		}
	}
	return b.String()[max(0, b.Len()-most):]
}

// Serve starts the control plane inside of the lab. A prefix is the command that runs it.
func (w *World) Serve(config string, prefix ...string) {
	w.Helper()
	if len(prefix) == 0 {
		prefix = []string{"env"}
	}
	w.Server = program.Serve(w.T, config, w.Lab.Command(w.Context(), prefix[0], prefix[1:]...).Args...)
}

// Inside runs a program in the lab and returns what it printed. It works in the cleanup of a test too.
func (w *World) Inside(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), w.Timeout)
	defer cancel()
	cmd := w.Lab.Command(ctx, args[0], args[1:]...)
	var out, complaints bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaints
	cmd.Env = append(os.Environ(), w.Env...)
	if w.Server != nil {
		cmd.Env = append(cmd.Env, "SALVOR_URL="+w.Server.URL)
	}
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, &complaints)
	}
	return out.String(), nil
}

// TryCLI runs salvor's command line for the control plane.
func (w *World) TryCLI(stdin string, args ...string) (string, error) {
	out, err := w.Inside(stdin, append([]string{program.Path(w.T, "salvor")}, args...)...)
	return strings.TrimSpace(out), err
}

// CLI is TryCLI for what must succeed.
func (w *World) CLI(args ...string) string {
	w.Helper()
	return must.Get(w.TryCLI("", args...))(w)
}

// Show is a record as the command line shows it; nil while nobody answers.
func (w *World) Show(what, name string) map[string]any {
	w.Helper()
	out, err := w.TryCLI("", what, "show", name, "-f", "json")
	if err != nil {
		return nil
	}
	var shown map[string]any
	must.OK(w, json.Unmarshal([]byte(out), &shown))
	return shown
}

// API sends the control plane a request, which must succeed, and returns the answer. A body that is no text is sent as JSON.
func (w *World) API(method, path string, body any) string {
	w.Helper()
	args := []string{"curl", "-sS", "--fail-with-body", "-X", method, "-H", "X-OpenStack-Ironic-API-Version: 1.87", "-H", "Content-Type: application/json", w.Server.URL + path}
	text, isText := body.(string)
	if body != nil {
		args = append(args, "--data-binary", "@-")
		if !isText {
			text = string(must.Get(json.Marshal(body))(w))
		}
	}
	out, err := w.Inside(text, args...)
	if err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	return out
}

// Enroll makes the machine the node m1 with a port. more are fields of the node.
func (w *World) Enroll(more map[string]any) {
	w.Helper()
	m, kind := w.Machine, string(w.Machine.BMC)
	info := map[string]any{kind + "_address": m.Address, kind + "_username": m.User, kind + "_password": m.Password}
	if m.BMC == lab.IPMI {
		info["ipmi_port"] = m.Port
	}
	node := map[string]any{"name": "m1", "driver": kind, "network_interface": "bridge", "driver_info": info}
	for field, value := range more {
		node[field] = value
	}
	w.API("POST", "/v1/nodes", node)
	w.API("POST", "/v1/ports", map[string]any{
		"node_uuid": w.Node().UUID, "address": m.MAC, "local_link_connection": map[string]any{"port_id": m.PortID, "switch_id": "52:54:00:00:00:01"},
	})
}

// Node is the node m1.
func (w *World) Node() client.Node {
	w.Helper()
	var n client.Node
	must.OK(w, json.Unmarshal([]byte(w.API("GET", "/v1/nodes/m1", nil)), &n))
	return n
}

// Await waits until a condition holds.
func (w *World) Await(what string, holds func() bool) {
	w.Helper()
	w.Until(what, program.If(holds))
}

// Until is Await for a condition that says why it does not hold.
func (w *World) Until(what string, holds func() error) {
	w.Helper()
	start := time.Now()
	program.Until(w, what, w.Timeout, holds)
	w.Logf("%s: %.1f s", what, time.Since(start).Seconds())
}

// SSH runs a command over ssh with a password. A server's key is taken at the first login and must be the same from then on; with
// /dev/null as knownHosts each login is a first one.
func (w *World) SSH(stdin, login, password, knownHosts, command string) (string, error) {
	return w.Inside(stdin, "env", "SSHPASS="+password, "sshpass", "-e", "ssh", "-F", "none", "-o", "ConnectTimeout=30", "-o", "LogLevel=ERROR",
		"-o", "PreferredAuthentications=password", "-o", "UserKnownHostsFile="+knownHosts, "-o", "StrictHostKeyChecking=accept-new", login, command)
}

// Page is what the system at an address of the tenant network tells about itself: the marker of its disk, and how often it has booted.
func (w *World) Page(address string) (string, error) {
	return w.Inside("", "curl", "-sS", "-m", "2", "http://"+address+"/")
}
