package service

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Drain takes a living host out of service and moves its servers away, live where that can be had. Conflict: it does not live.
func (s *Plans) Drain(ctx context.Context, ident string, who compute.Who) (*compute.Plan, error) {
	h, err := s.host(ctx, ident)
	if err != nil {
		return nil, err
	}
	if h.Kind == compute.IronicHost {
		return nil, problem.Unsupportedf("host %s is an endpoint of the Bare Metal API: each of its servers is its own host, there is nothing to drain", compute.OrID(h))
	}
	if up, err := s.liveness.snapshot(ctx, nil); err != nil {
		return nil, err
	} else if !up.isUp(h) {
		return nil, problem.Conflictf("host %s is down: it is evacuated, not drained; see: salvor fence %s", compute.OrID(h), compute.OrID(h))
	}
	yes, reason := true, "drained"
	if who.User != "" {
		reason += " by " + compute.TruncateText(who.User)
	}
	if _, err := s.hosts.SetService(ctx, h.ID, compute.Service{Disabled: &yes, Reason: &reason}, who.Asker); err != nil {
		return nil, err
	}
	p, err := s.Draft(ctx, compute.PlanRequest{Host: h.ID, Drain: true}, who)
	if err != nil {
		return nil, err
	}
	return s.Run(ctx, p.ID, compute.PlanConsent{}, who)
}

// BeginDrained begins the move of one item of a drain that is run, or of a way home. ErrServerBusy: it is to be asked again; another
// problem.Conflict keeps this one server where it is.
func (s *Plans) BeginDrained(ctx context.Context, tx job.Tx, p *compute.Plan, item *compute.PlanItem, who record.Asker) error {
	begun, err := s.store.Moves().List(ctx, tx, compute.MoveFilter{PlanID: p.ID, ServerID: item.ServerID}, pageOf(1))
	if err != nil || len(begun) > 0 {
		return err
	}
	srv, err := s.store.Servers().Get(ctx, tx, item.ServerID)
	if err != nil {
		return err
	}
	home := item.DestID == p.HostID
	switch {
	case srv.State == compute.Deleted || !home && srv.HostID != p.HostID:
		return problem.Conflictf("it is not on the host any more")
	case home && srv.HostID == p.HostID:
		return problem.Conflictf("it is at home already")
	}
	if err := s.alive(ctx, tx, srv.HostID); err != nil {
		return err
	}
	a := compute.MigrateArgs{MoveArgs: compute.MoveArgs{DestID: item.DestID, Force: home}}
	_, err = s.moves.BeginMigration(ctx, tx, srv, &compute.Move{PlanID: p.ID}, a, who)
	return err
}

// alive is a Conflict where a host is down: nothing is begun at one that cannot answer. Unavailable: that cannot be told yet.
func (s *Plans) alive(ctx context.Context, tx job.Tx, hostID string) error {
	h, err := s.store.Hosts().Get(ctx, tx, hostID)
	if err != nil {
		return err
	}
	up, err := s.liveness.snapshot(ctx, tx)
	if err != nil || up.isUp(h) {
		return err
	}
	if err := s.liveness.requireHeard(h); err != nil {
		return err
	}
	return problem.Conflictf("host %s is down: its servers are evacuated, not drained", compute.OrID(h))
}

// Restore puts a host back to service: it takes servers again and is no longer forced down; the node that it is may be switched on
// again, and is. Conflict while something of a server that it lost has to be cleaned up there, or its servers are still being moved.
func (s *Plans) Restore(ctx context.Context, ident string, who compute.Who) (*compute.Host, error) {
	h, err := s.host(ctx, ident)
	if err != nil {
		return nil, err
	}
	no, none := false, ""
	change := compute.Service{Disabled: &no, Reason: &none}
	if h.ForcedDown {
		change.ForcedDown = &no
	}
	if running, err := s.store.Plans().List(ctx, nil, compute.PlanFilter{HostID: h.ID, State: compute.PlanRunning}, pageOf(1)); err != nil {
		return nil, err
	} else if len(running) > 0 {
		return nil, problem.Conflictf("host %s: plan %s still runs; let it end, or cancel it", compute.OrID(h), running[0].ID)
	}
	if err := s.switchOn(ctx, h, who); err != nil { // first: what has to be cleaned up there needs the host
		return nil, err
	}
	return s.hosts.SetService(ctx, h.ID, change, who.Asker)
}

