package service

import (
	"context"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Progress reads how far a plan is: one query for its moves. Items with a problem are not begun again.
func (s *Plans) Progress(ctx context.Context, planID string) (*compute.Progress, error) {
	p, err := s.store.Plans().Get(ctx, nil, planID)
	if err != nil {
		return nil, err
	}
	moves, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{PlanID: p.ID}, record.Page{})
	if err != nil {
		return nil, err
	}
	out := &compute.Progress{Plan: p}
	for _, m := range moves {
		if m.Going() {
			out.Going++
		}
	}
	p.ApplyMoves(moves)
	if p.State != compute.PlanRunning {
		return out, nil
	}
	room := max(p.Parallel, 1) - out.Going
	for _, item := range p.Items {
		if len(out.Next) < room && item.MoveID == "" && item.Problem == "" && item.ReasonToStay() == "" {
			out.Next = append(out.Next, item)
		}
	}
	return out, nil
}

// BeginPlanned begins the move of one item of a plan that is run. ErrServerBusy: it is to be asked again; another problem.Conflict
// keeps this one server where it is.
func (s *Plans) BeginPlanned(ctx context.Context, tx job.Tx, p *compute.Plan, item *compute.PlanItem, who record.Asker) error {
	begun, err := s.store.Moves().List(ctx, tx, compute.MoveFilter{PlanID: p.ID, ServerID: item.ServerID}, pageOf(1))
	if err != nil || len(begun) > 0 {
		return err
	}
	srv, err := s.store.Servers().Get(ctx, tx, item.ServerID)
	if err != nil {
		return err
	}
	if srv.State == compute.Deleted || srv.HostID != p.HostID {
		return problem.Conflictf("it is not on the host any more")
	}
	receipt, err := s.Receipt(ctx, tx, p.HostID)
	if err != nil {
		return err
	}
	m := &compute.Move{PlanID: p.ID, Kind: compute.Evacuation, Disposition: item.Disposition, MayLoseVariables: item.MayLoseVariables || item.LosesVariables}
	_, err = s.moves.Begin(ctx, tx, srv, m, receipt, compute.MoveArgs{DestID: item.DestID}, who)
	return err
}

// Skip notes why the moves of some servers could not begin, by server.
func (s *Plans) Skip(ctx context.Context, tx job.Tx, planID string, why map[string]error) error {
	if len(why) == 0 {
		return nil
	}
	p, err := s.store.Plans().Get(ctx, tx, planID)
	if err != nil {
		return err
	}
	for i := range p.Items {
		if err := why[p.Items[i].ServerID]; err != nil {
			p.Items[i].Problem = problem.Public(err)
		}
	}
	return s.store.Plans().Save(tx, p)
}

// Settle ends a plan whose moves have ended: done, or partly done where a server is left behind. A cancelled one stays so, with what became of it.
func (s *Plans) Settle(ctx context.Context, tx job.Tx, planID string) error {
	p, err := s.store.Plans().Get(ctx, tx, planID)
	if err != nil {
		return ignoreNotFound(err)
	}
	moves, err := s.store.Moves().List(ctx, tx, compute.MoveFilter{PlanID: p.ID}, record.Page{})
	if err != nil {
		return err
	}
	p.ApplyMoves(moves)
	if p.State == compute.PlanRunning {
		p.State, p.EndedAt = compute.PlanDone, s.now()
		for i := range p.Items {
			left, err := s.left(ctx, tx, p, &p.Items[i])
			if err != nil {
				return err
			}
			if left {
				p.State = compute.PlanPartly
			}
		}
	}
	if err := s.store.Plans().Save(tx, p); err != nil {
		return err
	}
	return s.noteHost(tx, p.HostID, record.Asker{}, "plan "+p.ID+": "+string(p.State))
}

// left tells whether a server was left behind by a plan that has ended. Nobody could move one that cannot be, and a host that died is none the worse
// for it; a host that lives is drained so that it may be switched off, and each server that is still there counts.
func (s *Plans) left(ctx context.Context, tx job.Tx, p *compute.Plan, i *compute.PlanItem) (bool, error) {
	switch {
	case i.Disposition != compute.Cannot:
		return i.MoveID == "" || i.Problem != "", nil
	case !p.Drain:
		return false, nil
	}
	srv, err := s.store.Servers().Get(ctx, tx, i.ServerID)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	return srv.State != compute.Deleted && srv.HostID == p.HostID, nil
}
