package metal

import (
	"context"
	"reflect"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Update changes a record: change edits a copy, which is then checked and saved if
// nobody else changed the node meanwhile (else change runs again on the newer one).
func (s *Nodes) Update(ctx context.Context, ident string, asker record.Asker, change func(*Node) error) (*Node, error) {
	for range 5 {
		n, err := s.tryUpdate(ctx, ident, asker, change)
		if err == record.ErrChanged {
			continue
		}
		return n, err
	}
	return nil, problem.Conflictf("node %s keeps changing; ask again", ident)
}

func (s *Nodes) tryUpdate(ctx context.Context, ident string, asker record.Asker, change func(*Node) error) (*Node, error) {
	old, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return nil, err
	}
	n := old.Clone()
	if err := change(n); err != nil {
		return nil, err
	}
	mend := old.Reservation != "" && changesOnlyDriverInfo(old, n)
	if old.Reservation != "" && !mend {
		return nil, Locked(old)
	}
	if !mend && !old.ProvisionState.Info().Updatable && !old.Maintenance {
		return nil, problem.Conflictf("Node %s can not be updated while a state transition is in progress.", old.ID)
	}
	if err := s.checkRehome(old, n); err != nil {
		return nil, err
	}
	if err := checkAppendParams(n, old); err != nil {
		return nil, err
	}
	if old.Driver != n.Driver || !reflect.DeepEqual(old.DriverInfo, n.DriverInfo) {
		KeepBMC(n, BMC{}) // it may be another BMC
	}
	if err := s.check(ctx, n); err != nil {
		return nil, err
	}
	err = s.jobs.Do(ctx, func(tx job.Tx) error {
		now, err := s.store.Node(ctx, tx, old.ID)
		if err != nil {
			return err
		}
		if now.Version != old.Version {
			return record.ErrChanged
		}
		switch {
		case now.Reservation == "":
		case !mend:
			return Locked(now)
		default:
			if err := s.admitMend(tx, old, n); err != nil {
				return err
			}
		}
		if err := s.checkPlace(ctx, tx, n, old); err != nil {
			return err
		}
		if err := s.dropAllocation(ctx, tx, n); err != nil {
			return err
		}
		if err := s.EndLease(ctx, tx, n); err != nil {
			return err
		}
		if n.Maintenance != now.Maintenance || n.Fault != now.Fault {
			// As in SetMaintenance: a waiting job may have to stop, or may go on.
			if err := s.jobs.Signal(tx, job.Node(n.ID)); err != nil {
				return err
			}
		}
		if err := s.store.SaveNode(tx, n); err != nil {
			return err
		}
		if err := s.note(tx, n.ID, asker, "request", updatedText(old, n)); err != nil {
			return err
		}
		return s.warnOfKeys(ctx, tx, n, old, asker)
	})
	if err != nil {
		return nil, err
	}
	return s.store.Node(ctx, nil, n.ID)
}

// checkRehome refuses changes of driver and interfaces where a machine is in use by them.
func (s *Nodes) checkRehome(old, n *Node) error {
	if old.InstanceUUID != "" && n.InstanceUUID != "" && old.InstanceUUID != n.InstanceUUID {
		return problem.Conflictf("Node %s is associated with instance %s.", old.ID, old.InstanceUUID)
	}
	if old.ProvisionState.Info().InRescue && old.Driver != n.Driver {
		return problem.Conflictf("Node %s: the driver cannot be changed during a rescue; unrescue first", old.ID)
	}
	free := []State{Enroll, Manageable, Available, InspectFailed, AdoptFailed, CleanFailed, InspectWait}
	for _, kind := range InterfaceKinds {
		if old.Interfaces[kind] != n.Interfaces[kind] && !slices.Contains(free, old.ProvisionState) && !old.Maintenance {
			return problem.Invalidf("Node %s: %s_interface can only be changed in the states %v or in maintenance", old.ID, kind, free)
		}
	}
	return nil
}

