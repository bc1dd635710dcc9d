//go:build e2e

package systemd

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/test/debian"
	"salvor/test/must"
	"salvor/test/program"
)

const (
	bootTimeout    = 8 * time.Minute // the installation of Debian is the most of it
	commandTimeout = 2 * time.Minute
	endTimeout     = 30 * time.Second
)

// machine is a minimal Debian 12 that systemd-nspawn has booted. It has no network but its loopback device.
type machine struct {
	t       *testing.T
	cgroups []string // one for each hierarchy that systemd uses
	console program.Buffer
	ended   chan struct{}
	leader  string // the process that is process 1 of the machine
}

// startMachine begins to install and boot a machine; the test's end ends it. The directory packages is /packages in the machine.
// SALVOR_TEST_ROOT names a tar file that saves the installation: the first test makes it, and further ones use it.
func startMachine(t *testing.T, packages string) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("systemd-nspawn needs root")
	}
	for program, debianPackage := range map[string]string{"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap", "nsenter": "util-linux", "unshare": "util-linux"} {
		debian.Program(t, program, debianPackage)
	}
	m := &machine{t: t, ended: make(chan struct{})}
	root := t.TempDir()
	m.makeCgroups()
	args := []string{"--pid", "--fork", "--mount", "--mount-proc", "--kill-child=KILL", "sh", "testdata/machine.sh", root, os.Getenv("SALVOR_TEST_ROOT"), packages}
	cmd := exec.Command("unshare", append(args, m.cgroups...)...)
	cmd.Stdout, cmd.Stderr = &m.console, &m.console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.OK(t, cmd.Start())
	go func() {
		defer close(m.ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-m.ended
		m.checkNothingIsLeft(root)
	})
	return m
}

// makeCgroups gives the machine cgroups of its own below the root, which the end of the test removes.
func (m *machine) makeCgroups() {
	m.t.Helper()
	hierarchies := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil { // version 1, where systemd has a hierarchy of its own, or two
		hierarchies = []string{"/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"}
	}
	// systemd-nspawn and systemd need the same name in each hierarchy.
	name := fmt.Sprintf("salvor-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	for _, hierarchy := range hierarchies {
		if _, err := os.Stat(hierarchy + "/cgroup.procs"); err != nil {
			continue
		}
		dir := filepath.Join(hierarchy, name)
		must.OK(m.t, os.Mkdir(dir, 0o755))
		m.cgroups = append(m.cgroups, dir)
	}
	if len(m.cgroups) == 0 {
		m.t.Fatal("no hierarchy of cgroups for systemd is mounted below /sys/fs/cgroup")
	}
}

// checkNothingIsLeft removes the cgroups, which only works when all processes of the machine are gone, and looks for mounts.
func (m *machine) checkNothingIsLeft(root string) {
	for _, cgroup := range m.cgroups {
		err := program.Await(endTimeout, func() error {
			var all []string
			if err := filepath.WalkDir(cgroup, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return nil
			}); err != nil {
				return err
			}
			for _, dir := range slices.Backward(all) {
				if err := os.Remove(dir); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			m.t.Errorf("the machine is not gone: %v", err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(root)) {
		m.t.Errorf("%s is still mounted, or cannot be known: %v", root, err)
	}
}

// awaitBoot waits until systemd has started all that it starts at boot.
func (m *machine) awaitBoot(within time.Duration) {
	m.t.Helper()
	former := m.leader
	var said string
	err := program.Await(within, func() error {
		select {
		case <-m.ended:
			m.t.Fatalf("the machine ended:\n%s", m.console.String())
		default:
		}
		procs, err := os.ReadFile(m.cgroups[0] + "/payload/init.scope/cgroup.procs")
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(string(procs), "\n")
		if _, err := strconv.Atoi(first); err != nil || first == former {
			return fmt.Errorf("systemd does not run: processes %q", procs)
		}
		m.leader = first
		// "degraded" is its end too, with units that failed. Everything else comes before: systemd cannot be asked, or is not done.
		said, err = m.try("systemctl is-system-running --wait")
		if said != "running" && said != "degraded" {
			return fmt.Errorf("systemd says %q: %v", said, err)
		}
		return nil
	})
	if err != nil || said != "running" {
		failed, _ := m.try("systemctl --failed --no-pager --full")
		m.t.Fatalf("the machine did not boot within %s: it is %q, %v\n%s\n%s", within, said, err, failed, m.console.String())
	}
}

// reboot boots the machine again, as an administrator does.
func (m *machine) reboot() {
	m.t.Helper()
	// It complains of the bus that this small Debian does not have, and reboots all the same.
	_, _ = m.try("systemctl reboot")
	m.awaitBoot(commandTimeout)
}

// try runs a shell's command in the machine as root, and returns what it printed, without space at the ends. The error has what it complained of.
func (m *machine) try(command string) (string, error) {
	ctx, stop := context.WithTimeout(m.t.Context(), commandTimeout)
	defer stop()
	cmd := exec.CommandContext(ctx, "nsenter", "--target", m.leader, "--all", "--root", "--wd",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "bash", "-euo", "pipefail", "-c", command)
	var said, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &complained
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(complained.Bytes()))
	}
	return string(bytes.TrimSpace(said.Bytes())), err
}

// run is try for a command that must succeed.
func (m *machine) run(command string) string {
	m.t.Helper()
	said, err := m.try(command)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", command, err, said)
	}
	return said
}

// wants compares what a command prints with what it must print.
func (m *machine) wants(command, want string) {
	m.t.Helper()
	if said, err := m.try(command); said != want || err != nil {
		m.t.Errorf("%s: printed %q, want %q; error: %v", command, said, want, err)
	}
}

// until waits for a command to print something.
func (m *machine) until(command, want string) {
	m.t.Helper()
	program.Until(m.t, command, commandTimeout, func() error {
		if said, err := m.try(command); said != want {
			return fmt.Errorf("it printed %q, want %q; error: %v", said, want, err)
		}
		return nil
	})
}

// wantsUnit compares properties of a unit, such as ActiveState=active.
func (m *machine) wantsUnit(unit string, properties ...string) {
	m.t.Helper()
	said := strings.Split(m.run("systemctl show "+unit), "\n")
	for _, want := range properties {
		if slices.Contains(said, want) {
			continue
		}
		name, _, _ := strings.Cut(want, "=")
		found := slices.IndexFunc(said, func(line string) bool { return strings.HasPrefix(line, name+"=") })
		if found < 0 {
			m.t.Errorf("the unit %s has no property %s, want %s", unit, name, want)
		} else {
			m.t.Errorf("the unit %s has %s, want %s", unit, said[found], want)
		}
	}
}
