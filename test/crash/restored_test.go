package crash

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

// TestRestoredStateIsHeld: the state is saved during a rescue. The rescue then ends and is taken back, and the saved state replaces
// the newer one: as database files, as the whole directory, or as a backup. No job of it runs, changes are refused, and reads are
// answered.
func TestRestoredStateIsHeld(t *testing.T) {
	for name, way := range map[string]struct {
		save    func(t *testing.T, w *world) string
		restore func(t *testing.T, w *world, saved string)
		says    string
	}{
		"database files": {saveDirectory, restoreDatabase, "went-back"},
		"whole directory": {saveDirectory, func(t *testing.T, w *world, saved string) {
			replaceDirectory(t, saved, w.server.State)
		}, "went-back"},
		"backup": {func(t *testing.T, w *world) string {
			file := filepath.Join(t.TempDir(), "backup.db")
			program.CLI{}.Run(t, "db", "backup", file, "--database", "sqlite:"+filepath.Join(w.server.State, "salvor.db"))
			w.server.Kill()
			return file
		}, func(t *testing.T, w *world, saved string) {
			removeDatabase(t, w.server.State)
			copyFile(t, saved, filepath.Join(w.server.State, "salvor.db"))
			// Only the mark in the file shows it.
			must.OK(t, os.Remove(filepath.Join(w.server.State, "witness.json")))
		}, "backup"},
	} {
		t.Run(name, func(t *testing.T) {
			witness := ""
			if name == "whole directory" {
				witness = "[database]\nwitness_file = " + filepath.Join(t.TempDir(), "witness.json") + "\n"
			}
			w := newWorld(t, 1, witness)
			m := w.all()[0]
			held := m.arm(&stop{place: atHeartbeat, nth: 1})
			w.each(func(ctx context.Context, m *machine) error { return w.ask(ctx, m, "rescue") })
			select {
			case <-held:
			case <-time.After(patience):
				t.Fatalf("the ramdisk does not call:\n%s", tail(w.server.Log()))
			}
			saved := way.save(t, w)
			m.letGo()
			w.server.Start(t)
			w.each(func(ctx context.Context, m *machine) error {
				if err := w.reach(ctx, m, "rescue"); err != nil {
					return err
				}
				if err := w.ask(ctx, m, "unrescue"); err != nil {
					return err
				}
				return w.reach(ctx, m, "active")
			})
			w.server.Kill()
			way.restore(t, w, saved)
			boots, _, _ := m.state()
			m.requests()
			w.server.Start(t)
			w.server.AwaitLog(t, "the database is held")
			w.refusesChanges(t, m)
			w.staysAsItIs(t, m, boots)
			status := program.CLI{}.Run(t, "db", "status", "--database", "sqlite:"+filepath.Join(w.server.State, "salvor.db"), "-c", "held", "-c", "next", "-f", "value")
			if !strings.Contains(status, way.says) || !strings.Contains(status, "salvor db restored") {
				t.Errorf("db status says:\n%s", status)
			}
		})
	}
}

