package conductor

import (
	"slices"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/problem"
)

// TestRebuildHasItsImageBeforeTheOldDiskGoes: while the image is not to be had, the server runs on from the disk that it has.
func TestRebuildHasItsImageBeforeTheOldDiskGoes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, quarters{state: compute.Active})
	h.refuse = func(v compute.Verb, args *compute.Args) error {
		if v == compute.Prepare || v == compute.Stage && !args.Cancel {
			return problem.Invalidf("the bytes that came are another image's")
		}
		return nil
	}
	h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: h.image}})
	h.work(t)
	s := h.now(t)
	if !strings.HasPrefix(h.disks["vda"], "aged") || h.runs() != "system" || slices.Contains(h.did, compute.SetPower) {
		t.Errorf("disk %q, runs %s, did %v: %s", h.disks["vda"], h.runs(), h.did, h.picture(t))
	}
	if s.State != compute.Errored || s.Fault == nil || !strings.Contains(s.Fault.Message, "another image's") {
		t.Errorf("%s", h.picture(t))
	}
	h.refuse, h.did = nil, nil
	h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: h.image, Discard: true}})
	h.work(t)
	staged, discarded, prepared := slices.Index(h.did, compute.Stage), slices.Index(h.did, compute.Discard), slices.Index(h.did, compute.Prepare)
	if s := h.now(t); s.State != compute.Active || h.disks["vda"] != h.image || staged < 0 || discarded < staged || prepared < discarded {
		t.Errorf("asked again: did %v: %s", h.did, h.picture(t))
	}
}
