package service_test

import (
	"testing"

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
