package server

import (
	"context"
	"slices"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
)

// deleteBareMetal gives a server's machine back to its endpoint, whatever it is: claimed only, half deployed, in rescue or in error.
func (c bareMetalOperations) deleteBareMetal() job.Definition {
	const again = "a deletion may be asked again"
	return job.Definition{
		Kind: compute.JobMetalDelete, Version: 1, Class: job.Operation, Failed: c.serverFailed("deleted", nil),
		Actions: []job.Action{
			{Name: "void former orders", Do: c.withGuest(c.voidOrders), NoUndo: again},
			{Name: "power off", Do: c.withBareMetal(c.offForGood), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "bar it from its volumes", Do: c.withBareMetal(c.barVolumes), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "give the machine back", Do: c.withBareMetal(c.undeploy), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "wait until it is back", Do: c.withBareMetal(c.awaitUndeployed), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "take its volumes", Do: c.withBareMetal(c.takeVolumes), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "give back", Do: c.withGuest(c.giveBack), NoUndo: "there is nothing left to fail"},
		},
	}
}

var (
	// neverDeployed machines are merely let go of.
	neverDeployed = []hypervisor.Provision{hypervisor.Available, "manageable", "enroll"}
	// back are the states of a machine that is no longer a server's, though its instance may still be named.
	back       = []hypervisor.Provision{hypervisor.Cleaning, hypervisor.CleanWait, hypervisor.CleanHold, hypervisor.CleanFailed}
	undeployed = []hypervisor.Provision{
		hypervisor.InUse, hypervisor.DeployFailed, hypervisor.UndeployError, hypervisor.InRescue, hypervisor.RescueFailed,
		hypervisor.UnrescueFail, hypervisor.DeployWait, hypervisor.DeployHold, hypervisor.RescueWait,
	}
)

// offForGood turns off what runs from volumes, before they are taken from under it; others are turned off where they are cleared.
func (c bareMetalOperations) offForGood(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	if g.node == nil || g.node.Provision != hypervisor.InUse || len(volumesOf(g.server)) == 0 {
		return job.Done()
	}
	return c.switchNode(ctx, r, g, compute.PowerOff, false, 0)
}

func (c bareMetalOperations) undeploy(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	if g.node == nil {
		return job.Done()
	}
	m := g.node
	switch at := m.Provision; {
	case slices.Contains(neverDeployed, at):
		return c.fromNode(r, g, g.api.Release(ctx, m.ID, g.server.ID))
	case slices.Contains(back, at) || at == hypervisor.Undeploying:
		return job.Done()
	case !slices.Contains(undeployed, at):
		return c.pollAgain(r, "node "+m.ID+" to be no longer in state "+string(at), c.bareMetalTimeout(), g.stays(at))
	}
	if m.TakesVIFs {
		if err := g.api.Unplug(ctx, m.ID, g.vifs()); err != nil {
			return c.fromNode(r, g, err)
		}
	}
	return c.fromNode(r, g, g.api.Ask(ctx, m.ID, hypervisor.Undeploy, hypervisor.NodeRequest{}))
}

func (c bareMetalOperations) awaitUndeployed(_ context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	if g.node == nil || slices.Contains(back, g.node.Provision) || slices.Contains(neverDeployed, g.node.Provision) {
		return job.Done()
	}
	if g.node.Provision == hypervisor.UndeployError {
		return job.Fail(problem.Conflictf("%s", wordsOr(g.node.LastError, "its node "+g.node.ID+" could not be cleared, and does not say why")))
	}
	return c.pollAgain(r, "node "+g.node.ID+" to be given back; it is in state "+string(g.node.Provision), c.bareMetalTimeout(), g.stays(g.node.Provision))
}