// switchOn has a host's node released and switched on, or its cluster told that it is back.
func (s *Plans) switchOn(ctx context.Context, h *compute.Host, who compute.Who) error {
	if h.NodeID == "" && h.Kind != compute.GanetiHost {
		return nil
	}
	return s.change(ctx, func(tx job.Tx) error {
		j, err := compute.NewJob("", compute.JobRestore, nil, nil, who.Asker)
		if err != nil {
			return err
		}
		j.Subject = compute.HostSubject(h.ID)
		err = s.jobs.Insert(tx, j)
		if problem.Is(err, problem.Conflict) {
			return problem.Conflictf("host %s is being worked on; ask again when that has ended", compute.OrID(h))
		}
		return err
	})
}

// BringHome moves the servers back whose newest move left the host, by a plan that is run at once. Conflict: the host is not up.
func (s *Plans) BringHome(ctx context.Context, ident string, who compute.Who) (*compute.Plan, error) {
	h, err := s.host(ctx, ident)
	if err != nil {
		return nil, err
	}
	if up, err := s.liveness.snapshot(ctx, nil); err != nil {
		return nil, err
	} else if !up.isUp(h) || h.Disabled {
		return nil, problem.Conflictf("host %s is not back yet, so nothing can be brought home: ask again when it is up and enabled", compute.OrID(h))
	}
	p := &compute.Plan{Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()}, HostID: h.ID, State: compute.PlanRunning, By: who.User, Drain: true}
	group, err := s.Group(ctx, nil, h)
	if err != nil {
		return nil, err
	}
	p.Parallel = max(group.Parallel, 1)
	return p, s.change(ctx, func(tx job.Tx) error {
		if p.Items, err = s.away(ctx, tx, h); err != nil {
			return err
		}
		if err := s.store.Plans().Insert(tx, p); err != nil {
			return err
		}
		return s.run(ctx, tx, p, who)
	})
}

// away are the servers whose newest move left the host, and that are elsewhere.
func (s *Plans) away(ctx context.Context, tx job.Tx, h *compute.Host) ([]compute.PlanItem, error) {
	left, err := s.store.Moves().List(ctx, tx, compute.MoveFilter{SourceID: h.ID}, record.Page{})
	if err != nil {
		return nil, err
	}
	var out []compute.PlanItem
	for _, m := range left {
		if slices.ContainsFunc(out, func(i compute.PlanItem) bool { return i.ServerID == m.ServerID }) {
			continue
		}
		srv, err := s.store.Servers().Get(ctx, tx, m.ServerID)
		if problem.Is(err, problem.NotFound) || err == nil && (srv.State == compute.Deleted || srv.HostID == h.ID || srv.HostID == "") {
			continue
		}
		if err != nil {
			return nil, err
		}
		all, err := s.store.Moves().List(ctx, tx, compute.MoveFilter{ServerID: srv.ID}, record.Page{})
		if err != nil {
			return nil, err
		}
		newest := slices.MaxFunc(all, func(a, b *compute.Move) int { return int(a.Num - b.Num) })
		if newest.SourceID != h.ID || newest.Going() {
			continue
		}
		out = append(out, compute.PlanItem{ServerID: srv.ID, Name: srv.Name, Project: srv.Project, Disposition: compute.KeepDisk, DestID: h.ID,
			Why: "it was moved away from there", Power: srv.Power, State: srv.State, InRescue: srv.InSession()})
	}
	return out, nil
}
