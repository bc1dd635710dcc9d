package service

import (
	"context"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// moving reads a move that goes on, and its server.
func (s *Moves) moving(ctx context.Context, tx job.Tx, moveID string) (*compute.Move, *compute.Server, error) {
	m, err := s.store.Moves().Get(ctx, tx, moveID)
	if err != nil {
		return nil, nil, err
	}
	srv, err := s.store.Servers().Get(ctx, tx, m.ServerID)
	if err == nil && !m.Going() {
		err = problem.Conflictf("move %s has ended: %s", m.ID, m.State)
	}
	return m, srv, err
}

// Claim gives the server of a move its destination and a place there, and gives that at its former host back: a.DestID if it can
// take the server, else, unless a.Force, the best host that is not in except. A move that has one already keeps it.
func (s *Moves) Claim(ctx context.Context, tx job.Tx, moveID string, a compute.MoveArgs, except []string) (*compute.Host, error) {
	m, srv, err := s.moving(ctx, tx, moveID)
	if err != nil {
		return nil, err
	}
	if m.State != compute.MoveAccepted {
		return s.store.Hosts().Get(ctx, tx, m.DestID)
	}
	if err := s.stillLost(ctx, tx, srv, m); err != nil {
		return nil, err
	}
	h, err := s.destination(ctx, tx, srv, m, a, except)
	if err != nil {
		return nil, err
	}
	m.DestID, m.State = h.ID, compute.MovePreparing
	if err := s.reassignHost(ctx, tx, srv, h.ID); err != nil {
		return nil, err
	}
	m.RecordEpoch(srv.Epoch)
	if err := s.store.Moves().Save(tx, m); err != nil {
		return nil, err
	}
	return h, s.note(tx, srv.ID, record.Asker{}, "contact", "goes to host "+compute.OrID(h))
}

// Release takes the destination of a move back, because of why, so that another one is claimed.
func (s *Moves) Release(ctx context.Context, tx job.Tx, moveID, why string) error {
	m, srv, err := s.moving(ctx, tx, moveID)
	if err != nil || m.State != compute.MovePreparing {
		return err
	}
	m.State, m.DestID = compute.MoveAccepted, ""
	if err := s.reassignHost(ctx, tx, srv, m.SourceID); err != nil {
		return err
	}
	m.RecordEpoch(srv.Epoch)
	if err := s.store.Moves().Save(tx, m); err != nil {
		return err
	}
	return s.note(tx, srv.ID, record.Asker{}, "contact", "not there: "+why)
}

// reassignHost gives a server another host, with its place there, and an epoch of its own: what was ordered before is void.
func (s *Moves) reassignHost(ctx context.Context, tx job.Tx, srv *compute.Server, to string) error {
	if err := s.unreserve(ctx, tx, srv); err != nil {
		return err
	}
	from := srv.HostID
	srv.HostID = to
	srv.Epoch++
	if err := s.save(tx, srv); err != nil {
		return err
	}
	if err := s.store.VoidOrders(tx, srv.ID, srv.Epoch); err != nil {
		return err
	}
	h, err := s.store.Hosts().Get(ctx, tx, to)
	if err != nil {
		return ignoreNotFound(err)
	}
	if !srv.Foreign {
		h.Reserve(compute.NeedsOf(srv, ""))
		if err := s.saveHost(tx, h); err != nil {
			return err
		}
	}
	return s.refreshHostCache(ctx, tx, from, h)
}

// refreshHostCache tells the host cache what was reserved and given back.
func (s *Moves) refreshHostCache(ctx context.Context, tx job.Tx, from string, to *compute.Host) error {
	kept := *to
	s.placement.put(&kept)
	h, err := s.store.Hosts().Get(ctx, tx, from)
	if err != nil {
		return ignoreNotFound(err)
	}
	s.placement.put(h)
	return nil
}

// Attach is the point from which there is no way back: what was prepared at the destination may be defined and started.
// Conflict if the receipt was closed meanwhile; Unavailable: not yet.
func (s *Moves) Attach(ctx context.Context, tx job.Tx, moveID string) error {
	m, srv, err := s.moving(ctx, tx, moveID)
	if err != nil || m.State == compute.MoveAttached {
		return err
	}
	if m.State != compute.MovePreparing {
		return problem.Conflictf("move %s has no destination yet", m.ID)
	}
	var receipt *compute.Receipt
	if m.ReceiptID != "" {
		if receipt, err = s.useFor(ctx, tx, m); err != nil {
			return err
		}
	}
	if err := s.reports.holdAttach(ctx, tx, m, receipt); err != nil {
		return err
	}
	if srv.Disks, err = s.disksThere(ctx, tx, srv, m); err != nil {
		return err
	}
	if err := s.save(tx, srv); err != nil {
		return err
	}
	m.State, m.Clean = compute.MoveAttached, compute.CleanGuest
	if m.Disposition == compute.Reimage {
		m.Clean = compute.CleanDisk
	}
	return s.store.Moves().Save(tx, m)
}

// useFor holds the receipt of a move that is about to attach. Unavailable while the boot that was fenced speaks, and may have guests,
// and while the receipt is a former one.
func (s *Moves) useFor(ctx context.Context, tx job.Tx, m *compute.Move) (*compute.Receipt, error) {
	if err := s.store.UseReceipt(tx, m.ReceiptID); err != nil {
		return nil, err
	}
	receipt, err := s.store.Receipts().Get(ctx, tx, m.ReceiptID)
	switch {
	case err != nil:
	case receipt.Former():
		err = problem.Unavailablef("server %s waits: %s", m.ServerID, receipt.ExplainFormer(receipt.HostID))
	case receipt.Doubted():
		err = problem.Unavailablef("the former host of server %s spoke after it was fenced, and has not told that its guests are stopped", m.ServerID)
	}
	return receipt, err
}

// Finish ends a move well: the server lives at its destination. change has the last word on the server.
func (s *Moves) Finish(ctx context.Context, tx job.Tx, moveID string, change func(*compute.Server)) error {
	m, err := s.store.Moves().Get(ctx, tx, moveID)
	if err != nil {
		return err
	}
	if err := s.servers.Finish(ctx, tx, m.ServerID, change); err != nil {
		return err
	}
	if m.State, m.EndedAt = compute.MoveDone, s.now(); m.Clean == "" {
		m.State = compute.MoveCompleted
	}
	if err := s.store.Moves().Save(tx, m); err != nil {
		return err
	}
	return s.note(tx, m.ServerID, record.Asker{}, "state", compute.JoinWords("lives at its new host", m.Words))
}

// Fail ends a move that came to nothing. One that has not attached leaves the server as it was, where it was; later the server
// is in error at its destination, and the source is told to clean up all the same.
func (s *Moves) Fail(ctx context.Context, tx job.Tx, moveID, why string) error {
	m, err := s.store.Moves().Get(ctx, tx, moveID)
	if err != nil || !m.Going() {
		return ignoreNotFound(err)
	}
	srv, err := s.store.Servers().Get(ctx, tx, m.ServerID)
	if err != nil {
		return ignoreNotFound(err)
	}
	if m.State == compute.MoveAttached {
		srv.State, srv.Fault = compute.Errored, &compute.Fault{Code: 500, Message: "The server could not be started at its new host: " + why, CreatedAt: s.now()}
		srv.Wanted = srv.Power
		srv.Epoch++
		m.State = compute.MoveDone
		if err := s.endTask(ctx, tx, srv); err != nil {
			return err
		}
	} else if err := s.revertToSource(ctx, tx, srv, m, why); err != nil {
		return err
	}
	m.Problem, m.EndedAt = why, s.now()
	if err := s.store.Moves().Save(tx, m); err != nil {
		return err
	}
	e := job.Event{Subject: compute.Subject(srv.ID), Type: "state", Text: "the move came to nothing: " + why, Severity: "error"}
	if err := s.jobs.Append(tx, e); err != nil {
		return err
	}
	return s.servers.beginDeletion(ctx, tx, srv)
}

// revertToSource puts a server back that has attached nowhere else. What the move had taken over from a job that was given up is asked anew.
func (s *Moves) revertToSource(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move, why string) error {
	former := m.State
	m.State = compute.MoveFailed
	if former == compute.MoveAccepted {
		m.State = compute.MoveError
	}
	if srv.HostID != m.SourceID {
		if err := s.reassignHost(ctx, tx, srv, m.SourceID); err != nil {
			return err
		}
	} else {
		srv.Epoch++
	}
	broken := m.WasBuilding() || m.WasTask == compute.Rescuing || m.WasTask == compute.Unrescuing
	if srv.InSession() && (srv.Rescue.State == rescue.Preparing || srv.Rescue.State == rescue.Leaving) {
		session := *srv.Rescue
		session.State = rescue.Failed
		srv.Rescue, broken = &session, true
	}
	if broken {
		srv.State = compute.Errored
		srv.Fault = &compute.Fault{Code: 500, Message: "The host of the server was fenced, and it could not be moved: " + why, CreatedAt: s.now()}
	}
	return s.endTask(ctx, tx, srv)
}

// endTask frees a server whose epoch was raised.
func (s *Moves) endTask(_ context.Context, tx job.Tx, srv *compute.Server) error {
	clearTask(srv)
	if err := s.save(tx, srv); err != nil {
		return err
	}
	return s.store.VoidOrders(tx, srv.ID, srv.Epoch)
}

// dropMove ends the move of a job that was given up for a deletion or a reset. What it left at the source is to be destroyed with a
// deleted server; after a reset the server is where the move had brought it.
func (s *Moves) dropMove(ctx context.Context, tx job.Tx, srv *compute.Server, j *job.Job, deleted bool) error {
	if j.Kind != compute.JobMove && j.Kind != compute.JobMigrate {
		return nil
	}
	m, err := s.moveOf(ctx, tx, j)
	if err != nil || !m.Going() {
		return ignoreNotFound(err)
	}
	m.EndedAt, m.Problem = s.now(), compute.GivenUp+"the server's state was reset"
	if err := s.cleanUpDestination(ctx, tx, srv, m); err != nil {
		return err
	}
	switch {
	case m.IsPlanned() && m.State != compute.MoveAttached:
		m.State = compute.MoveCancelled // the server is its source's still
	case deleted:
		if m.State == compute.MovePreparing { // what was made there is removed there, by the names that it has there
			if srv.Disks, err = s.disksThere(ctx, tx, srv, m); err != nil {
				return err
			}
		}
		m.State, m.Clean, m.Problem = compute.MoveDone, compute.CleanDisk, compute.GivenUp+"the server is to be deleted"
	case m.State == compute.MoveAttached:
		m.State = compute.MoveDone
	default:
		if m.State = compute.MoveCancelled; srv.HostID != m.SourceID {
			if err := s.reassignHost(ctx, tx, srv, m.SourceID); err != nil {
				return err
			}
		}
	}
	return s.store.Moves().Save(tx, m)
}
