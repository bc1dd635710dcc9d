package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
)

// setVariables changes the UEFI variables of a guest, as its firmware does.
func (h *leaseHost) setVariables(server, to string) {
	g, _ := h.machine.State(server)
	g.Variables = to
	h.machine.Put(server, g)
}

// copied has the host look at its guests, and tells whether it says that the guest's state is copied.
func (h *leaseHost) copied(t *testing.T, server string) bool {
	t.Helper()
	for _, g := range must.Get(h.listGuests(t.Context()))(t) {
		if g.ID == server {
			return g.StateCopied
		}
	}
	t.Fatal("the guest is not listed")
	return false
}

// The UEFI variables of a guest are copied beside its disk in a shared store whenever they change, and the host that defines the guest after an
// evacuation takes the copy.
func TestStateIsCopiedBesideTheDisk(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	disk := filepath.Join(w.pool, spec.ServerID+"-vda")
	for _, variables := range []string{"", "enrolled keys", "enrolled keys, and a boot entry"} {
		a.setVariables(spec.ServerID, variables)
		if !a.copied(t, spec.ServerID) {
			t.Fatal("the host does not say that the state is copied")
		}
		if c := must.Get(readStateCopy(disk))(t); string(c.State.Variables) != variables || c.Server != spec.ServerID || c.Epoch != spec.Epoch {
			t.Errorf("the copy is %+v of variables %q, want %q", c, c.State.Variables, variables)
		}
	}
	before := must.Get(os.Stat(disk + stateSuffix))(t)
	a.copied(t, spec.ServerID)
	if after := must.Get(os.Stat(disk + stateSuffix))(t); !os.SameFile(before, after) {
		t.Error("a state that has not changed is written again")
	}
	must.OK(t, os.Remove(disk+stateSuffix))
	if !a.copied(t, spec.ServerID) || !fileExists(disk+stateSuffix) {
		t.Error("a copy that someone removed is not made again")
	}
	off(t, a.machine, spec.ServerID)
	w.round(a)
	later := next(spec)
	w.ok(w.order(b, compute.Prepare, later, compute.Args{Found: true, NeedsState: true}))
	for range 2 { // a definition whose result was lost comes again
		if r := w.order(b, compute.Define, later, compute.Args{CopiedState: true}); r.ErrorKind != "" || !r.StateTaken {
			t.Fatalf("define: %+v", r)
		}
	}
	if g, _ := b.machine.State(spec.ServerID); g.Variables != "enrolled keys, and a boot entry" {
		t.Errorf("the guest has the variables %q at its new host", g.Variables)
	}
	// The former host, which speaks again, does not put its old state in the place of the newer one.
	must.Get(b.listGuests(t.Context()))(t)
	a.setVariables(spec.ServerID, "old")
	if a.copied(t, spec.ServerID) {
		t.Error("the former host says that its state is copied")
	}
	if c := must.Get(readStateCopy(disk))(t); c.Epoch != later.Epoch || string(c.State.Variables) == "old" {
		t.Errorf("the copy is of epoch %d: %q", c.Epoch, c.State.Variables)
	}
	must.OK(t, b.machine.Remove(t.Context(), spec.ServerID))
	if r := w.order(b, compute.Remove, later, compute.Args{}); r.ErrorKind != "" {
		t.Fatalf("remove: %+v", r)
	}
	if left, _ := filepath.Glob(disk + "*"); len(left) > 0 {
		t.Errorf("after the deletion %v is left", left)
	}
}

// A copy that is needed and cannot be read refuses the preparation, before anything is attached, with the flag that consents. Without need the guest is
// defined, and the answer says that it has new variables.
func TestACopyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"none": "", "cut short": `{"server":"x"`, "of another server": `{"server":"x","epoch":1,"state":{}}`, "empty object": `{}`, "an array": `[1]`, "a link": "link",
	} {
		w := newLeaseHosts(t)
		b, spec := w.host(), w.spec()
		path := filepath.Join(w.pool, spec.ServerID+"-vda")
		if r := w.order(b, compute.Prepare, spec, compute.Args{}); r.ErrorKind != "" {
			t.Fatalf("%s: prepare: %+v", name, r)
		}
		switch content {
		case "":
		case "link":
			must.OK(t, os.Symlink("/etc/passwd", path+stateSuffix))
		default:
			put(t, path+stateSuffix, []byte(content))
		}
		r := w.order(b, compute.Prepare, spec, compute.Args{NeedsState: true})
		if r.ErrorKind != problem.Conflict.String() || !strings.Contains(r.Error, "evacuate it with --discard-variables") {
			t.Errorf("%s: %+v, want a Conflict that names --discard-variables", name, r)
		}
		if r := w.order(b, compute.Define, spec, compute.Args{CopiedState: true}); r.ErrorKind != "" || r.StateTaken {
			t.Errorf("%s, with consent: %+v, want it defined without the state", name, r)
		}
	}
}
