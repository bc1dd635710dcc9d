package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// BeginMigration begins the planned move m of srv, which was read in tx; its kind is live if the server runs, and otherwise off.
// Conflict: ErrServerBusy, or the server's state.
func (s *Moves) BeginMigration(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move, a compute.MigrateArgs, who record.Asker) (*compute.Move, error) {
	if err := srv.RefusalToMove(); err != nil {
		return nil, err
	}
	open, err := s.jobs.Unended(tx, compute.Subject(srv.ID))
	if err != nil {
		return nil, err
	}
	for i := range open {
		if open[i].Class != job.Background {
			return nil, compute.ErrServerBusy
		}
	}
	if err := s.reports.holdMove(ctx, tx, srv.ID, nil, srv.HostID); err != nil {
		return nil, err
	}
	if m.Kind = compute.Migration; srv.Power == compute.PowerOn {
		m.Kind = compute.LiveMigration
	}
	if m.Disposition = compute.Reattach; compute.NeedsOf(srv, "").Disk > 0 {
		m.Disposition = compute.KeepDisk
	}
	m.CopyServer(srv, s.now())
	m.Epoch, srv.Task = srv.Epoch, compute.Migrating
	if err := s.save(tx, srv); err != nil {
		return nil, err
	}
	if err := s.store.Moves().Insert(tx, m); err != nil {
		return nil, err
	}
	a.MoveID = m.ID
	j, err := compute.NewJob(srv.ID, compute.JobMigrate, a, nil, who)
	if err != nil {
		return nil, err
	}
	if err := s.jobs.Insert(tx, j); err != nil {
		return nil, err
	}
	return m, s.note(tx, srv.ID, who, "request", compute.JoinWords("is moved to another host ("+string(m.Kind)+")", m.Words))
}

// Reserve chooses the destination of a planned move and takes a place there; the server stays its source's. Between hosts of a
// cluster nothing is reserved: the cluster counts, and chooses where nobody did. A move that has a destination keeps it.
func (s *Moves) Reserve(ctx context.Context, tx job.Tx, moveID string, a compute.MoveArgs, except []string) error {
	m, srv, err := s.moving(ctx, tx, moveID)
	if err != nil || m.State != compute.MoveAccepted {
		return err
	}
	source, err := s.store.Hosts().Get(ctx, tx, m.SourceID)
	if err != nil {
		return err
	}
	m.State, m.DestID = compute.MovePreparing, a.DestID
	if source.Kind == compute.AgentHost {
		h, err := s.destination(ctx, tx, srv, m, a, except)
		if err != nil {
			return err
		}
		h.Reserve(compute.NeedsOf(srv, ""))
		if err := s.saveHost(tx, h); err != nil {
			return err
		}
		kept := *h
		s.placement.put(&kept)
		m.DestID = h.ID
	}
	return s.store.Moves().Save(tx, m)
}

// Unreserve gives the place at the destination back, because of why, so that another one is chosen.
func (s *Moves) Unreserve(ctx context.Context, tx job.Tx, moveID, why string) error {
	m, srv, err := s.moving(ctx, tx, moveID)
	if err != nil || m.State != compute.MovePreparing {
		return err
	}
	if err := s.releaseReservation(ctx, tx, srv, m); err != nil {
		return err
	}
	m.State, m.DestID = compute.MoveAccepted, ""
	if err := s.store.Moves().Save(tx, m); err != nil {
		return err
	}
	return s.note(tx, srv.ID, record.Asker{}, "contact", "not there: "+why)
}

// releaseReservation gives the place of a planned move that was not handed over back.
func (s *Moves) releaseReservation(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move) error {
	if !m.IsPlanned() || m.State != compute.MovePreparing || m.DestID == "" || m.DestID == srv.HostID {
		return nil
	}
	source, err := s.store.Hosts().Get(ctx, tx, m.SourceID)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	if err == nil && source.Kind != compute.AgentHost {
		return nil
	}
	there := *srv
	there.HostID = m.DestID
	return s.unreserve(ctx, tx, &there)
}

