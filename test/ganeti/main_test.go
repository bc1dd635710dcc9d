//go:build e2e

// Package ganeti proves on a real Ganeti cluster of one node, with QEMU behind it, that rescue and unrescue work over RAPI. It also proves
// that salvor notices other changes to the cluster. The cluster runs in namespaces of its own, and so does the test.
package ganeti

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"salvor/boot/ramdisk"
)

// inside names the folder of the cluster; it is set within the namespaces.
const inside = "SALVOR_GANETI_E2E"

// TestMain runs the tests in namespaces, below a shell that is their first process: Ganeti and QEMU leave their children to it.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "salvor-ganeti-")
	if err == nil {
		err = outside(dir)
	}
	os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e tests in their namespaces:", err)
		os.Exit(1)
	}
}

// outside makes what needs the machine's own network, and goes inside.
func outside(dir string) error {
	for program, pkg := range map[string]string{"gnt-cluster": "ganeti", "unshare": "util-linux", "qemu-system-x86_64": "qemu-system-x86", "ssh-keygen": "openssh-client"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w (package %s)", err, pkg)
		}
	}
	if err := rescueISO(filepath.Join(dir, "iso")); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{"--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child=KILL",
		"bash", "-c", `"$0" "$@" & wait $!`, self}, os.Args[1:]...)
	cmd := exec.Command("unshare", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

func rescueISO(dir string) error {
	agent := filepath.Join(dir, "salvor-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", agent, "salvor/cmd/salvor-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build salvor-agent: %w\n%s", err, out)
	}
	_, err := ramdisk.Build(context.Background(), ramdisk.Options{Out: filepath.Join(dir, "out"), Agent: agent})
	return err
}
