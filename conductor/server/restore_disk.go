package server

import (
	"context"
	"encoding/json"
	"slices"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// serverRestoreDisk gives a stopped server a disk that was in quarantine. If that comes to nothing, the disk is in quarantine again.
func (c *Conductor) serverRestoreDisk() job.Definition {
	return job.Definition{
		Kind: compute.JobRestoreDisk, Version: 1, Class: job.Operation, Failed: c.restoreDiskFailed,
		Actions: []job.Action{
			{Name: compute.RestoreFirst, Do: c.withGuest(c.restoreDisk), Undo: c.withGuest(c.unrestoreDisk), Deadline: guestDeadline(quickErrand)},
			{Name: "define the server", Do: c.withGuest(c.defineRestored), Undo: c.withGuest(c.defineWithout), Deadline: guestDeadline(quickErrand)},
			{Name: "settle", Do: c.withGuest(c.settleRestored), NoUndo: "there is nothing left to fail"},
		},
	}
}

// restored finds the disk among those of the server.
func (c *Conductor) restored(ctx context.Context, r *job.Run, g *managedServer) (*compute.Blueprint, *compute.SpecDisk, compute.RestoreDiskArgs, error) {
	a, err := parseJobArgs[compute.RestoreDiskArgs](r)
	if err != nil {
		return nil, nil, a, err
	}
	b, err := c.blueprint(ctx, g, false, "")
	if err != nil {
		return nil, nil, a, err
	}
	i := slices.IndexFunc(b.Spec.Disks, func(d compute.SpecDisk) bool { return d.Name == a.Disk })
	if i < 0 {
		return nil, nil, a, problem.Conflictf("disk %s is not among the disks of server %s", a.Disk, g.server.ID)
	}
	return b, &b.Spec.Disks[i], a, nil
}

func (c *Conductor) restoreDisk(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	_, disk, a, err := c.restored(ctx, r, g)
	if err != nil {
		return job.From(err)
	}
	e := hostOrder{verb: compute.RestoreDisk, args: compute.Args{Disk: disk, Quarantine: a.Quarantine}}
	return c.dispatch(ctx, r, g, e, func(compute.Result) job.Outcome { return job.Done() })
}

func (c *Conductor) unrestoreDisk(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	_, disk, _, err := c.restored(ctx, r, g)
	if err != nil {
		return job.From(err)
	}
	e := hostOrder{verb: compute.Discard, args: compute.Args{Disk: disk, Reason: compute.QuarantineRestored}}
	return c.dispatch(ctx, r, g, e, func(compute.Result) job.Outcome { return job.Done() })
}

func (c *Conductor) defineRestored(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	b, _, _, err := c.restored(ctx, r, g)
	if err != nil {
		return job.From(err)
	}
	return c.dispatch(ctx, r, g, defineErrand(b), func(compute.Result) job.Outcome { return job.Done() })
}

// defineWithout has the guest defined without the disk, which is about to go back.
func (c *Conductor) defineWithout(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	b, _, a, err := c.restored(ctx, r, g)
	if err != nil {
		return job.From(err)
	}
	b.Spec.Disks = slices.DeleteFunc(b.Spec.Disks, func(d compute.SpecDisk) bool { return d.Name == a.Disk })
	return c.dispatch(ctx, r, g, defineErrand(b), func(compute.Result) job.Outcome { return job.Done() })
}

func (c *Conductor) settleRestored(ctx context.Context, _ *job.Run, g *managedServer) job.Outcome {
	return job.Done(c.finishServer(ctx, g.server.ID, func(*compute.Server) {}))
}

// restoreDiskFailed shows the failure. A disk that could not be put back stays in the server's row: there it is found.
func (c *Conductor) restoreDiskFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.State != job.Ended {
		return nil // its end calls again
	}
	if j.Memo["stuck"] == "" {
		var a compute.RestoreDiskArgs
		if err := json.Unmarshal(j.Args, &a); err != nil {
			return err
		}
		if err := c.Compute.Quarantine.DropRestored(ctx, tx, j.Subject.ID, a); err != nil {
			return suppressNotFound(err)
		}
	}
	return c.serverFailed("given the disk", nil)(ctx, tx, j)
}
