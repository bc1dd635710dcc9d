package server

import (
	"context"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// hostDrain empties a host that lives, by a plan like that of an evacuation: its moves are planned ones.
func (c hostOperations) hostDrain() job.Definition {
	d := c.hostEvacuate()
	d.Kind = compute.JobDrain
	return d
}

// hostRestore has a host come back: its node is let go and switched on, or its cluster is told.
func (c hostOperations) hostRestore() job.Definition {
	const kept = "who restores a host wants it so, whatever else fails"
	return job.Definition{
		Kind: compute.JobRestore, Version: 1, Class: job.Operation,
		Actions: []job.Action{
			{Name: "release the node", Do: c.releaseNode, NoUndo: kept},
			{Name: "tell the cluster", Do: c.onlineAgain, NoUndo: kept, Deadline: 5 * time.Minute},
		},
	}
}

// releaseNode ends the hold of a fence, and has the node switched on by a command of its own.
func (c hostOperations) releaseNode(ctx context.Context, r *job.Run) job.Outcome {
	h, err := c.Store.Hosts().Get(ctx, nil, r.Subject.ID)
	if err != nil || h.NodeID == "" {
		return job.From(err)
	}
	if err := r.Commit(ctx, func(tx job.Tx) error { return c.Nodes.UnlockPower(detachContext(ctx), tx, h.NodeID) }); err != nil {
		return job.From(err)
	}
	n, err := c.Store.Node(ctx, nil, h.NodeID)
	if err == nil && n.TargetPower == metal.PowerOn {
		return job.Done() // it is being switched on, as by this action before a crash
	}
	err = c.Nodes.SetPower(ctx, h.NodeID, metal.TurnOn, 0, record.Asker{RequestID: r.RequestID, User: r.User})
	if problem.Is(err, problem.NotFound) {
		return job.Done() // it is no machine of ours any more
	}
	if problem.Is(err, problem.Conflict) {
		return job.Retry(time.Second, err) // somebody works on it
	}
	return job.From(err)
}

// onlineAgain takes back that a cluster's node is offline.
func (c hostOperations) onlineAgain(ctx context.Context, r *job.Run) job.Outcome {
	h, err := c.Store.Hosts().Get(ctx, nil, r.Subject.ID)
	if err != nil || h.Kind != compute.GanetiHost {
		return job.From(err)
	}
	m, err := c.clusters().mover(ctx, h)
	if err != nil {
		return job.From(err)
	}
	return job.From(m.SetOffline(ctx, h.Name, false))
}
