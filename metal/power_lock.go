package metal

import (
	"context"
	"encoding/json"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// A node that is a host of servers is held off once it is fenced: whoever switched it on would start
// servers that live elsewhere by then.

// JobForcePowerOff switches a locked node off by force and proves it. It is a command, and its answer is a PowerOffProof.
const JobForcePowerOff job.Kind = "cut power"

// ForcePowerOffArgs are the arguments of JobForcePowerOff.
type ForcePowerOffArgs struct {
	// NotifySubject is woken at the end.
	NotifySubject job.Subject `json:"tell"`
}

// PowerOffProof is what JobForcePowerOff answers.
type PowerOffProof struct {
	// Reads are the two readings that were made after the machine was off.
	Reads []Power `json:"reads"`
	// Was is the power before.
	Was Power `json:"was"`
}

// heldOff refuses what would switch a held node on.
func (n *Node) heldOff() error {
	if n.PowerLock == "" {
		return nil
	}
	return problem.Conflictf("Node %s is held off: %s.", n.ID, n.PowerLock)
}

// LockPower keeps a node off until UnlockPower. words say why, and what ends it.
func (s *Nodes) LockPower(ctx context.Context, tx job.Tx, nodeID, reason string) error {
	n, err := s.store.Node(ctx, tx, nodeID)
	if err != nil || n.PowerLock == reason {
		return err
	}
	n.PowerLock = reason
	if err := s.store.SaveNode(tx, n); err != nil {
		return err
	}
	return s.note(tx, n.ID, record.Asker{}, "request", "held off: "+reason)
}

// UnlockPower lets a node be switched on again; what is not held, or is gone, is no error.
func (s *Nodes) UnlockPower(ctx context.Context, tx job.Tx, nodeID string) error {
	n, err := s.store.Node(ctx, tx, nodeID)
	if problem.Is(err, problem.NotFound) || err == nil && n.PowerLock == "" {
		return nil
	}
	if err != nil {
		return err
	}
	n.PowerLock = ""
	if err := s.store.SaveNode(tx, n); err != nil {
		return err
	}
	return s.note(tx, n.ID, record.Asker{}, "request", "no longer held off")
}

// CutPower inserts JobForcePowerOff with that id for a node, ahead of all that is asked of it later; Conflict while somebody works on it. A node
// that must not be switched off is Invalid.
func (s *Nodes) CutPower(ctx context.Context, tx job.Tx, nodeID, id string, tell job.Subject) error {
	n, err := s.store.Node(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	if n.DisablePowerOff {
		return problem.Invalidf("node %s has disable_power_off set: it is not switched off", n.ID)
	}
	if n.Reservation != "" {
		return Locked(n)
	}
	raw, err := json.Marshal(ForcePowerOffArgs{NotifySubject: tell})
	if err != nil {
		return err
	}
	return s.jobs.Insert(tx, &job.Job{ID: id, Kind: JobForcePowerOff, Class: job.Command, Subject: job.Node(n.ID), Group: n.ConductorGroup, Args: raw})
}
