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
			{Name: "check the volumes", Do: c.act(c.checkVolumes), NoUndo: checksOnly, Deadline: c.readDeadline()},
			{Name: "power off", Do: c.act(c.keepOff), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "clean up the ramdisk", Do: c.act(c.cleanUpLeftovers), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "leave the rescuing network", Do: c.act(c.leaveRescue), NoUndo: again, Deadline: networkDeadline},
			{Name: "join the tenant network", Do: c.act(c.attach(driver.Tenant)), NoUndo: again, Deadline: networkDeadline},
			{Name: "plan the boot", Do: c.act(c.onVolumes(c.planVolumes, c.planInstance)), NoUndo: again},
			{Name: "prepare the instance", Do: c.act(c.onVolumes(c.prepareVolumes, c.prepareInstance)), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "power on", Do: c.act(c.finishDeploy), NoUndo: again, Deadline: c.bmcDeadline()},
		},
	}
}

// planInstance voids what an earlier life left and, where the system is a ramdisk, plans its boot.
func (c *Conductor) planInstance(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	if m.deploy != nil && m.deploy.NeedsImage() {
		return job.Fail(problem.Unsupportedf("node %s: its deploy interface writes an image, which this salvor does not; use one that boots the system on the disk", m.node.ID))
	}
	if m.deploy == nil || !m.deploy.BootsRamdisk() {
		return job.Done(c.edit(ctx, m.node.ID, voidBoot))
	}
	number := m.node.BootNumber + 1
	kernel, _ := m.node.InstanceInfo["kernel"].(string)
	image, _ := m.node.InstanceInfo["ramdisk"].(string)
	plan, err := m.boot.Plan(m.node, driver.Ramdisk{Kernel: kernel, Image: image, BootNumber: number, Persistent: true, Ports: m.bootPorts()})
	if err != nil {
		return job.From(err)
	}
	return job.Done(c.edit(ctx, m.node.ID, func(n *metal.Node) { n.BootNumber, n.Plan = number, plan }))
}

// leaveRescue is for nodes that come from a rescue by way of a deletion that failed.
func (c *Conductor) leaveRescue(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	if m.node.Rescue == nil {
		return job.Done()
	}
	return c.detach(driver.Rescuing)(ctx, r, m)
}

func (c *Conductor) finishDeploy(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	return job.From(c.start(ctx, r, m), c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		n.PowerState, n.TargetPower, n.Rescue, n.LastError = metal.PowerOn, "", nil, ""
	}))
}
