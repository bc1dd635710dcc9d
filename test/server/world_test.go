// Package server proves that common clients work with salvor's servers: Debian's openstack and gophercloud. It runs the real binary and a
// simulated host that joins it.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"salvor/lab/sim"
	"salvor/test/must"
	"salvor/test/program"
)

const patience = 60 * time.Second

// world is a control plane with one VM host.
type world struct {
	*testing.T
	server  *program.Server
	machine *sim.Machine
	host    *sim.Host
	door    string // the hosts'
	state   string // of the host
	hostLog program.Buffer
}

func newWorld(t *testing.T, more string) *world {
	t.Helper()
	w := newPlane(t, more)
	w.startHost()
	t.Cleanup(func() {
		if err := w.host.Stop(); err != nil {
			t.Errorf("the host ended with %v", err)
		}
	})
	return w
}

// newPlane is a control plane and a machine that no host's agent serves yet.
func newPlane(t *testing.T, more string) *world {
	t.Helper()
	images := t.TempDir()
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(t, os.WriteFile(filepath.Join(images, name), []byte("no machine boots this "+name), 0o600))
	}
	w := &world{T: t, machine: sim.NewMachine(), door: program.FreeAddress(t), state: t.TempDir()}
	w.server = program.Serve(t, fmt.Sprintf("[conductor]\nrescue_kernel = %[1]s/kernel\nrescue_ramdisk = %[1]s/initramfs\n[hosts]\nlisten = %[2]s\n[compute]\nshutdown_timeout = 1\n%[3]s", images, w.door, more))
	t.Cleanup(func() {
		if t.Failed() {
			log := w.server.Log()
			t.Logf("the server's log:\n%s\nthe host's:\n%s", log[max(0, len(log)-20_000):], w.hostLog.String())
		}
	})
	return w
}

func (w *world) startHost() {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	var err error
	w.host, err = sim.StartHost(ctx, sim.Config{
		API: w.server.URL, Controller: "https://" + w.door, StateDir: w.state, Name: "vm1", Log: slog.New(slog.NewTextHandler(&w.hostLog, nil)),
	}, w.machine)
	if err != nil {
		w.Fatal(err)
	}
}

// eventually waits until a condition holds; it says at the end why it did not.
func (w *world) eventually(what string, holds func() error) {
	w.Helper()
	program.Until(w, what, patience, holds)
}

func errorOf(format string, args ...any) error { return fmt.Errorf(format, args...) }
