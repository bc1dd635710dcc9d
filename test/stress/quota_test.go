package stress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"salvor/test/must"
)

// strangers starts a process that loads a listener, with half of a processor where a cgroup can be made, and at the lowest
// priority elsewhere. It ends with the context; ended tells what it said last.
func strangers(t *testing.T, ctx context.Context, door, address, kind string, scale float64) (begun <-chan struct{}, ended <-chan string) {
	t.Helper()
	cmd := exec.Command("nice", "-n", "19", os.Args[0], "-test.run", "^TestStrangerProcess$", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("SALVOR_STRANGERS=%s|%s|%s|%g", door, address, kind, scale))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	restore := raiseFiles(t)
	err = cmd.Start()
	restore()
	if err != nil {
		t.Fatal(err)
	}
	inQuota(t, cmd.Process.Pid)
	started, done := make(chan struct{}), make(chan string, 1)
	go func() {
		last := ""
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "begun" {
				close(started)
			} else {
				last = lines.Text()
			}
		}
		_ = cmd.Wait()
		done <- last
	}()
	context.AfterFunc(ctx, func() { _ = in.Close() })
	return started, done
}

// raiseFiles lets the next child have more open files than connections that it opens.
func raiseFiles(t *testing.T) (restore func()) {
	var now syscall.Rlimit
	must.OK(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now))
	const want = 21_000
	raised := syscall.Rlimit{Cur: want, Max: max(now.Max, want)}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) != nil {
		t.Logf("open files stay at %d: some connections are refused by this side", now.Max)
		raised = syscall.Rlimit{Cur: now.Max, Max: now.Max}
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised)
	}
	return func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now) }
}

// inQuota gives a process half of a processor and no more.
func inQuota(t *testing.T, pid int) {
	for _, v := range []struct{ root, file, text string }{{"/sys/fs/cgroup", "cpu.max", "50000 100000"}, {"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"}} {
		dir, err := os.MkdirTemp(v.root, "salvor-strangers-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, v.file), []byte(v.text), 0) == nil && os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0) == nil {
			return
		}
	}
	t.Log("no cgroup can be made here: the strangers have the lowest priority and no quota")
}

// dialDoor opens a connection to a listener; that of hosts speaks TLS.
func dialDoor(d net.Dialer, door, address string) (net.Conn, error) {
	c, err := d.Dial("tcp", address)
	if err != nil || door != "hosts" {
		return c, err
	}
	secured := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	if err := secured.Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return secured, nil
}
