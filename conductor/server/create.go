package server

import (
	"context"
	"encoding/json"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/secret"
)

// serverCreate gives a server a host and makes it there. What failed stays where it is: a deletion cleans it up.
func (c *Conductor) serverCreate() job.Definition {
	const kept = "a failed server keeps its host, so that its deletion cleans up"
	return job.Definition{
		Kind: compute.JobCreate, Version: 1, Class: job.Operation, Failed: c.serverFailed("created", nil),
		Actions: []job.Action{
			{Name: "place", Do: c.withGuest(c.place), NoUndo: kept},
			{Name: "prepare the disks", Do: c.withGuest(c.prepareDisks), NoUndo: kept, Deadline: guestDeadline(diskErrand)},
			{Name: "define the server", Do: c.withGuest(c.defineNew), NoUndo: kept, Deadline: guestDeadline(diskErrand)},
			{Name: "power on", Do: c.withGuest(c.powerOnNew), NoUndo: kept, Deadline: guestDeadline(quickErrand)},
			{Name: "settle", Do: c.withGuest(c.settleNew), NoUndo: "there is nothing left to fail"},
		},
	}
}

func (c *Conductor) place(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.CreateArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	return job.Done(func(tx job.Tx) error {
		_, _, err := c.Compute.Servers.Place(detachContext(ctx), tx, g.server.ID, a)
		return err
	})
}

// prepareDisks has the disks made and the config drive written; the first password is forgotten with that.
func (c *Conductor) prepareDisks(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	hash, err := firstPassword(r.Secret)
	if err != nil {
		return job.Fail(err)
	}
	b, err := c.blueprint(ctx, g, false, hash)
	if err != nil {
		return job.From(err)
	}
	b.Spec.Restore = nil
	e := hostOrder{verb: compute.Prepare, args: compute.Args{Spec: &b.Spec}, within: diskErrand}
	e.secret = compute.OrderSecret{CHAP: b.Secret.CHAP, Drive: b.Secret.Drive}
	return c.dispatch(ctx, r, g, e, func(compute.Result) job.Outcome {
		r.Secret = secret.Value{}
		return job.Done()
	})
}

// firstPassword reads the hash of the system's first password from a job's secret; empty: it gets none.
func firstPassword(v secret.Value) (string, error) {
	if v.Empty() {
		return "", nil
	}
	var s compute.JobSecret
	if err := json.Unmarshal([]byte(v.Reveal()), &s); err != nil {
		return "", problem.New(problem.Internal, "the secret of a job cannot be read")
	}
	return s.Hash, nil
}

// defineNew has time for the disks: where no agent of ours prepares them, the definition makes them.
func (c *Conductor) defineNew(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	b, err := c.blueprint(ctx, g, false, "")
	if err != nil {
		return job.From(err)
	}
	e := defineErrand(b)
	e.within = diskErrand
	return c.dispatch(ctx, r, g, e, func(compute.Result) job.Outcome { return job.Done() })
}

func (c *Conductor) powerOnNew(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	return c.switchOn(ctx, r, g, func() job.Outcome {
		return job.Done(c.editServer(ctx, g.server.ID, func(s *compute.Server) { s.Power = compute.PowerOn }))
	})
}

func (c *Conductor) settleNew(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	return job.Done(c.finishServer(ctx, g.server.ID, func(s *compute.Server) {
		s.Fault, s.Wanted = nil, s.Power
		s.Settle(s.Power)
		if s.Power == compute.PowerOn {
			s.LaunchedAt = c.Now().UTC()
		}
	}))
}
