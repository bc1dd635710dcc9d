package server

import (
	"context"
	"slices"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// serverDelete removes a server from its host and from the inventory, whatever it is: half made, in rescue, in error, or on no host at all.
func (c *Conductor) serverDelete() job.Definition {
	const again = "a deletion may be asked again"
	return job.Definition{
		Kind: compute.JobDelete, Version: 1, Class: job.Operation, Failed: c.serverFailed("deleted", nil),
		Actions: []job.Action{
			{Name: "void former orders", Do: c.withGuest(c.voidOrders), NoUndo: again},
			{Name: "remove the guest", Do: c.withGuest(c.removeGuest), NoUndo: again, Deadline: guestDeadline(removeErrand)},
			{Name: "give back", Do: c.withGuest(c.giveBack), NoUndo: "there is nothing left to fail"},
		},
	}
}

// voidOrders raises the server's epoch, so that nothing that was ordered before is carried out beside the removal.
func (c *Conductor) voidOrders(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	epoch := g.server.Epoch + 1
	return job.Done(
		c.editServer(ctx, g.server.ID, func(s *compute.Server) { s.Epoch = epoch }),
		func(tx job.Tx) error { return c.Store.VoidOrders(tx, g.server.ID, epoch) },
	)
}

func (c *Conductor) removeGuest(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	if g.host == nil {
		return job.Done()
	}
	lost, err := c.Compute.Liveness.Lost(ctx, g.host)
	switch {
	case err != nil:
		return job.From(err)
	case lost:
		r.Note(lostMemo, "yes")
		return job.Done()
	}
	b, err := c.blueprint(ctx, g, false, "")
	if err != nil && !problem.Is(err, problem.Unavailable) {
		// A volume that is gone keeps no server: the disks of its own are all that is removed.
		bare := *g.server
		bare.Disks = slices.DeleteFunc(slices.Clone(bare.Disks), func(d compute.Disk) bool { return d.VolumeID != "" })
		b, err = c.blueprint(ctx, &managedServer{server: &bare, host: g.host}, false, "")
	}
	if err != nil {
		return job.From(err)
	}
	remove := func(compute.Result) job.Outcome {
		e := hostOrder{verb: compute.Remove, args: compute.Args{Spec: &b.Spec, KeepDisks: g.server.Foreign}, within: removeErrand, look: moveLook}
		return c.dispatch(ctx, r, g, e, func(compute.Result) job.Outcome { return job.Done() })
	}
	if !g.server.Foreign || b.Spec.Restore == nil {
		return remove(compute.Result{})
	}
	// It stays when its row is gone: what a rescue replaced is put back as long as somebody knows it.
	e := defineErrand(b)
	e.ignoreNotFound = true
	return c.dispatch(ctx, r, g, e, remove)
}

// lostMemo notes that a deletion did not wait for its host.
const lostMemo = "without its host"

func (c *Conductor) giveBack(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	if r.Memo[lostMemo] != "" {
		return job.Done(func(tx job.Tx) error { return c.Compute.Servers.GoneWithout(detachContext(ctx), tx, g.server.ID) })
	}
	return job.Done(func(tx job.Tx) error { return c.Compute.Servers.Gone(detachContext(ctx), tx, g.server.ID) })
}
