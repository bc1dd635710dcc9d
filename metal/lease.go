package metal

import (
	"context"
	"slices"

	"salvor/job"
	"salvor/record"
)

// instanceless are the states in which a node holds no instance that boots from its volume targets.
var instanceless = []State{Enroll, Manageable, Available, InspectFailed, AdoptFailed, CleanFailed}

// EndLease removes the volume connectors of every lessee except the node's present one. If no instance boots from the volume targets
// of such lessees, it removes those too. Otherwise storage would admit the former lessee to the volumes of the next one. Diagnoses
// and repairs, which hold texts of the disks, end with each change of lessee or owner.
func (s *Nodes) EndLease(ctx context.Context, tx job.Tx, n *Node) error {
	before, err := s.store.Node(ctx, tx, n.ID)
	if err == nil && (before.Lessee != n.Lessee || before.Owner != n.Owner) {
		err = DropTenancy(s.store, tx, n.ID)
	}
	if err != nil || before.Lessee == "" || before.Lessee == n.Lessee {
		return err
	}
	if err := s.DropLesseeConnectors(ctx, tx, n.ID, n.Lessee); err != nil || !slices.Contains(instanceless, n.ProvisionState) {
		return err
	}
	targets, err := s.store.Targets().List(ctx, tx, TargetFilter{NodeID: n.ID}, record.Page{Limit: 1000})
	for _, t := range targets {
		if err == nil && t.Lessee != "" && t.Lessee != n.Lessee {
			err = s.store.Targets().Delete(tx, t)
		}
	}
	return err
}

// DropLesseeConnectors removes the volume connectors of a node that lessees made, except those of the lessee keep.
func (s *Nodes) DropLesseeConnectors(ctx context.Context, tx job.Tx, nodeID, keep string) error {
	all, err := s.store.Connectors().List(ctx, tx, ConnectorFilter{NodeID: nodeID}, record.Page{Limit: 1000})
	for _, c := range all {
		if err != nil {
			return err
		}
		if c.Lessee == "" || c.Lessee == keep {
			continue
		}
		if err = s.store.Connectors().Delete(tx, c); err == nil {
			err = s.note(tx, nodeID, record.Asker{}, "request", "volume connector "+c.ID+" deleted: project "+c.Lessee+", which made it, does not lease the node any more")
		}
	}
	return err
}
