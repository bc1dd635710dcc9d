package service_test

import (
	"testing"

	"salvor/compute"
	"salvor/diagnose"
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

// TestADroppedDiagnosisChangesNoServer: the release of a restored database that drops the job of a diagnosis ends the diagnosis with words. The
// server keeps its state, its epoch and its orders, because the diagnosis only read.
func TestADroppedDiagnosisChangesNoServer(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	begun := must.Get(w.Diagnoses.Begin(w.ctx, s.ID, nil, alice))(t)
	cause := problem.Conflictf("its job was dropped when the database was restored")
	j := w.jobs(s.ID)[0]
	j.SetCause(cause)
	w.tx(func(tx job.Tx) error {
		if err := w.store.DropJob(tx, j, cause); err != nil {
			return err
		}
		return w.HeldDatabase.ShowDropped(w.ctx, tx, j)
	})
	if got := w.read(s.ID); got.State != compute.Active || got.Epoch != s.Epoch || got.Fault != nil {
		t.Errorf("the server after its diagnosis was dropped: state %s, epoch %d, fault %+v; want active, epoch %d and no fault", got.State, got.Epoch, got.Fault, s.Epoch)
	}
	d := must.Get(w.Diagnoses.List(w.ctx, s.ID))(t)[0]
	if d.ID != begun.ID || d.State != diagnose.Failed || d.Problem != cause.Error() || d.FinishedAt.IsZero() {
		t.Errorf("the dropped diagnosis: %+v; want it failed with the problem %q", d, cause)
	}
	if _, err := w.Diagnoses.Begin(w.ctx, s.ID, nil, alice); err != nil {
		t.Errorf("diagnose again: %v", err)
	}
}

// TestADiagnosisWithoutItsJobBlocksNobody: a diagnosis whose record says that it runs, and whose job is gone, does not keep anybody from asking for
// another one. The record ends, and says why.
func TestADiagnosisWithoutItsJobBlocksNobody(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	must.Get(w.Diagnoses.Begin(w.ctx, s.ID, nil, alice))(t)
	if _, err := w.Diagnoses.Begin(w.ctx, s.ID, nil, alice); !problem.Is(err, problem.Conflict) {
		t.Errorf("a second diagnosis while the job of the first one is open: %v, want a conflict", err)
	}
	w.endJobs(s.ID)
	if _, err := w.Diagnoses.Begin(w.ctx, s.ID, nil, alice); err != nil {
		t.Fatalf("diagnose again: %v", err)
	}
	if all := must.Get(w.Diagnoses.List(w.ctx, s.ID))(t); all[1].State != diagnose.Failed || all[1].Problem != job.GoneProblem {
		t.Errorf("the diagnosis whose job was gone: %+v, want it failed with the problem %q", all[1], job.GoneProblem)
	}
}