// refusesChanges holds that each face refuses a change in its own form, and answers what reads.
func (w *world) refusesChanges(t *testing.T, m *machine) {
	t.Helper()
	for _, err := range []error{
		w.api.SetPower(t.Context(), m.id, ironic.PowerRequest{Target: "power off"}),
		w.api.Provision(t.Context(), m.id, ironic.ProvisionRequest{Target: "abort"}),
		second(w.api.CreateNode(t.Context(), client.Record{"driver": "fake-hardware"})),
	} {
		if client.StatusOf(err) != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "salvor db restored") {
			t.Errorf("a change: %v", err)
		}
	}
	if _, err := w.api.Node(t.Context(), m.id); err != nil {
		t.Errorf("a read: %v", err)
	}
	for path, method := range map[string]string{
		"/v1/nodes": "POST", "/compute/v2.1/servers": "POST", "/compute/v2.1/servers/x/action": "POST", "/cyclades/compute/v2.0/servers": "POST", "/image/v2/images": "POST",
		"/volume/v3/p/volumes": "POST", "/salvor/v1/hosts/x": "PATCH", "/salvor/v1/tokens": "POST", "/v1/lookup?addresses=" + m.mac: "GET",
	} {
		status, header, body := w.send(t, method, path)
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") != "" || !strings.Contains(body, "salvor db restored") {
			t.Errorf("%s %s: %d, Retry-After %q: %s", method, path, status, header.Get("Retry-After"), body)
		}
	}
	for _, path := range []string{"/v1/nodes", "/compute/v2.1/servers", "/image/v2/images", "/salvor/v1/hosts", "/v1", "/metrics"} {
		if status, _, body := w.send(t, "GET", path); status != http.StatusOK {
			t.Errorf("GET %s: %d: %s", path, status, body)
		}
	}
	if status, _, body := w.send(t, "GET", "/healthz"); status != http.StatusOK || !strings.Contains(body, "held") {
		t.Errorf("healthz: %d: %s", status, body)
	}
	if _, _, body := w.send(t, "GET", "/metrics"); !strings.Contains(body, "\nsalvor_held 1\n") {
		t.Errorf("metrics do not say that the database is held")
	}
	if _, _, body := w.send(t, "GET", "/salvor/v1/nodes/"+m.id+"/why"); !strings.Contains(body, "salvor db restored") {
		t.Errorf("why: %s", body)
	}
	if status, _, _ := w.send(t, "POST", "/salvor/v1/restored/jobs"); status == http.StatusServiceUnavailable {
		t.Error("an administrator cannot decide about the open jobs")
	}
}

func second(_ *client.Node, err error) error { return err }

func (w *world) send(t *testing.T, method, path string) (status int, header http.Header, body string) {
	t.Helper()
	a := fixture.Send(t, method, w.server.URL+path, "{}", "Content-Type", "application/json", "X-Openstack-Ironic-Api-Version", "1.82")
	return a.Status, a.Header, a.Body
}

// staysAsItIs looks for a while whether the machine is asked for anything but what reads. Without the hold it was within 20 ms.
func (w *world) staysAsItIs(t *testing.T, m *machine, boots []string) {
	t.Helper()
	time.Sleep(4 * time.Second) // there is nothing to wait for: nothing is to happen
	for _, method := range m.requests() {
		if method != http.MethodGet {
			t.Errorf("the BMC was asked by %s", method)
		}
	}
	if now, _, _ := m.state(); !slices.Equal(now, boots) || !m.bmc.On() {
		t.Errorf("the machine booted %q, and then %q; on: %t", boots, now, m.bmc.On())
	}
	if t.Failed() {
		t.Log(tail(w.server.Log()))
	}
}

func saveDirectory(t *testing.T, w *world) string {
	w.server.Kill()
	saved := filepath.Join(t.TempDir(), "saved")
	replaceDirectory(t, w.server.State, saved)
	return saved
}

func restoreDatabase(t *testing.T, w *world, saved string) {
	removeDatabase(t, w.server.State)
	for _, end := range []string{"", "-wal"} {
		if _, err := os.Stat(filepath.Join(saved, "salvor.db"+end)); err == nil {
			copyFile(t, filepath.Join(saved, "salvor.db"+end), filepath.Join(w.server.State, "salvor.db"+end))
		}
	}
}

func removeDatabase(t *testing.T, dir string) {
	t.Helper()
	for _, end := range []string{"", "-wal", "-shm", ".lock"} {
		must.OK(t, os.RemoveAll(filepath.Join(dir, "salvor.db"+end)))
	}
}

func replaceDirectory(t *testing.T, from, to string) {
	t.Helper()
	err := os.RemoveAll(to)
	if err == nil {
		err = os.CopyFS(to, os.DirFS(from))
	}
	if err != nil {
		t.Fatal(fmt.Errorf("copy %s: %w", from, err))
	}
	must.OK(t, os.Chmod(to, 0o700))
	// CopyFS gives files a mode that other users may read, which the key file must not have.
	err = filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chmod(path, 0o600)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
