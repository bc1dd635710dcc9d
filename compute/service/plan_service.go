package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

const (
	// draftRounds bounds how often destinations that turn out to be none are replaced in a draft.
	draftRounds = 3
	// draftLasts is how long a draft is kept that nobody runs: the next one for its host removes it.
	draftLasts = 24 * time.Hour
)

// Plans is the service of what becomes of the servers of a host: evacuations, drains and the way back.
type Plans struct {
	*serviceCore
	liveness *Liveness
	fences   *Fences
	hosts    *Hosts
	moves    *Moves
	inputs   *planInputs
}

// Draft drafts what would become of each server of a host, and keeps the draft; nothing else is done. Destinations are asked
// what they see.
func (s *Plans) Draft(ctx context.Context, w compute.PlanRequest, who compute.Who) (*compute.Plan, error) {
	host, err := s.host(ctx, w.Host)
	if err != nil {
		return nil, err
	}
	if w.Parallel < 0 || w.Parallel > maxParallel {
		return nil, problem.Invalidf("parallel: want 1 to %d servers at a time", maxParallel)
	}
	o, err := s.inputs.readPlanInput(ctx, host, &w)
	if err != nil {
		return nil, err
	}
	if o.Dest == host.ID {
		return nil, problem.Invalidf("host %s: its servers are to leave it, and cannot be moved to itself; name another destination, or none", compute.OrID(host))
	}
	p := &compute.Plan{Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()}, HostID: host.ID, State: compute.PlanDrafted, By: who.User, Drain: w.Drain, Parallel: w.Parallel}
	if p.Items, err = s.drafted(ctx, o); err != nil {
		return nil, err
	}
	if err := s.oneMore(ctx, o, p); err != nil {
		return nil, err
	}
	if p.Parallel == 0 {
		group, err := s.Group(ctx, nil, host)
		if err != nil {
			return nil, err
		}
		p.Parallel = max(group.Parallel, 1)
	}
	if p.Missing, err = s.missing(ctx, p); err != nil {
		return nil, err
	}
	return p, s.jobs.Do(ctx, func(tx job.Tx) error {
		if err := s.store.DropDrafts(tx, host.ID, p.CreatedAt.Add(-draftLasts)); err != nil {
			return err
		}
		return s.store.Plans().Insert(tx, p)
	})
}

// errDry ends a transaction whose writes are not wanted.
var errDry = errors.New("a dry run")

// missing tells what a run of the plan would lack, in words; it fences nothing.
func (s *Plans) missing(ctx context.Context, p *compute.Plan) (string, error) {
	err := s.change(ctx, func(tx job.Tx) error { return cmp.Or(s.ready(ctx, tx, p), errDry) })
	switch {
	case errors.Is(err, errDry):
		return "", nil
	case problem.Is(err, problem.Conflict):
		return err.Error(), nil
	}
	return "", err
}

// drafted drafts, asks the destinations, and drafts again with what they said, until nothing is left to ask.
func (s *Plans) drafted(ctx context.Context, o *compute.PlanInput) ([]compute.PlanItem, error) {
	items := compute.DraftPlan(o)
	if o.Source.Kind != compute.AgentHost {
		return items, nil
	}
	for range draftRounds {
		if err := s.ask(ctx, o, items); err != nil {
			return nil, err
		}
		again := compute.DraftPlan(o)
		if slices.Equal(again, items) {
			return again, nil
		}
		items = again
	}
	return items, nil
}

// oneMore considers one more failure.
func (s *Plans) oneMore(ctx context.Context, o *compute.PlanInput, p *compute.Plan) error {
	largest := compute.LargestFreeHost(o, p.Items)
	var there []*compute.Server
	if largest != nil {
		var err error
		if there, err = s.store.Servers().List(ctx, nil, compute.ServerFilter{HostID: largest.ID}, record.Page{}); err != nil {
			return err
		}
	}
	p.OneMore, p.OneMoreWhy = compute.SurvivesNextFailure(o, p.Items, largest, there)
	return nil
}

// ready tells whether a plan may be run now: problem.Conflict says what is missing. Planned work needs a host that lives, all else one
// that is fenced.
func (s *Plans) ready(ctx context.Context, tx job.Tx, p *compute.Plan) error {
	if p.Drain {
		return nil
	}
	h, err := s.store.Hosts().Get(ctx, tx, p.HostID)
	if err != nil {
		return err
	}
	if h.Kind == compute.IronicHost {
		return problem.Conflictf("host %s is an endpoint of the Bare Metal API: each of its servers is its own host, there is nothing to fence and nothing to move", compute.OrID(h))
	}
	_, err = s.fences.Ensure(ctx, tx, h)
	return err
}

