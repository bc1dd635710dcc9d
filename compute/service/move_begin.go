package service

import (
	"context"
	"encoding/json"
	"fmt"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// Moves is the service of moves: of servers from host to host.
type Moves struct {
	*serviceCore
	liveness  *Liveness
	reports   *GuestReports
	fences    *Fences
	placement *hostPlacement
	inputs    *planInputs
	servers   *Servers
}

// List reads a page of moves.
func (s *Moves) List(ctx context.Context, f compute.MoveFilter, p record.Page) ([]*compute.Move, error) {
	return s.store.Moves().List(ctx, nil, f, p)
}

// minStatusPage is how many moves ListByStatus reads at a time at least.
const minStatusPage = 100

// ListByStatus lists moves by their Status, which no column of the store has. An empty status lists all.
func (s *Moves) ListByStatus(ctx context.Context, status compute.MoveState, f compute.MoveFilter, p record.Page) ([]*compute.Move, error) {
	switch status {
	case "":
		return s.List(ctx, f, p)
	case compute.MoveError, compute.MoveFailed, compute.MoveCancelled: // moves that are done may have this status, too
	default:
		f.State = status
	}
	var out []*compute.Move
	batch := p
	if p.Limit > 0 {
		batch.Limit = max(p.Limit, minStatusPage)
	}
	for {
		found, err := s.List(ctx, f, batch)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			if m.Status() == status {
				out = append(out, m)
			}
			if p.Limit > 0 && len(out) == p.Limit {
				return out, nil
			}
		}
		if p.Limit <= 0 || len(found) < batch.Limit {
			return out, nil
		}
		batch.Marker = found[len(found)-1].ID
	}
}

// Get reads one.
func (s *Moves) Get(ctx context.Context, id string) (*compute.Move, error) {
	return s.store.Moves().Get(ctx, nil, id)
}

// Begin begins the move m of srv, which was read in tx: m names its kind, its disposition and, if any, its plan; where it should
// go is in a. What works on the server is given up, and what was wanted of it is the move's affair now; planned work, which has no
// receipt, gives nothing up. Conflict: ErrServerBusy, or the server is being moved or deleted already, or the receipt is closed.
func (s *Moves) Begin(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move, receipt *compute.Receipt, a compute.MoveArgs, who record.Asker) (*compute.Move, error) {
	if receipt != nil {
		if err := s.store.UseReceipt(tx, receipt.ID); err != nil {
			return nil, err
		}
		m.ReceiptID = receipt.ID
		if receipt.Former() {
			return nil, problem.Conflictf("%s", receipt.ExplainFormer(receipt.HostID))
		}
	}
	if srv.HostID == "" || srv.Task == compute.Deleting || srv.State == compute.Deleted {
		return nil, problem.Conflictf("server %s is on no host, or is being deleted: there is nothing to move", srv.ID)
	}
	ends, err := s.moveEnds(ctx, tx, compute.MoveFilter{ServerID: srv.ID}, srv.HostID)
	if err != nil {
		return nil, err
	}
	if err := s.reports.holdMove(ctx, tx, srv.ID, receipt, ends[srv.ID]...); err != nil {
		return nil, err
	}
	m.CopyServer(srv, s.now())
	if err := s.stillLost(ctx, tx, srv, m); err != nil {
		return nil, err
	}
	hidden, err := s.supersedeForMove(ctx, tx, srv, m)
	if err != nil {
		return nil, err
	}
	srv.Epoch++
	m.Epoch = srv.Epoch
	if err := s.store.VoidOrders(tx, srv.ID, srv.Epoch); err != nil {
		return nil, err
	}
	srv.Task = compute.Rebuilding
	if err := s.save(tx, srv); err != nil {
		return nil, err
	}
	if err := s.store.Moves().Insert(tx, m); err != nil {
		return nil, err
	}
	a.MoveID = m.ID
	j, err := compute.NewJob(srv.ID, compute.JobMove, a, nil, who)
	if err != nil {
		return nil, err
	}
	if j.Secret = hidden; hidden.Empty() {
		j.Secret = a.Hidden
	}
	if err := s.jobs.Insert(tx, j); err != nil {
		return nil, err
	}
	return m, s.note(tx, srv.ID, who, "request", m.RefusalToBegin(receipt))
}

