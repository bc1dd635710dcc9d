package service_test

import (
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// TestADroppedAttachFreesNoVolume: a host may hold the volume that a dropped job was to attach. Nobody else is given it before an operator
// has looked; one that was to be detached stays where it is.
func TestADroppedAttachFreesNoVolume(t *testing.T) {
	w := newWorld(t)
	vol := w.volume()
	s := w.server(alice, compute.Active)
	drop := func(status compute.VolumeStatus, owner string, disks int) {
		t.Helper()
		j := w.endJobs(s.ID)
		j.SetCause(problem.Conflictf("dropped"))
		w.tx(func(tx job.Tx) error { return w.HeldDatabase.ShowDropped(w.ctx, tx, j) })
		v := must.Get(w.Volumes.Get(w.ctx, vol.ID))(w.t)
		got := w.read(s.ID)
		if v.Status != status || v.ServerID != owner || len(got.Disks) != disks || got.State != compute.Active || got.Task != compute.NoTask || got.Fault == nil {
			t.Fatalf("volume %s of %q; server %+v", v.Status, v.ServerID, got)
		}
	}
	w.act(s.ID, compute.Act{Action: compute.AttachVolume, VolumeID: vol.ID}, alice)
	w.endJobs(s.ID)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Attached(w.ctx, tx, s.ID, compute.VolumeArgs{VolumeID: vol.ID, Device: "vdb"})
	})
	w.act(s.ID, compute.Act{Action: compute.DetachVolume, VolumeID: vol.ID}, alice)
	drop(compute.VolumeInUse, s.ID, 2)
	w.act(s.ID, compute.Act{Action: compute.DetachVolume, VolumeID: vol.ID}, alice)
	w.endJobs(s.ID)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Detached(w.ctx, tx, s.ID, compute.VolumeArgs{VolumeID: vol.ID})
	})
	w.act(s.ID, compute.Act{Action: compute.AttachVolume, VolumeID: vol.ID}, alice)
	drop(compute.VolumeError, "", 1)
}
