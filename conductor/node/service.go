package node

import (
	"context"
	"encoding/json"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// service does steps on a machine that is in use, and gives it back as it was.
func (c *Conductor) service() job.Definition {
	const again = "service may be asked again from service failed"
	return job.Definition{
		Kind: "service", Version: 2, Class: job.Operation, GiveUp: c.giveUp, Failed: c.failed, Stuck: c.stuck, NoDeadline: stepsUnbounded,
		Actions: []job.Action{
			c.checkAction(),
			{Name: "check the volumes", Do: c.withNode(c.checkVolumes), NoUndo: checksOnly, Checks: true, Deadline: c.readDeadline()},
			{Name: "choose the road", Do: c.withNode(c.decideRamdisk(servesByRamdisk)), NoUndo: checksOnly, Checks: true},
			{Name: "power off", Do: c.withNode(ifRamdisk(c.noteFound(c.turnOff))), Undo: c.withNode(ifRamdisk(c.restorePower)), Deadline: c.bmcDeadline()},
			{Name: "note the boot", Do: c.withNode(ifRamdisk(c.noteBoot)), NoUndo: "reading changes nothing", Deadline: c.bmcDeadline()},
			{Name: "clean up an earlier ramdisk", Do: c.withNode(ifRamdisk(c.dropRamdisk)), NoUndo: "there is nothing left to take back", Deadline: c.bmcDeadline()},
			{Name: "leave the tenant network", Do: c.withNode(ifRamdisk(c.detach(driver.Tenant))), Undo: c.withNode(ifRamdisk(c.rejoinTenant)), Deadline: networkDeadline, Elsewhere: true},
			{Name: "join the cleaning network", Do: c.withNode(ifRamdisk(c.attach(driver.CleaningNet))), Undo: c.withNode(ifRamdisk(c.detach(driver.CleaningNet))), Deadline: networkDeadline, Elsewhere: true},
			{Name: "plan the ramdisk", Do: c.withNode(ifRamdisk(c.planRamdisk())), NoUndo: "voided with the ramdisk"},
			{Name: "prepare the ramdisk", Do: c.withNode(ifRamdisk(c.prepareRamdisk)), Undo: c.withNode(ifRamdisk(c.cleanUpRamdisk)), Deadline: c.bmcDeadline()},
			{Name: "start the ramdisk", Do: c.withNode(ifRamdisk(c.turnOn)), Undo: c.withNode(ifRamdisk(c.stopRamdisk)), Deadline: c.bmcDeadline()},
			{Name: "await the ramdisk", Do: c.withNode(ifRamdisk(c.awaitRamdisk(c.ServiceTimeout))), NoUndo: "waiting changes nothing"},
			{Name: "settle the steps", Do: c.withNode(c.steps().settleSteps), NoUndo: "forgotten with the operation"},
			{Name: "work off the steps", Do: c.withNode(c.steps().workOff), NoUndo: again, Deadline: stepDeadline, Elsewhere: true},
			{Name: "stop the ramdisk", Do: c.withNode(ifRamdisk(c.quiet)), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "clean up after the ramdisk", Do: c.withNode(ifRamdisk(c.cleanUpRamdisk)), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "leave the cleaning network", Do: c.withNode(ifRamdisk(c.detach(driver.CleaningNet))), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "join the tenant network", Do: c.withNode(ifRamdisk(c.attach(driver.Tenant))), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "plan the boot", Do: c.withNode(ifRamdisk(c.planInstance)), NoUndo: again},
			{Name: "prepare the instance", Do: c.withNode(ifRamdisk(c.prepareInstance)), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "give back", Do: c.withNode(c.finishService), NoUndo: again, Deadline: c.bmcDeadline()},
		},
	}
}

// servesByRamdisk: a machine that still has the ramdisk of a service before this one is put back in the same way, whatever
// this one was asked.
func servesByRamdisk(ctx context.Context, r *job.Run, m *managedNode) (bool, error) {
	if m.node.HoldsRamdisk() {
		return true, nil
	}
	return stepsByRamdisk(ctx, r, m)
}

// dropRamdisk takes away what a service that was given up for this one had set up, so that what fails after it is as
// in a service of its own.
func (c *Conductor) dropRamdisk(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if !m.node.HoldsRamdisk() {
		return job.Done()
	}
	return c.cleanUpRamdisk(ctx, r, m)
}

func (c *Conductor) noteBoot(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.manage == nil || r.Memo[metal.BootNote] != "" || m.node.HoldsRamdisk() {
		return job.Done() // a ramdisk's boot is not the system's
	}
	boot, err := m.manage.BootDevice(ctx, m.node)
	if err != nil && !problem.Is(err, problem.Unsupported) {
		return job.From(err)
	}
	if !boot.Persistent {
		boot = rescue.Boot{Mode: boot.Mode} // a one-time override is not how a system boots
	}
	text, err := json.Marshal(boot)
	if err != nil {
		return job.Fail(err)
	}
	r.Note(metal.BootNote, string(text))
	return job.Done()
}

// finishService switches a machine on that the ramdisk has left.
func (c *Conductor) finishService(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	power := m.node.PowerState
	if r.Memo[ramdiskMemo] == byRamdisk {
		power = metal.PowerOn
		if err := c.start(ctx, r, m); err != nil {
			return job.From(err)
		}
	}
	return job.Done(c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		n.PowerState, n.TargetPower, n.LastError, n.ServiceStep = power, "", "", nil
	}), c.steps().forgetSteps(m.node.ID))
}