// Remove deletes a node, with its ports and history, in the states that allow it.
func (s *Nodes) Remove(ctx context.Context, ident string, asker record.Asker) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, ident)
		if err != nil {
			return err
		}
		if n.Reservation != "" {
			return Locked(n)
		}
		if n.InstanceUUID != "" && !n.Maintenance {
			return problem.Conflictf("Node %s is associated with instance %s.", n.ID, n.InstanceUUID)
		}
		info := n.ProvisionState.Info()
		allowed := info.Deletable && (n.ProvisionState != Available || s.opts.AllowDeletingAvailable)
		if !allowed && !n.Maintenance {
			return problem.Conflictf("Can not delete node \"%s\" while it is in provision state \"%s\". Valid provision states for deletion are manageable, enroll, adopt failed and available, or put it in maintenance first.", n.ID, n.ProvisionState)
		}
		if n.Protected {
			return problem.Forbiddenf("Node %s is protected and can not be undeployed, rebuilt or deleted.", n.ID)
		}
		waiting, err := s.jobs.Unended(tx, job.Node(n.ID))
		if err != nil {
			return err
		}
		for _, j := range waiting {
			if err := s.jobs.Interrupt(tx, j.ID, job.Ended, problem.Conflictf("the node was deleted by %s", asker.User)); err != nil {
				return err
			}
		}
		if err := s.store.DeleteNode(tx, n); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", "node "+record.ListNames([]string{n.label()})+" deleted")
	})
}

// SetMaintenance switches maintenance on or off; it is allowed in every state and beside every job.
func (s *Nodes) SetMaintenance(ctx context.Context, ident string, on bool, reason string, asker record.Asker) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, ident)
		if err != nil {
			return err
		}
		// An operator's word stands until it is taken back: no recovery of a fault ends it.
		n.Maintenance, n.MaintenanceReason, n.Fault = on, reason, ""
		word := "on: " + reason
		if !on {
			n.MaintenanceReason, word = "", "off"
		}
		// What waits may have to stop, or may go on.
		if err := s.jobs.Signal(tx, job.Node(n.ID)); err != nil {
			return err
		}
		if err := s.store.SaveNode(tx, n); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", "maintenance "+word)
	})
}

// note writes a row of the node's timeline.
func (s *Nodes) note(tx job.Tx, nodeID string, asker record.Asker, kind, text string) error {
	return s.jobs.Append(tx, job.Event{Subject: job.Node(nodeID), At: s.now(), Type: kind, Text: text, Severity: "info", RequestID: asker.RequestID, User: asker.User})
}

// Advance moves a node by an event inside a job's transaction, lets change edit it
// in the same write, and writes the timeline. It is how jobs report.
func (s *Nodes) Advance(ctx context.Context, tx job.Tx, nodeID string, e Event, change func(*Node)) error {
	n, err := s.store.Node(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	t, err := ByEvent(n.ProvisionState, e)
	if err != nil {
		return err
	}
	to := t.To
	if to == Available && (n.Retired || n.TargetProvision == Manageable) {
		to = Manageable // as Ironic: cleaned by hand, or retired
	}
	s.enterState(n, to)
	power := n.PowerState
	if change != nil {
		change(n)
	}
	if err := s.dropAllocation(ctx, tx, n); err != nil {
		return err
	}
	if err := s.SavePower(tx, n, power); err != nil {
		return err
	}
	return s.noteState(tx, n, record.Asker{})
}

// Edit changes a node inside a job's transaction without moving it.
func (s *Nodes) Edit(ctx context.Context, tx job.Tx, nodeID string, change func(*Node)) error {
	n, err := s.store.Node(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	boot, power := n.BootNumber, n.PowerState
	change(n)
	if n.Plan != nil && n.BootNumber != boot {
		plan := *n.Plan
		plan.KeyID, n.Plan = s.key.ID(), &plan
	}
	return s.SavePower(tx, n, power)
}

// enterState puts a node into a state, with the target that clients see. A cleaning by hand
// keeps its own target from start to end.
func (s *Nodes) enterState(n *Node, to State) {
	target := to.Info().Target
	if n.TargetProvision == Manageable && n.ProvisionState.Info().Target == Available && target == Available {
		target = Manageable
	}
	n.ProvisionState, n.TargetProvision, n.ProvisionedAt = to, target, s.now()
}

func (s *Nodes) noteState(tx job.Tx, n *Node, asker record.Asker) error {
	e := job.Event{Subject: job.Node(n.ID), At: s.now(), Type: "state", Text: string(n.ProvisionState), Severity: "info", RequestID: asker.RequestID, User: asker.User}
	if n.LastError != "" {
		e.Severity, e.Text = "error", string(n.ProvisionState)+": "+n.LastError
	}
	return s.jobs.Append(tx, e)
}
