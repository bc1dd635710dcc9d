package metal

import (
	"context"
	"fmt"
	"slices"

	"salvor/job"
	"salvor/record"
)

// RepairSize is how many bytes the parts of a repair take in the database, sealed.
type RepairSize struct {
	NodeID, RepairID string
	Bytes            int64
}

// KeepWithin drops the plans of the oldest repairs, with what undoes them, until the repairs of all nodes of this node's project take at most so many
// bytes. An agent that lies chooses how much undoes a repair, so the bound of one repair does not bound a project with many nodes. A repair that is
// needed now keeps its parts. isWithin is false where these repairs alone take more.
func (s NodeRepairs) KeepWithin(ctx context.Context, tx job.Tx, nodeID string, most int64) (isWithin bool, err error) {
	n, err := s.nodes.store.Node(ctx, tx, nodeID)
	if err != nil {
		return false, err
	}
	sizes, err := s.nodes.store.RepairSizes(ctx, tx, n.InstanceReader())
	if err != nil {
		return false, err
	}
	var total int64
	for _, z := range sizes {
		total += z.Bytes
	}
	for _, z := range sizes {
		if total <= most {
			break
		}
		dropped, err := s.dropUndo(ctx, tx, z, most)
		if err != nil {
			return false, err
		}
		if dropped {
			total -= z.Bytes
		}
	}
	return total <= most, nil
}

// dropUndo drops the parts of a repair, and notes that in the timeline of the node. dropped is false for a repair whose parts are needed now.
func (s NodeRepairs) dropUndo(ctx context.Context, tx job.Tx, z RepairSize, most int64) (dropped bool, err error) {
	n, err := s.nodes.store.Node(ctx, tx, z.NodeID)
	if err != nil {
		return false, err
	}
	all, err := s.List(ctx, tx, n.ID)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(all, func(r Repair) bool { return r.ID == z.RepairID })
	if i >= 0 && all[i].needsUndo(n, all) {
		return false, nil
	}
	var keep []string
	for _, r := range all {
		if r.ID != z.RepairID {
			keep = append(keep, r.ID)
		}
	}
	if err := s.nodes.store.DropRepairParts(tx, n.ID, keep); err != nil || i < 0 {
		return err == nil, err
	}
	r := &all[i]
	r.UndoBytes, r.UndoPages, r.UndoFiles, r.UndoDropped = 0, 0, 0, s.nodes.now()
	if err := s.save(tx, n, all); err != nil {
		return false, err
	}
	text := fmt.Sprintf("the plan of repair %s and what undoes it were dropped: the repairs of its project take more than %d MiB", r.ID, most>>20)
	return true, s.nodes.note(tx, n.ID, record.Asker{}, "request", text)
}

// needsUndo tells whether the plan of the repair and what undoes it are needed now: by its own job, by the job of an undo, or by disks that are
// half-written.
func (r *Repair) needsUndo(n *Node, all []Repair) bool {
	isUndone := slices.ContainsFunc(all, func(other Repair) bool {
		return other.Args.Undoes == r.ID && (other.IsRunning() || other.isInterruptedExactUndo())
	})
	return r.IsRunning() || r.State == RepairInterrupted || isUndone || n.HalfWritten() == r.ID
}

// UndoLost is why a repair cannot be taken back any more that could be before; empty: its parts are kept.
func (r *Repair) UndoLost() string {
	if r.UndoDropped.IsZero() {
		return ""
	}
	return "its plan and what undoes it were dropped at " + record.Moment(r.UndoDropped) + ", because the repairs of its project took more than [repair]undo_project_max_mib"
}