// supersedeForMove ends what works on the server in favour of a move and takes over what was wanted by it: the secret of a first password is
// given on.
func (s *Moves) supersedeForMove(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move) (hidden secret.Value, err error) {
	open, err := s.jobs.Unended(tx, compute.Subject(srv.ID))
	if err != nil {
		return hidden, err
	}
	for i := range open {
		if open[i].Locks() || open[i].Class != job.Background && m.ReceiptID == "" {
			return hidden, compute.ErrServerBusy
		}
	}
	cause := problem.Conflictf("given up: the host was fenced, and the server is moved by move %s", m.ID)
	for i := range open {
		j := &open[i]
		if j.Class == job.Background {
			continue
		}
		if j.Kind == compute.JobCreate || j.Kind == compute.JobRebuild {
			hidden = j.Secret
		}
		if err := s.jobs.Interrupt(tx, j.ID, job.Ended, cause); err != nil {
			return hidden, err
		}
		if err := s.adoptPendingWork(ctx, tx, srv, j, m); err != nil {
			return hidden, err
		}
	}
	return hidden, s.inheritSession(srv, m)
}

// adoptPendingWork has the move complete what a job that was given up was to do. Nothing holds a volume at a host that is fenced.
func (s *Moves) adoptPendingWork(ctx context.Context, tx job.Tx, srv *compute.Server, j *job.Job, m *compute.Move) error {
	switch j.Kind {
	case compute.JobAttach, compute.JobDetach:
		var a compute.VolumeArgs
		if err := json.Unmarshal(j.Args, &a); err != nil {
			return fmt.Errorf("arguments of job %s: %w", j.ID, err)
		}
		if j.Kind == compute.JobAttach {
			return s.servers.setVolume(ctx, tx, srv.ID, a.VolumeID, compute.VolumeInUse)
		}
		srv.DropVolume(a.VolumeID)
		return s.servers.setVolume(ctx, tx, srv.ID, a.VolumeID, compute.VolumeAvailable)
	case compute.JobMove, compute.JobMigrate:
		return s.supersedeMove(ctx, tx, srv, j, m)
	case compute.JobRestoreDisk:
		return s.servers.restoreGivenUp(ctx, tx, srv, j)
	}
	return nil
}

// supersedeMove ends a former move whose destination was fenced in its turn: the server goes on from there.
func (s *Moves) supersedeMove(ctx context.Context, tx job.Tx, srv *compute.Server, j *job.Job, m *compute.Move) error {
	former, err := s.moveOf(ctx, tx, j)
	if err != nil || !former.Going() {
		return ignoreNotFound(err)
	}
	if former.YieldsFrom(srv.HostID) {
		return s.yieldPlanned(ctx, tx, srv, former, m)
	}
	if former.State != compute.MoveAttached || former.DestID != srv.HostID {
		return problem.Conflictf("server %s is being moved already, by move %s", srv.ID, former.ID)
	}
	former.State, former.EndedAt, former.Problem = compute.MoveFailed, s.now(), compute.WentOn+m.ID
	if former.Clean != "" && former.SourceID != srv.HostID {
		former.State = compute.MoveDone
	}
	m.WasState, m.WasTask, m.WasPower, m.Wanted, m.Words = former.WasState, former.WasTask, former.WasPower, former.Wanted, former.Words
	return s.store.Moves().Save(tx, former)
}

func (s *Moves) moveOf(ctx context.Context, tx job.Tx, j *job.Job) (*compute.Move, error) {
	var a compute.MoveArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return nil, fmt.Errorf("arguments of job %s: %w", j.ID, err)
	}
	return s.store.Moves().Get(ctx, tx, a.MoveID)
}

// inheritSession makes of a rescue that goes on one that begins at the destination. One that failed is over there: the server comes
// with its own boot.
func (s *Moves) inheritSession(srv *compute.Server, m *compute.Move) error {
	if !srv.InSession() {
		return nil
	}
	session := *srv.Rescue
	srv.Rescue = &session
	switch session.State {
	case rescue.Preparing, rescue.Prepared, rescue.Booting, rescue.Ready:
		session.Fingerprint, session.HostKey = "", ""
		if session.State != rescue.Preparing {
			session.State = rescue.Prepared
		}
		if !session.SavedKnown {
			session.SavedKnown = true
			session.Saved.Mode = string(srv.Firmware)
		}
	case rescue.Failed:
		session.State = rescue.Leaving
		if session.Saved.Power == string(compute.PowerOn) {
			m.Wanted = compute.PowerOn
		}
		m.Words = compute.JoinWords(m.Words, "its failed rescue session is closed: it comes with its own boot")
	}
	return nil
}
