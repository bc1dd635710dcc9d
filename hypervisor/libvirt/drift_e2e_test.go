//go:build e2e

package libvirt

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/lab/odd"
	"salvor/problem"
	"salvor/test/must"
)

// editsByOthers changes definitions as other tools do, one kind at a time, on a real daemon, and defines the guest anew.
func (y *e2eWorld) editsByOthers(t *testing.T) {
	ctx, elsewhere := t.Context(), filepath.Join(y.dir, "elsewhere")
	must.OK(t, os.MkdirAll(elsewhere, 0o755))
	kept, refusedByLibvirt := 0, []string{}
	for _, firmware := range []compute.Firmware{compute.BIOS, compute.UEFI} {
		for _, change := range odd.Changes(elsewhere) {
			t.Run(string(firmware)+" "+change.Name, func(t *testing.T) {
				d := y.domain(t, false)
				d.Firmware = firmware
				must.OK(t, y.Define(ctx, d))
				t.Cleanup(func() { must.OK(t, y.Remove(ctx, d.ServerID)) })
				y.wantDrift(t, d, "a new guest", 0)
				must.OK(t, y.Define(ctx, d))
				y.wantDrift(t, d, "a guest that was defined again", 0)
				current := y.inactive(t, d)
				root := must.Get(tree(current.text))(t)
				if !change.Make(root) {
					return
				}
				dom := must.Get(y.find(ctx, d.ServerID))(t)
				if _, err := y.defineXML(ctx, dom.Name, must.Get(untree(root))(t)); err != nil {
					refusedByLibvirt = append(refusedByLibvirt, change.Name)
					t.Logf("libvirt itself refuses this change: %v", err)
					return
				}
				changed := must.Get(tree(y.inactive(t, d).text))(t)
				if !change.Kept(changed) {
					refusedByLibvirt = append(refusedByLibvirt, change.Name)
					t.Logf("libvirt writes this change in another way")
					return
				}
				y.wantDrift(t, d, "the changed guest", 1)
				err := y.Define(ctx, d)
				if change.Fate == odd.Refused {
					if !problem.Is(err, problem.Conflict) {
						t.Fatalf("define over %s: %v, want a Conflict", change.Name, err)
					}
					return
				}
				must.OK(t, err)
				after := must.Get(tree(y.inactive(t, d).text))(t)
				if got := change.Kept(after); got != (change.Fate == odd.Carried) {
					t.Errorf("after the next definition the change is kept: %v, want %v:\n%s", got, change.Fate == odd.Carried, y.inactive(t, d).text)
				}
				kept++
				// A disk more is a change of salvor's, and hides nothing.
				more, name := y.withDisk(t, d)
				must.OK(t, y.Plug(ctx, more, name, true))
				must.OK(t, y.Define(ctx, more))
				if after = must.Get(tree(y.inactive(t, d).text))(t); change.Kept(after) != (change.Fate == odd.Carried) {
					t.Errorf("with a disk more the change is kept: %v, want %v", change.Kept(after), change.Fate == odd.Carried)
				}
				must.OK(t, y.Define(ctx, d)) // and without it again
			})
		}
	}
	t.Logf("%d combinations; libvirt refuses or rewords: %v", kept, refusedByLibvirt)
}

func (y *e2eWorld) inactive(t *testing.T, d hypervisor.Domain) *definition {
	t.Helper()
	dom := must.Get(y.find(t.Context(), d.ServerID))(t)
	return must.Get(y.describe(t.Context(), dom, rpc.DomainXMLInactive))(t)
}

// wantDrift checks how many changes by others the hypervisor tells of a guest: none, or some.
func (y *e2eWorld) wantDrift(t *testing.T, d hypervisor.Domain, what string, want int) {
	t.Helper()
	guests := must.Get(y.Guests(t.Context()))(t)
	i := slices.IndexFunc(guests, func(g compute.Guest) bool { return g.ID == d.ServerID })
	if i < 0 {
		t.Fatalf("%s is not listed", what)
	}
	if got := guests[i].Drift; len(got) > 0 != (want > 0) {
		t.Errorf("%s: changes by others %+v, want %d", what, got, want)
	}
}

// withDisk is a domain with one disk more.
func (y *e2eWorld) withDisk(t *testing.T, d hypervisor.Domain) (hypervisor.Domain, string) {
	t.Helper()
	file := filepath.Join(y.dir, d.ServerID+"-vdb.img")
	must.OK(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	d.Disks = append(slices.Clone(d.Disks), compute.SpecDisk{Name: "vdb", BootIndex: -1})
	d.Paths = map[string]hypervisor.DiskFile{"vda": d.Paths["vda"], "vdb": {Path: file, Format: "raw"}}
	return d, "vdb"
}
