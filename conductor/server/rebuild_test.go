package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/fixture"
	"salvor/test/must"
)

// TestRebuildHasItsImageBeforeTheOldDiskGoes: while the image is not to be had, the server runs on from the disk that it has.
func TestRebuildHasItsImageBeforeTheOldDiskGoes(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	h.refuse = func(v compute.Verb, args *compute.Args) error {
		if v == compute.Prepare || v == compute.Stage && !args.Cancel {
			return problem.Invalidf("the bytes that came are another image's")
		}
		return nil
	}
	other := &compute.Image{Record: record.Record{ID: uuid.NewString()}, Name: "other", Status: compute.ImageActive, Visibility: "public", DiskFormat: "raw",
		Size: 1 << 20, Digest: "sha256:" + strings.Repeat("c", 64), Properties: map[string]string{"os_distro": "other"}}
	h.tx(t, func(tx job.Tx) error { return h.store.Images().Insert(tx, other) })
	h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: other.ID}})
	h.work(t)
	s := h.now(t)
	if !strings.HasPrefix(h.disks["vda"], "aged") || h.runs() != "system" || slices.Contains(h.did, compute.SetPower) {
		t.Errorf("disk %q, runs %s, did %v: %s", h.disks["vda"], h.runs(), h.did, h.picture(t))
	}
	if s.State != compute.Active || s.Fault == nil || !strings.Contains(s.Fault.Message, "another image's") || s.ImageID != h.image || s.Disks[0].ImageID != h.image || s.OS != "" {
		t.Errorf("it runs on from its old disk, of image %s: image %s, disk of %s, OS %q: %s", h.image, s.ImageID, s.Disks[0].ImageID, s.OS, h.picture(t))
	}
	h.refuse, h.did = nil, nil
	h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: h.image, Discard: true}})
	h.work(t)
	staged, discarded, prepared := slices.Index(h.did, compute.Stage), slices.Index(h.did, compute.Discard), slices.Index(h.did, compute.Prepare)
	if s := h.now(t); s.State != compute.Active || h.disks["vda"] != h.image || staged < 0 || discarded < staged || prepared < discarded {
		t.Errorf("asked again: did %v: %s", h.did, h.picture(t))
	}
}

// TestARebuildKeepsTheFormerDisk in quarantine, unless its owner asked to discard it.
func TestARebuildKeepsTheFormerDisk(t *testing.T) {
	t.Parallel()
	for discard, kept := range map[bool]int{false: 1, true: 0} {
		h := newTestHost(t, hostOptions{state: compute.Active})
		h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: h.image, Discard: discard}})
		h.work(t)
		if s := h.now(t); s.State != compute.Active || h.disks["vda"] != h.image || len(h.quarantined) != kept {
			t.Errorf("discard %v: %d disks in quarantine, want %d: %s", discard, len(h.quarantined), kept, h.picture(t))
		}
	}
}

// TestARebuildThatFailsTakesItsNewDiskAway: the disk that was made beside the one in use holds room that nobody counts.
func TestARebuildThatFailsTakesItsNewDiskAway(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	cancelled := 0
	h.refuse = func(v compute.Verb, args *compute.Args) error {
		switch {
		case v == compute.SetPower:
			return problem.Invalidf("the guest cannot be switched off")
		case v == compute.Stage && args.Cancel:
			cancelled++
		}
		return nil
	}
	h.act(t, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: h.image}})
	h.work(t)
	if s := h.now(t); s.State != compute.Errored || cancelled == 0 || slices.Contains(h.did, compute.Discard) || !strings.HasPrefix(h.disks["vda"], "aged") {
		t.Errorf("cancelled %d times; did %v: %s", cancelled, h.did, h.picture(t))
	}
}

// localMarker is the marker of the disk store of a testHost.
const localMarker = "5f0c1c1e-7f0a-4a7e-9b39-2f8c5a3d1e00"

// quarantine moves a disk of the server into quarantine.
func (h *testHost) quarantine(disk string) {
	if content, there := h.disks[disk]; there {
		if h.quarantined == nil {
			h.quarantined = map[string]string{}
		}
		h.quarantined[fmt.Sprintf("q%d", len(h.quarantined))] = content
		delete(h.disks, disk)
	}
}

