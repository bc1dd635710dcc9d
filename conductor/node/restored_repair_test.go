package node

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"salvor/compute/service"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/restored"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/wire/agent"
)

// releasedAmidWriting is a bench whose job that writes a repair tried a command of the agent in vain when the database was restored. The release has
// ended the job where the job stood.
func releasedAmidWriting(t *testing.T, silentAt string) *bench {
	t.Helper()
	b := newRepaired(t, metal.PowerOff)
	b.mender.silentAt = silentAt
	stop := b.run(t)
	b.beginRepair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest(), KeepRescue: true})
	if silentAt == agent.RestoreImages {
		b.ends(t)
		beginUndo(t, b)
	}
	fixture.PollActing(t, "the job that writes tries "+silentAt+" again", func() { b.poke(); b.consentToAll() }, func() bool {
		for _, j := range b.open(t) {
			if j.Kind == metal.JobWriteRepair && (j.Attempt > 0 || j.Action == "write to the disks") && j.State == job.Ready {
				return true
			}
		}
		return false
	}, b.picture)
	stop()
	b.mu.Lock()
	b.mender.silentAt = ""
	b.mu.Unlock()
	must.OK(t, b.store.HoldDatabase(t.Context(), record.HeldBackup, "a test"))
	b.readHeld(t)
	s := restored.New(b.store, service.New(b.store, b.store, service.Options{}, time.Now), time.Now)
	must.Get(s.Release(t.Context(), restored.Wanted{Decision: restored.EndOperations}, record.Asker{User: "op"}))(t)
	b.run(t)
	b.ends(t)
	return b
}

// TestRestoredRepairAmidItsWriting: the history that was lost may have written what the restored history only prepares. So a repair whose job that
// writes ends with the release is not called failed, which means that nothing was written, and the command that salvor names is accepted.
func TestRestoredRepairAmidItsWriting(t *testing.T) {
	t.Parallel()
	for silentAt, c := range map[string]struct {
		undo metal.UndoMethod
		next func(r metal.Repair) string
	}{
		agent.BeforeImages:  {metal.UndoNone, func(r metal.Repair) string { return "salvor diagnose NODE" }},
		agent.FileContents:  {metal.UndoExact, func(r metal.Repair) string { return "salvor repair undo NODE " + r.ID }},
		agent.RestoreImages: {metal.UndoExact, func(r metal.Repair) string { return "salvor repair undo NODE " + r.Args.Undoes }}, // an exact undo
	} {
		t.Run(silentAt, func(t *testing.T) {
			t.Parallel()
			b := releasedAmidWriting(t, silentAt)
			r, n := b.newestRepair(t), b.stored(t)
			next := strings.ReplaceAll(c.next(r), "NODE", b.node)
			for what, text := range map[string]string{"the repair's problem": r.Problem, "the node's maintenance reason": n.MaintenanceReason} {
				if !strings.Contains(text, "nobody knows whether the disks were written") || !strings.Contains(text, "next: "+next) {
					t.Errorf("%s is %q; want it to say that nobody knows whether the disks were written, and next: %s", what, text, next)
				}
			}
			if r.State != metal.RepairInterrupted || r.IsRunning() {
				t.Errorf("repair %s, running %t; want %s, ended", r.State, r.IsRunning(), metal.RepairInterrupted)
			}
			undone, _, undo, err := b.repairs().Find(t.Context(), b.node, cmp.Or(r.Args.Undoes, r.ID))
			if err != nil || undo != c.undo {
				t.Errorf("the undo of repair %s is %s, error %v; want %s", undone.ID, undo, err, c.undo)
			}
			if c.undo == metal.UndoExact {
				_, err = b.repairs().BeginUndo(t.Context(), b.node, r.ID, metal.RepairArgs{}, record.Asker{User: "ann"})
			} else {
				_, err = b.nodes.Diagnose(t.Context(), b.node, metal.DiagnoseArgs{}, record.Asker{User: "ann"})
			}
			if err != nil {
				t.Errorf("the command that is named, %s, is refused: %v", next, err)
			}
			b.ends(t)
			if c.undo == metal.UndoExact {
				return
			}
			if _, err := b.repairs().Begin(t.Context(), b.node, metal.RepairArgs{Consents: filesConsent}, record.Asker{User: "ann"}); err != nil {
				t.Errorf("a repair of a machine that nothing can undo is refused: %v", err)
			}
		})
	}
}
