package service

import (
	"context"
	"slices"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// stillLost refuses to make the disks of a server anew that have come in sight since that was planned: another host, whether it lives
// or not, has the stores of them all.
func (s *Moves) stillLost(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move) error {
	if m.Disposition != compute.Reimage {
		return nil
	}
	source, err := s.store.Hosts().Get(ctx, tx, m.SourceID)
	if err != nil {
		return ignoreNotFound(err)
	}
	hosts, err := s.store.Hosts().List(ctx, tx, compute.HostFilter{}, record.Page{})
	if err != nil {
		return err
	}
	var at *compute.Host
	for _, marker := range compute.MarkersOf(srv, source) {
		if at = compute.HostWithStore(hosts, source, marker); at == nil {
			return nil
		}
	}
	if at == nil {
		return nil
	}
	return problem.Conflictf("server %s was to be made anew, but host %s sees the disk store of its disks now: make a new plan, which keeps them", srv.ID, compute.OrID(at))
}

// destination chooses the host of a move; problem.Conflict tells of each host why it is none.
func (s *Moves) destination(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move, a compute.MoveArgs, except []string) (*compute.Host, error) {
	source, err := s.store.Hosts().Get(ctx, tx, m.SourceID)
	if problem.Is(err, problem.NotFound) {
		source, err = &compute.Host{}, nil
		source.ID = m.SourceID
	}
	if err != nil {
		return nil, err
	}
	w := compute.NewDestinationFilter(srv, source, m.Disposition == compute.KeepDisk)
	w.Except = append(w.Except, except...)
	if a.DestID != "" && !slices.Contains(except, a.DestID) {
		h, why, err := s.requestedHost(ctx, tx, &w, a)
		if err != nil || why == "" {
			return h, err
		}
		if a.Force {
			return nil, problem.Conflictf("server %s cannot go to host %s: %s", srv.ID, compute.OrID(h), why)
		}
	}
	if a.Force {
		return nil, problem.Conflictf("server %s: host %s did not take it, and no other one is allowed", srv.ID, a.DestID)
	}
	return s.bestFor(ctx, tx, &w)
}

// requestedHost judges the host that is asked for. One that is forced is judged by its life alone.
func (s *Moves) requestedHost(ctx context.Context, tx job.Tx, w *compute.DestinationFilter, a compute.MoveArgs) (*compute.Host, string, error) {
	h, err := s.store.Hosts().Get(ctx, tx, a.DestID)
	if err != nil {
		return nil, "", err
	}
	live, err := s.liveness.snapshot(ctx, tx)
	if err != nil {
		return nil, "", err
	}
	if !a.Force {
		return h, w.Refusal(h, live.isUp(h)), nil
	}
	if !live.isUp(h) {
		if err := s.liveness.requireHeard(h); err != nil {
			return nil, "", err
		}
	}
	if !live.isUp(h) || slices.Contains(w.Except, h.ID) || h.Kind != compute.AgentHost {
		return h, "it is down, or none of salvor's own hosts, or the server comes from there", nil
	}
	return h, "", nil
}

// bestFor chooses by the same measure as placement, and reads the host again.
func (s *Moves) bestFor(ctx context.Context, tx job.Tx, w *compute.DestinationFilter) (*compute.Host, error) {
	for _, fresh := range []bool{false, true} {
		hosts, live, err := s.placement.cachedHosts(ctx, tx, fresh)
		if err != nil {
			return nil, err
		}
		best, why := compute.PickRoomiestHost(hosts, func(h *compute.Host) string { return w.Refusal(h, live.isUp(h)) })
		if best == nil && fresh {
			return nil, s.none(hosts, live, why)
		}
		if best == nil {
			continue
		}
		h, err := s.store.Hosts().Get(ctx, tx, best.ID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
		if err == nil && w.Refusal(h, live.isUp(h)) == "" {
			return h, nil
		}
	}
	return nil, problem.Unavailablef("hosts keep changing; ask again")
}

// none is the error where no host can take a server: Unavailable if one may yet be heard, else problem.Conflict.
func (s *Moves) none(hosts []*compute.Host, live *livenessView, why []string) error {
	for _, h := range hosts {
		if live.isUp(h) {
			continue
		}
		if err := s.liveness.requireHeard(h); err != nil {
			return err
		}
	}
	return compute.NoValidHost(why)
}

// disksThere are the disks of a server as its destination names their stores: those that are kept lie where the marker is the same,
// those that are made anew in a store that its former host has not.
func (s *serviceCore) disksThere(ctx context.Context, tx job.Tx, srv *compute.Server, m *compute.Move) ([]compute.Disk, error) {
	source, err := s.store.Hosts().Get(ctx, tx, m.SourceID)
	if problem.Is(err, problem.NotFound) {
		return srv.Disks, nil
	}
	if err != nil {
		return nil, err
	}
	dest, err := s.store.Hosts().Get(ctx, tx, m.DestID)
	if err != nil {
		return nil, err
	}
	return compute.RelocateDisks(srv.Disks, source, dest, m.Disposition == compute.Reimage), nil
}

// There is a server of a move as its destination is to have it, before its row says so.
func (s *Moves) There(ctx context.Context, srv *compute.Server, m *compute.Move) (*compute.Server, error) {
	if m.State != compute.MovePreparing {
		return srv, nil
	}
	disks, err := s.disksThere(ctx, nil, srv, m)
	if err != nil {
		return nil, err
	}
	out := *srv
	out.Disks = disks
	return &out, nil
}

// ProbesOf are the questions to the destination of a move; srv is as There gives it.
func (s *Moves) ProbesOf(ctx context.Context, srv *compute.Server, m *compute.Move) ([]compute.DiskProbe, error) {
	row, err := s.store.Servers().Get(ctx, nil, m.ServerID)
	if err != nil {
		return nil, err
	}
	p, err := s.servers.parts(ctx, srv)
	if err != nil {
		return nil, err
	}
	source, err := s.store.Hosts().Get(ctx, nil, m.SourceID)
	if problem.Is(err, problem.NotFound) {
		source, err = &compute.Host{}, nil
	}
	if err != nil {
		return nil, err
	}
	dest, err := s.store.Hosts().Get(ctx, nil, m.DestID)
	if err != nil {
		return nil, err
	}
	return compute.Probes(row, source, dest, m.Disposition, p.Images), nil
}
