package metal

import (
	"context"
	"slices"

	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// HalfWritten is the id of the repair whose before-images make the node's disks whole again; empty: they are whole.
func (n *Node) HalfWritten() string {
	if n.Rescue == nil {
		return ""
	}
	return n.Rescue.HalfWritten
}

// Undo is how the repair can be taken back now. What an exact undo wrote cannot be taken back.
func (r *Repair) Undo(n *Node) UndoMethod {
	switch r.State {
	case RepairWritten, RepairInterrupted, RepairUnproven:
		sameSession := n.ProvisionState.Info().InRescue && n.Rescue != nil && n.Rescue.StartedAt.Equal(r.Session)
		ownSystem := r.Booted || n.HalfWritten() != r.ID && sameSession && n.Rescue.Begun != r.SessionBegun
		if sameSession && !ownSystem && r.UndoPages > 0 {
			return UndoExact
		}
	case RepairProven:
	default:
		return UndoNone
	}
	if r.UndoFiles > 0 {
		return UndoFiles
	}
	return UndoNone
}

// BeginUndo begins to take a repair back. Conflict: it cannot be taken back.
func (s NodeRepairs) BeginUndo(ctx context.Context, ident, id string, args RepairArgs, asker record.Asker) (Repair, error) {
	n, r, err := s.find(ctx, nil, ident, id)
	if err != nil {
		return Repair{}, err
	}
	images, half := "", n.HalfWritten()
	switch {
	case half != "" && (id == "newest" || r.Args.Undoes == half):
		images = half
	case r.isInterruptedExactUndo():
		images = r.Args.Undoes
	}
	if images != "" { // an undo that was interrupted is taken back by the same images
		if n, r, err = s.find(ctx, nil, n.ID, images); err != nil {
			return Repair{}, err
		}
	}
	args.Findings, args.Undoes, args.Method = nil, r.ID, r.Undo(n)
	if args.Method == UndoNone {
		if lost := r.UndoLost(); lost != "" {
			return Repair{}, problem.Conflictf("node %s: repair %s cannot be taken back: %s", n.ID, r.ID, lost)
		}
		return Repair{}, problem.Conflictf("node %s: repair %s is in state %s, and there is nothing that can be taken back", n.ID, r.ID, r.State)
	}
	return s.begin(ctx, n.ID, args, asker, "asked to undo repair "+r.ID)
}

// isInterruptedExactUndo tells whether the repair is an exact undo that was interrupted.
func (r *Repair) isInterruptedExactUndo() bool {
	return r.State == RepairInterrupted && r.Args.Method == UndoExact
}

// interruptedRepair is the newest repair that left the disks half-written and that an undo can take back; nil: there is none, or an undo makes the
// disks whole.
func interruptedRepair(all []Repair, undone string) (found *Repair) {
	for i := range all {
		if all[i].State != RepairInterrupted || all[i].UndoPages == 0 && all[i].UndoFiles == 0 && !all[i].isInterruptedExactUndo() {
			continue
		}
		if undone != "" && (all[i].ID == undone || all[i].Args.Undoes == undone) {
			return nil
		}
		if found == nil {
			found = &all[i]
		}
	}
	return found
}

// SetUndone notes inside a job's transaction that a repair is taken back. An undo of it that was interrupted before is over with that.
func (s NodeRepairs) SetUndone(ctx context.Context, tx job.Tx, nodeID, id string) error {
	n, err := s.nodes.store.Node(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	all, err := s.List(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	for i := range all {
		r := &all[i]
		switch {
		case r.ID == id:
			r.State, r.Problem = RepairUndone, ""
			if slices.Contains(r.Needs, diagnose.ConsentSettings) {
				r.Problem = "settings of the firmware and the clock stay as the repair made them"
			}
		case r.Args.Undoes == id && r.State == RepairInterrupted:
			r.State, r.Problem = RepairFailed, "a later undo made the disks whole"
		}
	}
	return s.save(tx, n, all)
}
