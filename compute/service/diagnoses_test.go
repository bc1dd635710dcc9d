package service_test

import (
	"slices"
	"testing"
	"time"

	"salvor/compute"
	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// TestADiagnosisWithoutItsJobBlocksNobody: a diagnosis whose record says that it runs, and whose job is gone, does not keep anybody from asking for
// another one. The record ends, and says why.
func TestADiagnosisWithoutItsJobBlocksNobody(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	must.Get(w.Diagnoses.Begin(w.ctx, s.ID, compute.DiagnoseArgs{}, nil, alice))(t)
	if _, err := w.Diagnoses.Begin(w.ctx, s.ID, compute.DiagnoseArgs{}, nil, alice); !problem.Is(err, problem.Conflict) {
		t.Errorf("a second diagnosis while the job of the first one is open: %v, want a conflict", err)
	}
	w.endJobs(s.ID)
	if _, err := w.Diagnoses.Begin(w.ctx, s.ID, compute.DiagnoseArgs{}, nil, alice); err != nil {
		t.Fatalf("diagnose again: %v", err)
	}
	if all := must.Get(w.Diagnoses.List(w.ctx, s.ID))(t); all[1].State != diagnose.Failed || all[1].Problem != job.GoneProblem {
		t.Errorf("the diagnosis whose job was gone: %+v, want it failed with the problem %q", all[1], job.GoneProblem)
	}
}

// TestADiagnosisHoldsNoMove: the host of a server that is diagnosed dies. The evacuation of the server begins, and leaves the diagnosis to its own job,
// which fails by the server's new epoch.
func TestADiagnosisHoldsNoMove(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.join("host-b")
	begun := must.Get(w.Diagnoses.Begin(w.ctx, s.ID, compute.DiagnoseArgs{}, nil, alice))(t)
	w.pass(2 * time.Minute)
	receipt := must.Get(w.fence(w.host, compute.PowerCut))(t)
	if _, err := w.begin(s.ID, receipt); err != nil {
		t.Fatalf("the evacuation of a server that is diagnosed: %v", err)
	}
	var kinds []job.Kind
	for _, j := range w.jobs(s.ID) {
		kinds = append(kinds, j.Kind)
	}
	if want := []job.Kind{compute.JobMove, compute.JobDiagnose}; !slices.Equal(kinds, want) {
		t.Errorf("open jobs %q, want %q", kinds, want)
	}
	if d := must.Get(w.Diagnoses.List(w.ctx, s.ID))(t)[0]; d.ID != begun.ID || d.State != diagnose.Running {
		t.Errorf("the diagnosis is %+v, want it as it was", d)
	}
}
