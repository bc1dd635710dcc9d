//go:build e2e

package tgt

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"salvor/problem"
	"salvor/storage/storagetest"
	"salvor/test/must"
)

const (
	portal = "127.0.0.1:3260"
	one    = "iqn.2026-11.org.salvor.test:one"
	two    = "iqn.2026-11.org.salvor.test:two"
)

// daemon is a tgtd in namespaces of its own, which end with it.
type daemon struct {
	*testing.T
	*Tgt
	dir string
	pid int // a process in its namespaces
}

func newDaemon(t *testing.T) *daemon {
	for program, pkg := range map[string]string{"tgtd": "tgt", "tgtadm": "tgt", "qemu-io": "qemu-utils and qemu-block-extra", "unshare": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("the Debian package %s is needed: %v", pkg, err)
		}
	}
	// A socket's path is short of length.
	dir, err := os.MkdirTemp("", "salvor-tgt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", "ip link set lo up && exec tgtd -f -C 5 --iscsi portal="+portal)
	cmd.Env = append(os.Environ(), "TGT_IPC_SOCKET="+dir+"/s")
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	made, err := New(Options{Control: 5, Socket: dir + "/s", Portal: portal, Files: dir + "/" + VolumeWord + ".raw"})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{T: t, Tgt: made, dir: dir}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = d.targets(t.Context()); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	if d.pid, _ = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || d.pid == 0 {
		t.Fatalf("the daemon's process was not found: %q %v", text, err)
	}
	for i, name := range []string{"a", "b"} {
		tid := strconv.Itoa(i + 1)
		d.admin("--op", "new", "--mode", "target", "--tid", tid, "-T", target1(name))
		d.admin("--op", "new", "--mode", "logicalunit", "--tid", tid, "--lun", "1", "-b", d.volume(name))
	}
	return d
}

func target1(name string) string { return "iqn.2026-11.org.salvor.test:" + name }

func (d *daemon) volume(name string) string {
	path := filepath.Join(d.dir, name+".raw")
	must.OK(d, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	return path
}

func (d *daemon) admin(args ...string) {
	d.Helper()
	must.Get(d.run(d.Context(), args...))(d)
}

// login has QEMU's initiator, the one of guests, open a target and keep it.
func (d *daemon) login(t *testing.T, target, initiator string) (func(), error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	image := fmt.Sprintf(`json:{"driver":"raw","file":{"driver":"iscsi","transport":"tcp","portal":%q,"target":%q,"lun":1,"initiator-name":%q}}`, portal, target, initiator)
	cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(d.pid), "--net", "qemu-io", image)
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	cmd.Stderr = cmd.Stdout
	must.OK(t, cmd.Start())
	logout := func() { in.Close(); cancel(); _, _ = io.Copy(io.Discard, out); _ = cmd.Wait() }
	read := bufio.NewReader(out)
	fmt.Fprintln(in, "read 0 512")
	said, _ := read.ReadString('\n')
	if !strings.Contains(said, "read 512/512") {
		logout()
		return nil, fmt.Errorf("%s", said)
	}
	return logout, nil
}

func TestContract(t *testing.T) {
	d := newDaemon(t)
	d.volume("v1")
	storagetest.Run(t, storagetest.World{
		Storage: d.Tgt, Targets: [2]string{target1("a"), target1("b")}, Initiators: [2]string{one, two}, Volume: "v1",
		Login: d.login,
	})
}

// TestEverybody: a target that admits addresses is closed by the first leave that is given, and until then no revocation counts.
func TestEverybody(t *testing.T) {
	d := newDaemon(t)
	d.admin("--op", "bind", "--mode", "target", "--tid", "1", "--initiator-address", "ALL")
	logout := must.Get(d.login(t, target1("a"), two))(t)
	defer logout()
	if err := d.Revoke(t.Context(), two); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), target1("a")+" admits ALL") {
		t.Fatalf("revoked where everybody may come back: %v", err)
	}
	for range 2 {
		must.OK(t, d.Allow(t.Context(), target1("a"), one))
	}
	must.OK(t, d.Revoke(t.Context(), two))
	if _, err := d.login(t, target1("a"), two); err == nil {
		t.Error("whoever was not named is still let in")
	}
	d.admin("--op", "bind", "--mode", "target", "--tid", "2", "--initiator-address", "127.0.0.0/8")
	if err := d.Revoke(t.Context(), two); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "127.0.0.0/8") {
		t.Errorf("revoked where an address may come back: %v", err)
	}
}

// TestSilence: a daemon that is not there is no evidence.
func TestSilence(t *testing.T) {
	gone := must.Get(New(Options{Control: 9, Socket: t.TempDir() + "/s"}))(t)
	if err := gone.Revoke(t.Context(), one); !problem.Is(err, problem.Unavailable) {
		t.Error(err)
	}
	if _, err := gone.Sessions(t.Context()); !problem.Is(err, problem.Unavailable) {
		t.Error(err)
	}
	if _, err := gone.Export(t.Context(), "v", one); !problem.Is(err, problem.Unsupported) {
		t.Error(err)
	}
}
