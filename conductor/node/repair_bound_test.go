package node

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// addRepaired adds a node of a project with a repair whose before-images take at least so many bytes.
func (b *bench) addRepaired(t *testing.T, project string, size int, r metal.Repair) *metal.Node {
	t.Helper()
	n := &metal.Node{ID: uuid.NewString(), Driver: "bench", ProvisionState: metal.Active, Owner: "somebody", Lessee: project}
	must.OK(t, b.store.Do(t.Context(), func(tx job.Tx) error {
		if err := b.store.InsertNode(tx, n); err != nil {
			return err
		}
		body := must.Get(json.Marshal([]metal.Repair{r}))(t)
		if err := b.store.SaveDocument(tx, metal.Document{NodeID: n.ID, Kind: metal.Repairs, Body: body}); err != nil {
			return err
		}
		for name, part := range map[string][]byte{metal.RepairPlanPart: []byte("{}"), metal.RepairImagesPart(1): bytes.Repeat([]byte("x"), size)} {
			if err := b.store.SaveRepairPart(tx, metal.RepairPart{NodeID: n.ID, RepairID: r.ID, Name: name, Body: part}); err != nil {
				return err
			}
		}
		return nil
	}))
	return n
}

// TestUndoIsBoundedOverAProject: what undoes the repairs of all nodes of a project has one bound. The oldest repairs lose it first, those of other
// projects and those that are needed now keep it, and where only such are left, nothing is written.
func TestUndoIsBoundedOverAProject(t *testing.T) {
	t.Parallel()
	const project, large = "lessee", 256 << 10
	begun := time.Now().Add(-time.Hour)
	old := metal.Repair{ID: "old", State: metal.RepairUnproven, RequestedAt: begun, FinishedAt: begun, UndoBytes: large, UndoPages: 1, UndoFiles: 2}
	for name, c := range map[string]struct {
		project string
		change  func(*metal.Repair)
		dropped bool
		want    metal.RepairState // of the new repair
	}{
		"an old repair":      {project, func(*metal.Repair) {}, true, metal.RepairProven},
		"of another project": {"another", func(*metal.Repair) {}, false, metal.RepairProven},
		"half-written disks": {project, func(r *metal.Repair) { r.State = metal.RepairInterrupted }, false, metal.RepairFailed},
		"a repair under way": {project, func(r *metal.Repair) { r.State, r.FinishedAt = metal.RepairWriting, time.Time{} }, false, metal.RepairFailed},
		"a plan of long ago": {project, func(r *metal.Repair) { r.State = metal.RepairPlanned }, true, metal.RepairProven},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRepaired(t, metal.PowerOff)
			change(t, b, func(n *metal.Node) { n.Lessee = project })
			kept := old
			c.change(&kept)
			n := b.addRepaired(t, c.project, large, kept)
			newer := old
			newer.ID = "newer"
			second := b.addRepaired(t, c.project, 1<<10, newer)
			b.con.ProjectUndoBytes = large
			b.run(t)
			r := b.repair(t, metal.RepairArgs{Consents: filesConsent, Digest: menderDigest()})
			if r.State != c.want || c.want == metal.RepairFailed && !strings.Contains(r.Problem, "undo_project_max_mib") || c.want == metal.RepairProven && r.UndoPages == 0 {
				t.Errorf("the new repair: want %s, with its undo or the name of the option; got %s with %d pages (%q)", c.want, r.State, r.UndoPages, r.Problem)
			}
			got := must.Get(b.repairs().Get(t.Context(), n.ID, kept.ID))(t)
			_, err := b.store.RepairPart(t.Context(), nil, n.ID, kept.ID, metal.RepairImagesPart(1))
			if isGone := err != nil; isGone != c.dropped || got.UndoDropped.IsZero() == c.dropped || (got.UndoPages == 0) != c.dropped || (got.UndoLost() == "") == c.dropped {
				t.Errorf("the old repair: want its parts dropped %v, got %v; noted %q", c.dropped, err, got.UndoLost())
			}
			isNeeded := c.want == metal.RepairFailed
			if _, err := b.store.RepairPart(t.Context(), nil, second.ID, newer.ID, metal.RepairImagesPart(1)); (err != nil) != isNeeded {
				t.Errorf("the newer repair: want its parts dropped %v, got %v", isNeeded, err)
			}
			texts := b.timelineOf(t, n.ID)
			if told := slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "what undoes it were dropped") }); told != c.dropped {
				t.Errorf("the timeline of the old repair's node: want it to tell of the dropping %v, got %q", c.dropped, texts)
			}
		})
	}
}

// timelineOf lists the texts of a node's events.
func (b *bench) timelineOf(t *testing.T, id string) (out []string) {
	t.Helper()
	for _, e := range must.Get(b.store.Events(t.Context(), job.Node(id), 0, 1000))(t) {
		out = append(out, e.Text)
	}
	return out
}
