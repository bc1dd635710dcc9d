package server

import (
	"context"
	"errors"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// hostEvacuate runs a plan: one job for each server, so many at a time. It holds the host and no server; whoever comes after a crash
// finds in the moves what was begun.
func (c hostOperations) hostEvacuate() job.Definition {
	return job.Definition{
		Kind: compute.JobEvacuate, Version: 1, Class: job.Operation, Failed: c.evacuateFailed, NoDeadline: "each move has a deadline of its own",
		Actions: []job.Action{
			{Name: "move the servers", Do: c.moveServers, NoUndo: "each move answers for itself"},
			{Name: "renew mirrors", Do: c.clusters().renewMirrors, NoUndo: "a mirror more is no harm", Deadline: guestDeadline(diskErrand)},
			{Name: "settle the plan", Do: c.settlePlan, NoUndo: "there is nothing left to fail"},
		},
	}
}

// planLook is how often a plan that is run looks at its moves, and how much longer it waits for each server that it has, until
// slowLook: a look reads them all.
const (
	planLook    = 50 * time.Millisecond
	lookForEach = time.Millisecond / 2
	slowLook    = time.Second
)

func (c hostOperations) moveServers(ctx context.Context, r *job.Run) job.Outcome {
	a, err := parseJobArgs[compute.EvacuateArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	p, err := c.Compute.Plans.Progress(ctx, a.PlanID)
	if err != nil {
		return job.From(err)
	}
	begin, skipped, busy := c.Compute.Plans.BeginPlanned, map[string]error{}, false
	if p.Plan.Drain {
		begin = c.Compute.Plans.BeginDrained
		h, err := c.Store.Hosts().Get(ctx, nil, r.Subject.ID)
		switch {
		case err != nil:
			return job.From(err)
		case h.Fenced || p.Plan.State == compute.PlanCancelled:
			return job.Done() // it holds the host up for nobody: a fence, or an evacuation, may be waiting for its end
		}
	}
	for i := range p.Next {
		item := &p.Next[i]
		err := r.Commit(ctx, func(tx job.Tx) error {
			return begin(detachContext(ctx), tx, p.Plan, item, compute.AskerOf(&r.Job))
		})
		switch {
		case errors.Is(err, job.ErrFenced) || err != nil && ctx.Err() != nil:
			return job.Retry(0, err)
		case err != nil && compute.Transient(err):
			busy = true
		case err != nil && problem.KindOf(err) == problem.Internal:
			return job.Retry(0, err)
		case err != nil:
			skipped[item.ServerID] = err
		}
	}
	skip := func(tx job.Tx) error { return c.Compute.Plans.Skip(detachContext(ctx), tx, a.PlanID, skipped) }
	if p.Going == 0 && len(p.Next) == len(skipped) && !busy {
		return job.Done(skip)
	}
	next := min(planLook+time.Duration(len(p.Plan.Items))*lookForEach, slowLook)
	return job.Pause(next, "the servers of the plan to be moved", skip)
}

func (c hostOperations) settlePlan(ctx context.Context, r *job.Run) job.Outcome {
	a, err := parseJobArgs[compute.EvacuateArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	return job.Done(func(tx job.Tx) error { return c.Compute.Plans.Settle(detachContext(ctx), tx, a.PlanID) })
}

// evacuateFailed ends the plan of a job that could not be worked off: moves that were begun go on by themselves.
func (c hostOperations) evacuateFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.State != job.Ended {
		return nil // its end calls again
	}
	a, err := parseJobArgs[compute.EvacuateArgs](&job.Run{Job: *j})
	if err != nil {
		return err
	}
	return c.Compute.Plans.Settle(ctx, tx, a.PlanID)
}
