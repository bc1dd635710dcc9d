package service

import (
	"context"
	"slices"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Lost tells whether nobody need wait for a host to remove a server: it is fenced, or an operator gave it up and its lease has lapsed.
func (s *Liveness) Lost(ctx context.Context, h *compute.Host) (bool, error) {
	if h.Kind != compute.AgentHost || h.Fenced || !h.Revoked && !h.ForcedDown {
		return h.Kind == compute.AgentHost && h.Fenced, nil
	}
	stored, err := s.store.Leases(ctx)
	return err == nil && s.now().Sub(s.cache.newest(stored[h.ID], h.ID).RenewedAt) >= compute.Suspect, err
}

// GoneWithout ends a server as Gone does, without its host, which is Lost: should that come back, it destroys what it has of it. Unless a
// receipt proves the host off, nobody knows whether it still writes, so the volumes are in error.
func (s *Servers) GoneWithout(ctx context.Context, tx job.Tx, id string) error {
	srv, err := s.store.Servers().Get(ctx, tx, id)
	if err != nil || srv.State == compute.Deleted {
		return err
	}
	host, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if problem.Is(err, problem.NotFound) {
		return s.Gone(ctx, tx, id)
	}
	if err != nil {
		return err
	}
	if err := s.leaveBehind(ctx, tx, srv); err != nil {
		return err
	}
	receipt, err := s.Receipt(ctx, tx, host.ID)
	if problem.Is(err, problem.NotFound) {
		return s.gone(ctx, tx, id, false)
	}
	if err != nil {
		return err
	}
	reports, err := s.store.GuestReports(ctx, tx, compute.GuestReportFilter{ServerID: id})
	if err != nil {
		return err
	}
	besides, err := s.reports.guestMayBeAt(ctx, tx, srv, reports)
	if err != nil {
		return err
	}
	besides = slices.DeleteFunc(besides, func(at string) bool { return at == srv.HostID }) // its other boots count
	by, _, err := s.reports.heldBy(ctx, tx, id, receipt, besides...)
	if err != nil {
		return err
	}
	return s.gone(ctx, tx, id, receipt.Proves() && by == "")
}

// leaveBehind writes the record by which a host that comes back destroys what it has of a deleted server, its disks too.
func (s *Servers) leaveBehind(ctx context.Context, tx job.Tx, srv *compute.Server) error {
	left, err := s.store.Moves().List(ctx, tx, compute.MoveFilter{ServerID: srv.ID, SourceID: srv.HostID, Uncleaned: true}, pageOf(1))
	if err != nil {
		return err
	}
	if len(left) > 0 {
		left[0].Clean, left[0].Epoch = compute.CleanDisk, srv.Epoch
		return s.store.Moves().Save(tx, left[0])
	}
	m := &compute.Move{Kind: compute.Evacuation, Disposition: compute.Cannot}
	m.CopyServer(srv, s.now())
	m.Epoch, m.State, m.Clean, m.EndedAt, m.Words = srv.Epoch, compute.MoveDone, compute.CleanDisk, s.now(), "the server was deleted while its host was away"
	if err := s.store.Moves().Insert(tx, m); err != nil {
		return err
	}
	return s.note(tx, srv.ID, record.Asker{}, "contact", "deleted without its host: what that has of it is destroyed when it comes back")
}