// cleanUpDestination is releaseReservation of a move that nobody takes back at the destination: what came there of the guest is thrown away by it as by any
// host that lost a server. The record of that is a move of its own.
func (s *Moves) cleanUpDestination(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move) error {
	if err := s.releaseReservation(ctx, tx, srv, m); err != nil || !m.IsPlanned() || m.State != compute.MovePreparing || m.DestID == "" || m.DestID == srv.HostID {
		return err
	}
	dest, err := s.store.Hosts().Get(ctx, tx, m.DestID)
	if err != nil || dest.Kind != compute.AgentHost {
		return ignoreNotFound(err)
	}
	back := *m
	back.Incarnation = "" // its epochs are of today
	back.Record, back.Num = record.Record{ID: uuid.NewString(), CreatedAt: s.now()}, 0
	back.SourceID, back.DestID, back.PlanID, back.State, back.Clean = m.DestID, m.SourceID, "", compute.MoveDone, compute.CleanGuest
	back.SourceEpoch, back.Epoch, back.EndedAt, back.Words = srv.Epoch, srv.Epoch+1, s.now(), "what came of move "+m.ID+" is thrown away"
	return s.store.Moves().Insert(tx, &back)
}

// HandOver makes the destination the server's owner: the epoch is raised, and whatever was ordered before is void. The guest does not
// run any more at the source, or is held there by its hypervisor, which lets one side of a live migration run only. destID names where
// a cluster has brought it.
func (s *Moves) HandOver(ctx context.Context, tx job.Tx, moveID, destID string) error {
	m, srv, err := s.moving(ctx, tx, moveID)
	if err != nil || m.State == compute.MoveAttached {
		return err
	}
	if m.State != compute.MovePreparing || destID == "" && srv.HostID != m.SourceID {
		return problem.Conflictf("move %s is %s, its server is on host %s: it is not handed over", m.ID, m.State, compute.TruncateText(srv.HostID))
	}
	if destID == "" { // a cluster has done it already
		if err := s.reports.holdAttach(ctx, tx, m, nil, m.SourceID, m.DestID); err != nil {
			return err
		}
	}
	if destID != "" {
		m.DestID = destID
		err = s.followTo(ctx, tx, srv, destID)
	} else {
		m.Clean = compute.CleanGuest
		err = s.transferOwnership(ctx, tx, srv, m)
	}
	if err != nil {
		return err
	}
	m.State = compute.MoveAttached
	m.RecordEpoch(srv.Epoch)
	if err := s.store.Moves().Save(tx, m); err != nil {
		return err
	}
	return s.note(tx, srv.ID, record.Asker{}, "state", "was handed over to another host")
}

// transferOwnership makes the destination, where a place is reserved, the owner of a server.
func (s *Moves) transferOwnership(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move) (err error) {
	if srv.Disks, err = s.disksThere(ctx, tx, srv, m); err != nil {
		return err
	}
	if err := s.unreserve(ctx, tx, srv); err != nil {
		return err
	}
	srv.HostID = m.DestID
	srv.Epoch++
	if err := s.save(tx, srv); err != nil {
		return err
	}
	return s.store.VoidOrders(tx, srv.ID, srv.Epoch)
}

// followTo notes the node to which a cluster has brought a server; the watch of the cluster may have seen it first.
func (s *Moves) followTo(ctx context.Context, tx job.Tx, srv *compute.Server, hostID string) error {
	if srv.HostID != hostID {
		return s.reassignHost(ctx, tx, srv, hostID)
	}
	srv.Epoch++
	if err := s.save(tx, srv); err != nil {
		return err
	}
	return s.store.VoidOrders(tx, srv.ID, srv.Epoch)
}

// NotLive notes that a server that was to be moved live is moved off, and why.
func (s *Moves) NotLive(ctx context.Context, tx job.Tx, moveID, why string) error {
	m, srv, err := s.moving(ctx, tx, moveID)
	if err != nil || m.Kind != compute.LiveMigration {
		return err
	}
	m.Kind, m.Words = compute.Migration, compute.JoinWords(m.Words, "it could not be moved live: "+why)
	m.Words = compute.JoinWords(m.Words, srv.DescribeLoss(m.Kind, m.Disposition))
	return s.store.Moves().Save(tx, m)
}

// EndMigration ends a planned move well. cleaned: nothing is left at the source; else it is told to clean up when it renews its lease.
func (s *Moves) EndMigration(ctx context.Context, tx job.Tx, moveID string, cleaned bool, change func(*compute.Server)) error {
	if err := s.Finish(ctx, tx, moveID, change); err != nil || !cleaned {
		return err
	}
	m, err := s.store.Moves().Get(ctx, tx, moveID)
	if err != nil {
		return err
	}
	if err := s.store.DropGuestReport(tx, m.SourceID, m.ServerID); err != nil { // it told that list before
		return err
	}
	m.State = compute.MoveCompleted
	return s.store.Moves().Save(tx, m)
}