// restoreDisk moves a disk out of quarantine, as often as it is asked.
func (h *testHost) restoreDisk(id, disk string) error {
	content, there := h.quarantined[id]
	if _, done := h.disks[disk]; done {
		return nil
	}
	if !there {
		return problem.NotFoundf("there is no disk %s in quarantine", id)
	}
	h.disks[disk] = content
	delete(h.quarantined, id)
	return nil
}

// askRestore asks for a restore while the host answers what is in its quarantine.
func (h *testHost) askRestore(t *testing.T, id string) error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, _, err := h.services.Quarantine.RestoreDisk(context.Background(), h.host.ID, id, h.server, true, compute.Who{Admin: true})
		done <- err
	}()
	fixture.PollActing(t, "the request ends", h.poke, func() bool { return len(done) > 0 })
	return <-done
}

// TestSweepRestoreDisk: wherever it is cut off, the disk is the server's or in quarantine, once, and the server stays stopped.
func TestSweepRestoreDisk(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		h := newTestHost(t, hostOptions{state: compute.Stopped})
		h.quarantined = map[string]string{"q": "precious"}
		return h.world(compute.JobRestoreDisk, func(t *testing.T) {
			must.OK(t, h.askRestore(t, "q"))
		}, func(t *testing.T) {
			s := h.undamaged(t)
			_, there := h.disks["vdc"]
			if s.State != compute.Stopped || len(s.Disks) != 2 || there || len(h.quarantined) != 1 {
				t.Errorf("in quarantine %v; left as %s", h.quarantined, h.picture(t))
			}
		})
	})
}

// TestRestoreDisk: a stopped server is given the disk, and starts with it; no other one is.
func TestRestoreDisk(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Stopped})
	h.quarantined = map[string]string{"q": "precious"}
	if err := h.askRestore(t, "none"); !problem.Is(err, problem.NotFound) {
		t.Errorf("a disk that is not there: %v", err)
	}
	before := h.hostNow(t).UsedDisk
	must.OK(t, h.askRestore(t, "q"))
	h.work(t)
	h.act(t, compute.Act{Action: compute.Start})
	h.work(t)
	s := h.now(t)
	if g, _ := h.hv.State(h.server); s.State != compute.Active || disksOf(g.Runs) != " vda vdb vdc" || h.disks["vdc"] != "precious" || len(h.quarantined) != 0 {
		t.Errorf("in quarantine %v: %s", h.quarantined, h.picture(t))
	}
	if used := h.hostNow(t).UsedDisk; used != before+1 {
		t.Errorf("the host uses %d GiB, it was %d", used, before)
	}
	h.quarantined["q"] = "more"
	for _, c := range []struct {
		change func(*compute.Server)
		next   string
	}{
		{func(*compute.Server) {}, "salvor server stop"},
		{func(s *compute.Server) { s.State, s.Rescue = compute.Rescued, &rescue.Session{State: rescue.Ready} }, "salvor server unrescue"},
		{func(s *compute.Server) { s.State, s.Rescue = compute.Paused, nil }, "salvor why server:"},
		{func(s *compute.Server) { s.State, s.Task = compute.Active, compute.Rebooting }, "salvor why server:"},
	} {
		h.tx(t, func(tx job.Tx) error { return h.services.Servers.Edit(context.Background(), tx, h.server, c.change) })
		if err := h.askRestore(t, "q"); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), c.next) {
			t.Errorf("want %s: %v", c.next, err)
		}
	}
}

func (h *testHost) hostNow(t *testing.T) *compute.Host {
	t.Helper()
	now := must.Get(h.store.Hosts().Get(context.Background(), nil, h.host.ID))(t)
	return now
}

// TestARebuildOfTheFormerReleaseGoesOn by the list that it was asked with.
func TestARebuildOfTheFormerReleaseGoesOn(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Active})
	h.tx(t, func(tx job.Tx) error {
		if err := h.services.Servers.Edit(context.Background(), tx, h.server, func(s *compute.Server) { s.Task = compute.Rebuilding }); err != nil {
			return err
		}
		return h.store.Insert(tx, &job.Job{Kind: compute.JobRebuild, Version: 1, Class: job.Operation, Subject: compute.Subject(h.server),
			Args: []byte(`{"image": "` + h.image + `", "power": "on"}`)})
	})
	h.work(t)
	if s := h.now(t); s.State != compute.Active || h.disks["vda"] != h.image || len(h.quarantined) != 1 || slices.Contains(h.did, compute.Stage) {
		t.Errorf("did %v: %s", h.did, h.picture(t))
	}
}
