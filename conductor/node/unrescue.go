package node

import (
	"context"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
)

// unrescue takes the ramdisk away and boots the node's own system as it was before
// the rescue. It trusts no undo: it starts from any half-done machine.
func (c *Conductor) unrescue() job.Definition {
	const again = "unrescue may be asked again from unrescue failed"
	return job.Definition{
		Kind: "unrescue", Version: 2, Class: job.Operation, GiveUp: c.giveUp, Failed: c.failed, Stuck: c.stuck,
		Actions: []job.Action{
			c.checkAction(),
			{Name: "check the volumes", Do: c.withNode(c.checkVolumes), NoUndo: checksOnly, Checks: true, Deadline: c.readDeadline()},
			{Name: "power off", Do: c.withNode(c.turnOff), Undo: c.withNode(c.syncPowerState), Deadline: c.bmcDeadline()},
			{Name: "clean up the ramdisk", Do: c.withNode(c.cleanUpRamdisk), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "leave the rescuing network", Do: c.withNode(c.detach(driver.Rescuing)), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "join the tenant network", Do: c.withNode(c.attach(driver.Tenant)), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "plan the boot", Do: c.withNode(c.planInstance), NoUndo: again},
			{Name: "prepare the instance", Do: c.withNode(c.prepareInstance), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "power on", Do: c.withNode(c.finishUnrescue), NoUndo: again, Deadline: c.bmcDeadline()},
		},
	}
}

// finishUnrescue starts the machine's own system. A machine that was off before a diagnosis or a repair stays off.
func (c *Conductor) finishUnrescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if s := m.node.Rescue; s != nil && s.MadeByJob() && s.Saved.Power == "off" {
		return job.Done(c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
			n.PowerState, n.TargetPower, n.Rescue, n.LastError = metal.PowerOff, "", nil, ""
		}))
	}
	return job.From(c.start(ctx, r, m), c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		n.PowerState, n.TargetPower, n.Rescue, n.LastError = metal.PowerOn, "", nil, ""
	}))
}
