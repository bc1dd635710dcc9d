package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"salvor/compute"
	"salvor/test/must"
)

// TestALeaseIsReopened: the file in which an owner renews its lease is not the one at the path any more, as after a remount of a share. The
// owner goes on in the file at the path, so that no other host sees its lease stand still.
func TestALeaseIsReopened(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, h *heldLease){
		"the file was replaced": func(t *testing.T, h *heldLease) {
			raw, err := os.ReadFile(h.path)
			if err == nil {
				err = os.Remove(h.path)
			}
			if err != nil {
				t.Fatal(err)
			}
			put(t, h.path, raw)
		},
		"its handle is stale": func(_ *testing.T, h *heldLease) { h.file = staleFile{h.file} },
		"it is closed":        func(_ *testing.T, h *heldLease) { _ = h.file.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newLeaseHosts(t)
			a, b, spec := w.host(), w.host(), w.spec()
			w.run(a, spec)
			w.round(a)
			before := w.lease(spec)
			lose(t, a.leases.heldAt(w.leasePath(spec)))
			w.round(a)
			w.round(a)
			if now := w.lease(spec); now.Nonce != before.Nonce || now.Counter <= before.Counter || now.State != leaseHeld {
				t.Fatalf("it is not renewed: %+v, before %+v", now, before)
			}
			w.refused(w.evacuate(b, next(spec), a), "renews its lease now")
			if !a.runs(spec.ServerID) || b.runs(spec.ServerID) {
				t.Error("the guest does not run at its owner alone")
			}
			w.ok(w.order(a, compute.SetPower, spec, compute.Args{Power: compute.PowerOff}))
			w.round(a)
			if now := w.lease(spec); now.State != leaseFree {
				t.Errorf("it is not freed: %+v", now)
			}
		})
	}
}

// TestALeaseIsReopenedAfterAnUnmount: for a while the share is not there, and then all of it is there again.
func TestALeaseIsReopenedAfterAnUnmount(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	away := filepath.Join(w.TempDir(), "away")
	must.OK(t, os.Rename(w.pool, away))
	w.round(a)
	w.round(a)
	must.OK(t, os.Rename(away, w.pool))
	before := w.lease(spec)
	w.round(a)
	w.round(a)
	if now := w.lease(spec); now.Counter <= before.Counter && now.Nonce == before.Nonce {
		t.Fatalf("it is not renewed: %+v, before %+v", now, before)
	}
	w.refused(w.evacuate(b, next(spec), a), "renews its lease now")
}

// A file of another owner at the path is not taken over: the guest ends.
func TestALeaseOfAnotherOwnerIsNotReopened(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	a.leases.heldAt(w.leasePath(spec)).file = staleFile{a.leases.heldAt(w.leasePath(spec)).file}
	w.ok(w.evacuate(b, next(spec)))
	w.round(a)
	if l := w.lease(spec); l.Host != b.ID() || a.runs(spec.ServerID) {
		t.Errorf("runs at its former owner: %v, lease %+v", a.runs(spec.ServerID), l)
	}
}

// staleFile is a file whose share was mounted anew.
type staleFile struct{ leaseFile }

func (staleFile) WriteAt([]byte, int64) (int, error) { return 0, unix.ESTALE }

func (staleFile) Sync() error { return unix.ESTALE }
