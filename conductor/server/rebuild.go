package server

import (
	"context"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// serverRebuild makes a server's root disk anew, from the image that its row names by now; who it is, its other disks and its
// addresses stay. The new disk is whole before the server is powered off, and the former one goes into quarantine. A failed one is asked
// again.
func (c *Conductor) serverRebuild() job.Definition {
	const again = "the former root disk is in quarantine; a rebuild may be asked again"
	return job.Definition{
		Kind: compute.JobRebuild, Version: 2, Class: job.Operation, Failed: c.rebuildFailed,
		Actions: []job.Action{
			{Name: "make the new root disk", Do: c.withGuest(c.stageRoot), Undo: c.withGuest(c.unstageRoot), Deadline: guestDeadline(diskErrand), Since: 2},
			{Name: "power off", Do: c.withGuest(c.cutForRebuild), NoUndo: again, Deadline: guestDeadline(quickErrand)},
			{Name: "discard the root disk", Do: c.withGuest(c.discardRoot), NoUndo: again, Deadline: guestDeadline(quickErrand)},
			{Name: "prepare the disks", Do: c.withGuest(c.prepareDisks), NoUndo: again, Deadline: guestDeadline(diskErrand)},
			{Name: "define the server", Do: c.withGuest(c.defineOriginal), NoUndo: again, Deadline: guestDeadline(quickErrand)},
			{Name: "power on", Do: c.withGuest(c.powerAfterRebuild), NoUndo: again, Deadline: guestDeadline(quickErrand)},
			{Name: "settle", Do: c.withGuest(c.settleNew), NoUndo: "there is nothing left to fail"},
		},
	}
}

// stageRoot has the new root disk made beside the one in use. Where that one is erased, which saves room, its image is fetched.
func (c *Conductor) stageRoot(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	if err := checkRebuildable(g); err != nil {
		return job.Fail(err)
	}
	a, err := parseJobArgs[compute.RebuildArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	b, err := c.blueprint(ctx, g, false, "")
	if err != nil {
		return job.From(err)
	}
	e := hostOrder{verb: compute.Stage, args: compute.Args{Spec: &b.Spec, Erase: a.Discard}, within: diskErrand}
	return c.dispatch(ctx, r, g, e, func(compute.Result) job.Outcome { return job.Done() })
}

func (c *Conductor) unstageRoot(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	b, err := c.blueprint(ctx, g, false, "")
	if err != nil {
		return job.From(err)
	}
	e := hostOrder{verb: compute.Stage, args: compute.Args{Spec: &b.Spec, Cancel: true}}
	return c.dispatch(ctx, r, g, e, func(compute.Result) job.Outcome { return job.Done() })
}

// rebuildFailed handles a rebuild that could not make a new root disk. A server that still has its former root disk stays as it was,
// with a fault.
func (c *Conductor) rebuildFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	a, err := parseJobArgs[compute.RebuildArgs](&job.Run{Job: *j})
	if err != nil {
		return err
	}
	untouched := a.Former != nil && j.Version >= 2 && !j.Advanced()
	if untouched && j.State != job.Ended {
		return nil // the end of the job calls this again
	}
	return c.serverFailed("rebuilt", func(s *compute.Server, _ bool) {
		if untouched {
			a.Former.Restore(s)
		}
	})(ctx, tx, j)
}

func checkRebuildable(g *managedServer) error {
	if g.server.Foreign || g.host != nil && g.host.Kind == compute.GanetiHost {
		return problem.Unsupportedf("server %s: its disks are none of salvor's; reinstall it at its cluster", g.server.ID)
	}
	return nil
}

func (c *Conductor) cutForRebuild(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	if err := checkRebuildable(g); err != nil {
		return job.Fail(err)
	}
	off := c.offOrder(false, 0)
	off.args.KeepSaved = false // the memory is of the system whose disk is made anew
	return c.shutGuest(ctx, r, g, off)
}

func (c *Conductor) discardRoot(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.RebuildArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	b, err := c.blueprint(ctx, g, false, "")
	if err != nil {
		return job.From(err)
	}
	e := hostOrder{verb: compute.Discard, args: compute.Args{Spec: &b.Spec, Erase: a.Discard, Reason: compute.QuarantineRebuild}}
	return c.dispatch(ctx, r, g, e, func(compute.Result) job.Outcome { return job.Done() })
}

func (c *Conductor) powerAfterRebuild(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.RebuildArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if a.Power != compute.PowerOn {
		return job.Done()
	}
	return c.powerOnNew(ctx, r, g)
}
