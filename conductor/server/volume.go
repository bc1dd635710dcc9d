package server

import (
	"context"
	"encoding/json"
	"slices"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// serverAttach gives a server a volume, while it runs or not.
func (c *Conductor) serverAttach() job.Definition {
	return job.Definition{
		Kind: compute.JobAttach, Version: 1, Class: job.Operation, Failed: c.attachFailed, WaitsOn: c.waitForSilentHost, NoDeadline: waitsWithoutEnd,
		Actions: []job.Action{
			{Name: "attach", Do: c.withGuest(c.plug(compute.Attach)), Undo: c.withGuest(c.plug(compute.Detach)), Deadline: guestDeadline(quickErrand)},
			{Name: "settle", Do: c.withGuest(c.settleAttached), NoUndo: "there is nothing left to fail"},
		},
	}
}

// serverDetach takes a volume from a server, while it runs or not.
func (c *Conductor) serverDetach() job.Definition {
	const again = "a detachment may be asked again"
	return job.Definition{
		Kind: compute.JobDetach, Version: 1, Class: job.Operation, Failed: c.detachFailed, WaitsOn: c.waitForSilentHost, NoDeadline: waitsWithoutEnd,
		Actions: []job.Action{
			{Name: "detach", Do: c.withGuest(c.plug(compute.Detach)), NoUndo: again, Deadline: guestDeadline(quickErrand)},
			{Name: "settle", Do: c.withGuest(c.settleDetached), NoUndo: again},
		},
	}
}

// plug has one volume attached or detached. Both are told of the disk among the others: its row names it until it is gone.
func (c *Conductor) plug(verb compute.Verb) guestAction {
	return func(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
		a, err := parseJobArgs[compute.VolumeArgs](r)
		if err != nil {
			return job.Fail(err)
		}
		b, err := c.blueprint(ctx, g, false, "")
		if err != nil {
			return job.From(err)
		}
		b.Spec.Restore = nil
		i := slices.IndexFunc(b.Spec.Disks, func(d compute.SpecDisk) bool { return d.VolumeID == a.VolumeID })
		if i < 0 {
			return job.Fail(problem.Conflictf("volume %s is not among the disks of server %s", a.VolumeID, g.server.ID))
		}
		e := hostOrder{verb: verb, args: compute.Args{Spec: &b.Spec, Disk: &b.Spec.Disks[i]}, secret: compute.OrderSecret{CHAP: b.Secret.CHAP}}
		return c.dispatch(ctx, r, g, e, func(compute.Result) job.Outcome { return job.Done() })
	}
}

func (c *Conductor) settleAttached(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.VolumeArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	return job.Done(func(tx job.Tx) error { return c.Compute.Servers.Attached(detachContext(ctx), tx, g.server.ID, a) })
}

func (c *Conductor) settleDetached(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.VolumeArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	return job.Done(func(tx job.Tx) error { return c.Compute.Servers.Detached(detachContext(ctx), tx, g.server.ID, a) })
}

// detachFailed shows the failure: the server is as well as it was.
func (c *Conductor) detachFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.State != job.Ended {
		return nil // its end calls again
	}
	return c.serverFailed("parted from the volume", nil)(ctx, tx, j)
}

// attachFailed shows the failure. A volume of which nobody knows whether the host has let go of it is given to nobody else.
func (c *Conductor) attachFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.State != job.Ended {
		return nil // the undo goes on; its end calls again
	}
	if err := c.serverFailed("given the volume", nil)(ctx, tx, j); err != nil || j.Memo["stuck"] == "" {
		return err
	}
	var a compute.VolumeArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return err
	}
	v, err := c.Store.Volumes().Get(ctx, tx, a.VolumeID)
	if err != nil {
		return suppressNotFound(err)
	}
	v.Status = compute.VolumeError
	return c.Store.Volumes().Save(tx, v)
}
