package node

import (
	"context"
	"errors"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
)

// delete takes a node from its user, whatever is half done on it, and cleans it.
func (c *Conductor) delete() job.Definition {
	const again = "delete may be asked again from error"
	return job.Definition{
		Kind: "delete", Version: 1, Class: job.Operation, GiveUp: c.giveUp, Failed: c.failed, Stuck: c.stuck,
		Actions: []job.Action{
			{Name: "power off", Do: c.withNode(c.keepOff), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "clean up the ramdisk", Do: c.withNode(c.cleanUpRamdisk), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "leave the volumes", Do: c.withNode(secureBoot{c}.withSecureBootOff(c.leaveVolumes)), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "leave the provisioning network", Do: c.withNode(c.leaveSteps), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "leave the rescuing network", Do: c.withNode(c.detach(driver.Rescuing)), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "leave the tenant network", Do: c.withNode(c.detach(driver.Tenant)), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "forget the instance", Do: c.withNode(c.forgetInstance), NoUndo: again},
		},
	}
}

// forgetInstance clears what belonged to the user and goes on with cleaning.
func (c *Conductor) forgetInstance(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	next := &job.Job{Kind: "provide", Class: job.Operation, Subject: r.Subject, Group: r.Group, RequestID: r.RequestID, User: r.User}
	return job.Then(next, c.advance(ctx, m.node.ID, metal.CleanEvent, func(n *metal.Node) {
		n.InstanceInfo, n.InstanceUUID, n.Rescue, n.LastError = metal.Object{}, "", nil, ""
		n.NetworkData, n.DeployStep = nil, nil
	}), c.dropTargets(ctx, m.node.ID), c.steps().forgetSteps(m.node.ID), c.forgetDocuments(m.node.ID))
}

// leaveSteps takes a machine off the networks of an operation that was given up for this one.
func (c *Conductor) leaveSteps(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	for _, net := range []driver.Net{driver.Provisioning, driver.CleaningNet} {
		if m.network == nil {
			return job.Fail(m.lacks("network"))
		}
		if err := m.network.Detach(ctx, m.node, m.ports, net); err != nil {
			return job.From(err)
		}
	}
	return job.Done()
}

// forgetDocuments drops the config drive, the diagnoses and the repairs of the instance that they belong to.
func (c *Conductor) forgetDocuments(nodeID string) func(job.Tx) error {
	return func(tx job.Tx) error {
		return errors.Join(c.Store.DeleteDocument(tx, nodeID, metal.ConfigDrive), metal.DropTenancy(c.Store, tx, nodeID))
	}
}
