//go:build e2e

package libvirt

import (
	"context"
	"os"
	"slices"
	"testing"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/test/must"
)

// stateTravels exports the state of a UEFI guest that runs, and defines the guest with it anew: with its machine type where libvirt offers that.
func (y *e2eWorld) stateTravels(t *testing.T) {
	ctx := t.Context()
	d := y.domain(t, false)
	d.Firmware = compute.UEFI
	must.OK(t, y.Define(ctx, d))
	t.Cleanup(func() { must.OK(t, y.Remove(context.WithoutCancel(ctx), d.ServerID)) })
	stamp := func() string {
		guests := must.Get(y.Guests(ctx))(t)
		return guests[slices.IndexFunc(guests, func(g compute.Guest) bool { return g.ID == d.ServerID })].StateStamp
	}
	seen := []string{stamp()}
	must.Get(y.SetPower(ctx, d.ServerID, hypervisor.Power{State: compute.PowerOn}))(t)
	path := nvramPath(y.opts.NVRAM, d.ServerID, false)
	seen = append(seen, stamp())
	content := must.Get(os.ReadFile(path))(t)
	copy(content[len(content)-16:], "an enrolled key.")
	must.OK(t, os.WriteFile(path, content, 0o600))
	if seen = append(seen, stamp()); slices.Contains(seen, "") || seen[0] == seen[1] || seen[1] == seen[2] {
		t.Errorf("the stamps of a new guest, one that runs, and one whose variables changed are %q; want three", seen)
	}
	state := must.Get(y.Export(ctx, d.ServerID, true))(t)
	if len(state.Variables) == 0 || state.Machine == "" {
		t.Fatalf("the state is of machine %q, with %d bytes of variables", state.Machine, len(state.Variables))
	}
	if _, err := y.Export(ctx, d.ServerID, false); err == nil {
		t.Error("a guest that runs is exported for a move")
	}
	own := state.Machine
	for _, c := range []struct{ machine, want string }{{own, own}, {"pc-q35-2.4", "pc-q35-2.4"}, {"pc-q35-99.0", own}} {
		must.OK(t, y.Remove(ctx, d.ServerID))
		state.Machine = c.machine
		d.State, d.AnyMachine = state, true
		must.OK(t, y.Define(ctx, d))
		if got := y.inactive(t, d).OS.Type.Machine; got != c.want {
			t.Errorf("a guest that had machine type %s has %s, want %s", c.machine, got, c.want)
		}
		if got := must.Get(os.ReadFile(path))(t); !slices.Equal(got, content) {
			t.Errorf("with machine type %s the variables are others: %d bytes, want the %d that the guest had", c.machine, len(got), len(content))
		}
	}
}