// FailMigration ends a planned move that came to nothing: before it was handed over the server is as it was, where it was.
func (s *Moves) FailMigration(ctx context.Context, tx job.Tx, moveID, why string) error {
	m, err := s.store.Moves().Get(ctx, tx, moveID)
	if err != nil || !m.Going() {
		return ignoreNotFound(err)
	}
	srv, err := s.store.Servers().Get(ctx, tx, m.ServerID)
	if err != nil {
		return ignoreNotFound(err)
	}
	if err := s.releaseReservation(ctx, tx, srv, m); err != nil {
		return err
	}
	return s.Fail(ctx, tx, moveID, why)
}

// yieldPlanned ends a planned move whose source was fenced before it handed the server over: the evacuation m begins in its place.
func (s *Moves) yieldPlanned(ctx context.Context, tx job.Tx, srv *compute.Server, former, m *compute.Move) error {
	if err := s.cleanUpDestination(ctx, tx, srv, former); err != nil {
		return err
	}
	former.State, former.EndedAt, former.Problem = compute.MoveFailed, s.now(), "its host was fenced; "+compute.WentOn+m.ID
	m.WasState, m.WasTask, m.WasPower = former.WasState, former.WasTask, former.WasPower
	return s.store.Moves().Save(tx, former)
}

// Migrate moves a server from its living host to another one.
func (s *Moves) Migrate(ctx context.Context, id string, w compute.MigrationRequest, who compute.Who) (*compute.Move, error) {
	var out *compute.Move
	err := s.change(ctx, func(tx job.Tx) error {
		srv, err := s.server(ctx, tx, id, who)
		if err != nil {
			return err
		}
		if !who.Admin {
			return problem.Forbiddenf("only administrators move servers")
		}
		a := compute.MigrateArgs{LiveOnly: w.Live}
		if err := s.wishedDestination(ctx, tx, srv, w, &a); err != nil {
			return err
		}
		if err := srv.RefusalToMove(); err != nil && !errors.Is(err, compute.ErrServerBusy) {
			return err
		}
		if w.Live && srv.Power != compute.PowerOn {
			return problem.Conflictf("server %s does not run: migrate it without live", srv.ID)
		}
		out, err = s.BeginMigration(ctx, tx, srv, &compute.Move{}, a, who.Asker)
		return err
	})
	return out, err
}

// wishedDestination judges what is asked at once, so that a wish that cannot be is refused in words.
func (s *Moves) wishedDestination(ctx context.Context, tx job.Tx, srv *compute.Server, w compute.MigrationRequest, a *compute.MigrateArgs) error {
	source, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil {
		return fmt.Errorf("the host of server %s: %w", srv.ID, err)
	}
	live, err := s.liveness.snapshot(ctx, tx)
	if err != nil {
		return err
	}
	if !live.isUp(source) {
		return problem.Conflictf("host %s is down: its servers are evacuated, not migrated; see: salvor fence %s", compute.OrID(source), compute.OrID(source))
	}
	wh := compute.NewDestinationFilter(srv, source, compute.NeedsOf(srv, "").Disk > 0)
	if w.DestHost == "" && w.Live && source.Kind == compute.AgentHost && srv.RefusalToMove() == nil {
		_, err := s.bestFor(ctx, tx, &wh)
		return err
	}
	if w.DestHost == "" {
		return nil
	}
	dest, err := s.host(ctx, w.DestHost)
	if err != nil {
		return err
	}
	if a.DestID, a.Force = dest.ID, source.Kind == compute.AgentHost; dest.ID == source.ID {
		return problem.Invalidf("server %s is on host %s already", srv.ID, compute.OrID(dest))
	}
	if source.Kind != compute.AgentHost {
		if dest.Kind != source.Kind || dest.ClusterID != source.ClusterID || source.Kind != compute.GanetiHost {
			return problem.Conflictf("server %s cannot go to host %s: they are not in one cluster", srv.ID, compute.OrID(dest))
		}
		return nil
	}
	wh.Forced = w.Force
	if why := wh.Refusal(dest, live.isUp(dest)); why != "" {
		return problem.Conflictf("server %s cannot go to host %s: %s", srv.ID, compute.OrID(dest), why)
	}
	return nil
}

// Follow notes where a cluster has brought the server of an evacuation: it is attached there. Conflict if the receipt was closed meanwhile.
func (s *Moves) Follow(ctx context.Context, tx job.Tx, moveID, destID string) error {
	m, srv, err := s.moving(ctx, tx, moveID)
	if err != nil || m.State == compute.MoveAttached {
		return err
	}
	if err := s.store.UseReceipt(tx, m.ReceiptID); err != nil {
		return err
	}
	if err := s.followTo(ctx, tx, srv, destID); err != nil {
		return err
	}
	m.DestID, m.State = destID, compute.MoveAttached
	m.RecordEpoch(srv.Epoch)
	return s.store.Moves().Save(tx, m)
}