// Run begins a drafted plan; consent is heard of a plan that runs, too. Conflict without a receipt:
// what is missing.
func (s *Plans) Run(ctx context.Context, planID string, consent compute.PlanConsent, who compute.Who) (*compute.Plan, error) {
	var out *compute.Plan
	err := s.change(ctx, func(tx job.Tx) error {
		p, err := s.store.Plans().Get(ctx, tx, planID)
		if err != nil {
			return err
		}
		out = p
		if p.State == compute.PlanRunning { // who consents to more meanwhile is heard
			if len(consent.Servers) == 0 && !consent.DiscardVariables {
				return nil
			}
			if err := p.ApplyConsent(consent); err != nil {
				return err
			}
			return s.savePlan(tx, p)
		}
		if p.State != compute.PlanDrafted {
			return problem.Conflictf("plan %s is %s: make a new one", p.ID, p.State)
		}
		if err := s.ready(ctx, tx, p); err != nil {
			return err
		}
		if err := p.ApplyConsent(consent); err != nil {
			return err
		}
		p.State, p.Missing = compute.PlanRunning, ""
		return s.run(ctx, tx, p, who)
	})
	return out, err
}

// run writes the plan and its job, and tells owners what they must know.
func (s *Plans) run(ctx context.Context, tx job.Tx, p *compute.Plan, who compute.Who) error {
	j, err := p.NewJob(who)
	if err != nil {
		return err
	}
	if err := s.jobs.Insert(tx, j); err != nil {
		return err
	}
	return s.begun(tx, p, who)
}

// begun writes down that the plan is run, in the transaction that inserts its job.
func (s *Plans) begun(tx job.Tx, p *compute.Plan, who compute.Who) error {
	if err := s.savePlan(tx, p); err != nil {
		return err
	}
	for i := range p.Items {
		if text := p.Items[i].ReasonToStay(); text != "" {
			if err := s.note(tx, p.Items[i].ServerID, who.Asker, "contact", text); err != nil {
				return err
			}
		}
	}
	return s.noteHost(tx, p.HostID, who.Asker, fmt.Sprintf("plan %s is run: %d servers", p.ID, len(p.Items)))
}

func (s *serviceCore) savePlan(tx job.Tx, p *compute.Plan) error {
	return conflictToChanged(s.store.Plans().Save(tx, p))
}

// Cancel ends a plan: moves that go on come to their end, no further one begins.
func (s *Plans) Cancel(ctx context.Context, planID string, who compute.Who) (*compute.Plan, error) {
	var out *compute.Plan
	err := s.change(ctx, func(tx job.Tx) error {
		p, err := s.store.Plans().Get(ctx, tx, planID)
		if err != nil {
			return err
		}
		out = p
		switch p.State {
		case compute.PlanCancelled:
			return nil
		case compute.PlanDrafted, compute.PlanRunning:
		default:
			return problem.Conflictf("plan %s has ended: %s", p.ID, p.State)
		}
		return s.cancelled(tx, p, who, "")
	})
	return out, err
}

// cancelled writes that a plan is over, and why in the words that follow on its host's timeline.
func (s *serviceCore) cancelled(tx job.Tx, p *compute.Plan, who compute.Who, why string) error {
	p.State, p.EndedAt = compute.PlanCancelled, s.now()
	if err := s.savePlan(tx, p); err != nil {
		return err
	}
	return s.noteHost(tx, p.HostID, who.Asker, "plan "+p.ID+" is cancelled"+why)
}

// List reads a page.
func (s *Plans) List(ctx context.Context, f compute.PlanFilter, p record.Page) ([]*compute.Plan, error) {
	return s.store.Plans().List(ctx, nil, f, p)
}

// Get reads one, its items with the moves that were begun.
func (s *Plans) Get(ctx context.Context, id string) (*compute.Plan, error) {
	p, err := s.store.Plans().Get(ctx, nil, id)
	if err != nil || p.State == compute.PlanDrafted {
		return p, err
	}
	moves, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{PlanID: p.ID}, record.Page{})
	if err != nil {
		return nil, err
	}
	p.ApplyMoves(moves)
	return p, nil
}
