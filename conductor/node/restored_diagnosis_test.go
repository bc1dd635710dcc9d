package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"salvor/compute/service"
	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/restored"
	"salvor/test/must"
)

// TestRestoredDiagnosisAndRepair: the release of a restored database that ends the job of a diagnosis or a repair ends its record with words, leaves
// the node as it is, and the node can be diagnosed or repaired again at once.
func TestRestoredDiagnosisAndRepair(t *testing.T) {
	t.Parallel()
	const want = "ended when the restored database was released"
	for what, c := range map[string]struct {
		begin   func(b *bench) error
		problem func(t *testing.T, b *bench) (ended bool, problem string)
	}{
		"diagnosis": {func(b *bench) error {
			_, err := b.nodes.Diagnose(context.Background(), b.node, metal.DiagnoseArgs{}, record.Asker{User: "ann"})
			return err
		}, func(t *testing.T, b *bench) (bool, string) {
			d := b.diagnosis(t)
			return d.State == diagnose.Failed && !d.FinishedAt.IsZero(), d.Problem
		}},
		"repair": {func(b *bench) error {
			_, err := metal.NewNodeRepairs(b.nodes).Begin(context.Background(), b.node, metal.RepairArgs{}, record.Asker{User: "ann"})
			return err
		}, func(t *testing.T, b *bench) (bool, string) {
			r := must.Get(metal.NewNodeRepairs(b.nodes).Newest(context.Background(), b.node))(t)[0]
			return r.State == metal.RepairFailed && !r.IsRunning(), r.Problem
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newDiagnosed(t, metal.PowerOff)
			must.OK(t, c.begin(b))
			before := b.stored(t)
			must.OK(t, b.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
			b.readHeld(t)
			s := restored.New(b.store, service.New(b.store, b.store, service.Options{}, time.Now), time.Now)
			must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.EndOperations}, record.Asker{User: "op"}))(t)
			b.run(t)
			b.ends(t)
			if ended, problem := c.problem(t, b); !ended || !strings.Contains(problem, want) {
				t.Errorf("the record of the %s after the release: ended %t, problem %q; want an ended one that says %q", what, ended, problem, want)
			}
			n := b.stored(t)
			if n.ProvisionState != before.ProvisionState || n.Maintenance || n.LastError != "" || n.Fault != "" {
				t.Errorf("the node after the release: state %s, maintenance %t, last error %q, fault %q; want it as it was, in state %s", n.ProvisionState, n.Maintenance, n.LastError, n.Fault, before.ProvisionState)
			}
			if err := c.begin(b); err != nil {
				t.Errorf("a second %s: %v", what, err)
			}
		})
	}
}

// TestARecordWithoutItsJobBlocksNobody: a diagnosis or a repair whose record says that it runs, and whose job is gone, does not keep anybody from
// asking for another one. The record ends, and says why.
func TestARecordWithoutItsJobBlocksNobody(t *testing.T) {
	t.Parallel()
	b := newDiagnosed(t, metal.PowerOff)
	ctx := context.Background()
	diagnoseNode := func() error {
		_, err := b.nodes.Diagnose(ctx, b.node, metal.DiagnoseArgs{}, record.Asker{})
		return err
	}
	must.OK(t, diagnoseNode())
	if err := diagnoseNode(); err == nil {
		t.Error("a second diagnosis began while the job of the first one is open")
	}
	open := b.open(t)[0]
	claimed := must.Get(b.store.Claim(ctx, "a conductor", b.store.Now().Add(time.Second), []string{""}, map[job.Kind]int{open.Kind: open.Version}, 1))(t)
	claimed[0].State, claimed[0].EndedAt = job.Ended, b.store.Now()
	must.OK(t, b.store.Do(ctx, func(tx job.Tx) error { return b.store.Save(tx, &claimed[0], false) }))
	must.OK(t, diagnoseNode())
	if all := must.Get(b.nodes.Diagnoses(ctx, nil, b.node))(t); all[0].State != diagnose.Running || all[1].State != diagnose.Failed || !strings.Contains(all[1].Problem, "its job is gone") {
		t.Errorf("diagnoses after the first one's job was gone: %+v", all)
	}
}
