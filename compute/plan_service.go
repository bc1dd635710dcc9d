package compute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// PlanRequest asks for a plan.
type PlanRequest struct {
	// Host to empty, and Dest to fill, by UUID or name; no Dest: the best host for each server.
	Host, Dest string
	// Servers narrows the plan to these; empty: all of the host.
	Servers []string
	// Consent names servers that may be re-imaged: their data are lost. ReimageAll consents for all.
	Consent    []string
	ReimageAll bool
	// Drain: the host lives.
	Drain bool
	// Parallel is how many are moved at a time; 0: as the host's group says.
	Parallel int
}

const (
	// draftRounds bounds how often destinations that turn out to be none are replaced in a draft.
	draftRounds = 3
	// draftLasts is how long a draft is kept that nobody runs: the next one for its host removes it.
	draftLasts = 24 * time.Hour
)

// PlanEvacuation drafts what would become of each server of a host, and keeps the draft; nothing else is done. Destinations are asked
// what they see.
func (s *Hosts) PlanEvacuation(ctx context.Context, w PlanRequest, who Who) (*Plan, error) {
	host, err := s.Host(ctx, w.Host)
	if err != nil {
		return nil, err
	}
	if w.Parallel < 0 || w.Parallel > maxParallel {
		return nil, problem.Invalidf("parallel: want 1 to %d servers at a time", maxParallel)
	}
	o, err := s.outlook(ctx, host, &w)
	if err != nil {
		return nil, err
	}
	if o.Dest == host.ID {
		return nil, problem.Invalidf("host %s: its servers are to leave it, and cannot be moved to itself; name another destination, or none", orID(host))
	}
	p := &Plan{Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()}, HostID: host.ID, State: PlanDrafted, By: who.User, Drain: w.Drain, Parallel: w.Parallel}
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
func (s *Hosts) missing(ctx context.Context, p *Plan) (string, error) {
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
func (s *Hosts) drafted(ctx context.Context, o *PlanInput) ([]PlanItem, error) {
	items := DraftPlan(o)
	if o.Source.Kind != AgentHost {
		return items, nil
	}
	for range draftRounds {
		if err := s.ask(ctx, o, items); err != nil {
			return nil, err
		}
		again := DraftPlan(o)
		if slices.Equal(again, items) {
			return again, nil
		}
		items = again
	}
	return items, nil
}

// oneMore considers one more failure.
func (s *Hosts) oneMore(ctx context.Context, o *PlanInput, p *Plan) error {
	largest := LargestFreeHost(o, p.Items)
	var there []*Server
	if largest != nil {
		var err error
		if there, err = s.store.Servers().List(ctx, nil, ServerFilter{HostID: largest.ID}, record.Page{}); err != nil {
			return err
		}
	}
	p.OneMore, p.OneMoreWhy = SurvivesNextFailure(o, p.Items, largest, there)
	return nil
}

// ready tells whether a plan may be run now: problem.Conflict says what is missing. Planned work needs a host that lives, all else one
// that is fenced.
func (s *Hosts) ready(ctx context.Context, tx job.Tx, p *Plan) error {
	if p.Drain {
		return nil
	}
	h, err := s.store.Hosts().Get(ctx, tx, p.HostID)
	if err != nil {
		return err
	}
	if h.Kind == IronicHost {
		return problem.Conflictf("host %s is an endpoint of the Bare Metal API: each of its servers is its own host, there is nothing to fence and nothing to move", orID(h))
	}
	_, err = s.EnsureReceipt(ctx, tx, h)
	return err
}

// RunPlan begins a drafted plan; consent names more servers that may be re-imaged, also of one that runs. Conflict without a receipt:
// what is missing.
func (s *Hosts) RunPlan(ctx context.Context, planID string, consent []string, who Who) (*Plan, error) {
	var out *Plan
	err := s.change(ctx, func(tx job.Tx) error {
		p, err := s.store.Plans().Get(ctx, tx, planID)
		if err != nil {
			return err
		}
		out = p
		if p.State == PlanRunning { // who consents to more meanwhile is heard
			if len(consent) == 0 {
				return nil
			}
			if err := p.agree(consent); err != nil {
				return err
			}
			return s.savePlan(tx, p)
		}
		if p.State != PlanDrafted {
			return problem.Conflictf("plan %s is %s: make a new one", p.ID, p.State)
		}
		if err := s.ready(ctx, tx, p); err != nil {
			return err
		}
		if err := p.agree(consent); err != nil {
			return err
		}
		p.State, p.Missing = PlanRunning, ""
		return s.run(ctx, tx, p, who)
	})
	return out, err
}

// agree takes in which servers may be re-imaged.
func (p *Plan) agree(consent []string) error {
	for _, id := range consent {
		i := slices.IndexFunc(p.Items, func(item PlanItem) bool { return item.ServerID == id })
		if i < 0 {
			return problem.Invalidf("plan %s has no server %s", p.ID, truncateText(id))
		}
		p.Items[i].Consented = p.Items[i].Consented || p.Items[i].NeedsConsent
	}
	return nil
}

// run writes the plan and its job, and tells owners what they must know.
func (s *Hosts) run(ctx context.Context, tx job.Tx, p *Plan, who Who) error {
	j, err := p.job(who)
	if err != nil {
		return err
	}
	if err := s.jobs.Insert(tx, j); err != nil {
		return err
	}
	return s.begun(tx, p, who)
}

// job is the one that runs the plan.
func (p *Plan) job(who Who) (*job.Job, error) {
	kind := JobEvacuate
	if p.Drain {
		kind = JobDrain
	}
	j, err := newJob("", kind, EvacuateArgs{PlanID: p.ID}, nil, who.Asker)
	if err == nil {
		j.Subject = HostSubject(p.HostID)
	}
	return j, err
}

// begun writes down that the plan is run, in the transaction that inserts its job.
func (s *Hosts) begun(tx job.Tx, p *Plan, who Who) error {
	if err := s.savePlan(tx, p); err != nil {
		return err
	}
	for i := range p.Items {
		if text := p.Items[i].staysWhy(); text != "" {
			if err := s.note(tx, p.Items[i].ServerID, who.Asker, "contact", text); err != nil {
				return err
			}
		}
	}
	return s.noteHost(tx, p.HostID, who.Asker, fmt.Sprintf("plan %s is run: %d servers", p.ID, len(p.Items)))
}

// staysWhy is what the owner of a server that is not moved must know; empty: it is moved.
func (i *PlanItem) staysWhy() string {
	switch {
	case i.Disposition == Cannot:
		return "its host is being evacuated, and it stays: " + i.Why
	case i.Disposition == Reimage && !i.Consented:
		return "its host is being evacuated, and it stays: " + i.Why + ". That needs consent"
	}
	return ""
}

func (s *Hosts) savePlan(tx job.Tx, p *Plan) error {
	return conflictToChanged(s.store.Plans().Save(tx, p))
}

// CancelPlan ends a plan: moves that go on come to their end, no further one begins.
func (s *Hosts) CancelPlan(ctx context.Context, planID string, who Who) (*Plan, error) {
	var out *Plan
	err := s.change(ctx, func(tx job.Tx) error {
		p, err := s.store.Plans().Get(ctx, tx, planID)
		if err != nil {
			return err
		}
		out = p
		switch p.State {
		case PlanCancelled:
			return nil
		case PlanDrafted, PlanRunning:
		default:
			return problem.Conflictf("plan %s has ended: %s", p.ID, p.State)
		}
		return s.cancelled(tx, p, who, "")
	})
	return out, err
}

// cancelled writes that a plan is over, and why in the words that follow on its host's timeline.
func (s *Hosts) cancelled(tx job.Tx, p *Plan, who Who, why string) error {
	p.State, p.EndedAt = PlanCancelled, s.now()
	if err := s.savePlan(tx, p); err != nil {
		return err
	}
	return s.noteHost(tx, p.HostID, who.Asker, "plan "+p.ID+" is cancelled"+why)
}

// Plans reads a page.
func (s *Hosts) Plans(ctx context.Context, f PlanFilter, p record.Page) ([]*Plan, error) {
	return s.store.Plans().List(ctx, nil, f, p)
}

// Plan reads one, its items with the moves that were begun.
func (s *Hosts) Plan(ctx context.Context, id string) (*Plan, error) {
	p, err := s.store.Plans().Get(ctx, nil, id)
	if err != nil || p.State == PlanDrafted {
		return p, err
	}
	moves, err := s.store.Moves().List(ctx, nil, MoveFilter{PlanID: p.ID}, record.Page{})
	if err != nil {
		return nil, err
	}
	p.take(moves)
	return p, nil
}

// take notes what became of each item's move. The newest counts.
func (p *Plan) take(moves []*Move) {
	newest := make(map[string]*Move, len(moves))
	for _, m := range moves {
		if was := newest[m.ServerID]; was == nil || was.Num < m.Num {
			newest[m.ServerID] = m
		}
	}
	for i := range p.Items {
		if m := newest[p.Items[i].ServerID]; m != nil {
			p.Items[i].MoveID, p.Items[i].Problem = m.ID, m.Problem
			if m.DestID != "" {
				p.Items[i].DestID = m.DestID
			}
		}
	}
}
