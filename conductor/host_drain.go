package conductor

import (
	"context"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// hostDrain empties a host that lives, by a plan like that of an evacuation: its moves are planned ones.
func (c *Conductor) hostDrain() job.Definition {
	d := c.hostEvacuate()
	d.Kind = compute.JobDrain
	return d
}

// hostRestore has a host come back: its node is let go and switched on, or its cluster is told.
func (c *Conductor) hostRestore() job.Definition {
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
func (c *Conductor) releaseNode(ctx context.Context, r *job.Run) job.Outcome {
	h, err := c.Store.Hosts().Get(ctx, nil, r.Subject.ID)
	if err != nil || h.NodeID == "" {
		return job.From(err)
	}
	if err := r.Commit(ctx, func(tx job.Tx) error { return c.Nodes.Release(after(ctx), tx, h.NodeID) }); err != nil {
		return job.From(err)
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
func (c *Conductor) onlineAgain(ctx context.Context, r *job.Run) job.Outcome {
	h, err := c.Store.Hosts().Get(ctx, nil, r.Subject.ID)
	if err != nil || h.Kind != compute.GanetiHost {
		return job.From(err)
	}
	m, err := c.mover(ctx, h)
	if err != nil {
		return job.From(err)
	}
	return job.From(m.SetOffline(ctx, h.Name, false))
}

// mover is what moves the guests of a host's cluster.
func (c *Conductor) mover(ctx context.Context, h *compute.Host) (hypervisor.Mover, error) {
	if c.Hypervisors == nil {
		return nil, problem.Unsupportedf("host %s: this conductor drives no hypervisor", h.Name)
	}
	if c.Alive != nil {
		if err := c.Alive(); err != nil {
			return nil, err
		}
	}
	hv, err := c.Hypervisors.Of(ctx, h)
	if err != nil {
		return nil, err
	}
	m, able := hv.(hypervisor.Mover)
	if !able {
		return nil, problem.Unsupportedf("host %s: %s moves no guests", h.Name, h.Inventory.HypervisorType)
	}
	return m, nil
}

// moveByCluster has the cluster move a guest of a living node, and notes where it is then.
func (c *Conductor) moveByCluster(ctx context.Context, r *job.Run, t *trip) job.Outcome {
	m, err := c.mover(ctx, t.here.host)
	if err != nil {
		return job.From(err)
	}
	to := ""
	if t.there != nil {
		to = t.there.host.Name
	}
	bounded, cancel := context.WithTimeout(ctx, diskErrand)
	defer cancel()
	name, err := m.Migrate(bounded, t.here.server.ID, to, t.move.Kind == compute.LiveMigration)
	if err != nil {
		return job.From(err)
	}
	at, err := c.nodeOf(ctx, t.here.host.ClusterID, name)
	if err != nil {
		return job.From(err)
	}
	r.Note(broughtMemo, at.ID)
	r.Note(livesMemo, "brought")
	r.Note(clearedMemo, "yes")
	return job.Done()
}

// nodeOf finds the host that is a node of a cluster.
func (c *Conductor) nodeOf(ctx context.Context, cluster, name string) (*compute.Host, error) {
	found, err := c.Store.Hosts().List(ctx, nil, compute.HostFilter{ClusterID: cluster, Name: name}, record.Page{Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, problem.Unavailablef("the cluster says that the guest is on node %q, which is not known yet", name)
	}
	return found[0], nil
}
