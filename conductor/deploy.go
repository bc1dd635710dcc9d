package conductor

import (
	"context"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// deploy boots a node into the system that it has: on its disk, or the ramdisk that
// instance_info names (deploy interface "ramdisk").
func (c *Conductor) deploy() job.Definition {
	const again = "a failed deployment is asked for again or deleted"
	return job.Definition{
		Kind: "deploy", Version: 1, Class: job.Operation, Failed: c.failed, Stuck: c.stuck,
		Actions: []job.Action{
			{Name: "power off", Do: c.act(c.turnOff), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "join the tenant network", Do: c.act(c.attach(driver.Tenant)), NoUndo: again, Deadline: networkDeadline},
			{Name: "plan the boot", Do: c.act(c.planInstance), NoUndo: again},
			{Name: "prepare the instance", Do: c.act(c.prepareInstance), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "power on", Do: c.act(c.finishDeploy), NoUndo: again, Deadline: c.bmcDeadline()},
		},
	}
}

// planInstance voids what an earlier life left.
func (c *Conductor) planInstance(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	if m.deploy != nil && m.deploy.NeedsImage() {
		return job.Fail(problem.Unsupportedf("node %s: its deploy interface writes an image, which this salvor does not; use one that boots the system on the disk", m.node.ID))
	}
	return job.Done(c.edit(ctx, m.node.ID, voidBoot))
}

func (c *Conductor) finishDeploy(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	return job.From(m.power.SetPower(ctx, m.node, metal.PowerOn), c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		n.PowerState, n.TargetPower, n.LastError = metal.PowerOn, "", ""
	}))
}
