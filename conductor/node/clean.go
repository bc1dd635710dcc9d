package node

import (
	"context"
	"encoding/json"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// provide makes a node available: cleaned by the steps that run unasked, and no ramdisk
// or boot plan of an earlier life left.
func (c *Conductor) provide() job.Definition { return c.cleaning("provide", c.cleansUnasked) }

// clean does the steps that were asked for: the node goes back to manageable.
func (c *Conductor) clean() job.Definition { return c.cleaning("clean", stepsByRamdisk) }

func (c *Conductor) cleaning(kind job.Kind, needs func(context.Context, *job.Run, *managedNode) (bool, error)) job.Definition {
	const none = "a failed cleaning is cleaned again"
	return job.Definition{
		Kind: kind, Version: 2, Class: job.Operation, GiveUp: c.giveUp, Failed: c.failed, Stuck: c.stuck, NoDeadline: stepsUnbounded,
		Actions: []job.Action{
			c.checkAction(),
			{Name: "choose the road", Do: c.withNode(c.decideRamdisk(needs)), NoUndo: checksOnly, Checks: true},
			{Name: "clean up the ramdisk", Do: c.withNode(c.cleanUpLeftovers), NoUndo: none, Deadline: c.bmcDeadline()},
			{Name: "power off", Do: c.withNode(ifRamdisk(c.noteFound(c.keepOff))), Undo: c.withNode(ifRamdisk(c.restorePower)), Deadline: c.bmcDeadline()},
			{Name: "join the cleaning network", Do: c.withNode(ifRamdisk(c.attach(driver.CleaningNet))), Undo: c.withNode(ifRamdisk(c.detach(driver.CleaningNet))), Deadline: networkDeadline, Elsewhere: true},
			{Name: "plan the boot", Do: c.withNode(ifRamdisk(c.planRamdisk())), NoUndo: "voided with the ramdisk"},
			{Name: "prepare the ramdisk", Do: c.withNode(ifRamdisk(c.prepareRamdisk)), Undo: c.withNode(ifRamdisk(c.cleanUpRamdisk)), Deadline: c.bmcDeadline()},
			{Name: "start the ramdisk", Do: c.withNode(ifRamdisk(c.turnOn)), Undo: c.withNode(ifRamdisk(c.stopRamdisk)), Deadline: c.bmcDeadline()},
			{Name: "await the ramdisk", Do: c.withNode(ifRamdisk(c.awaitRamdisk(c.CleanTimeout))), NoUndo: "waiting changes nothing"},
			{Name: "settle the steps", Do: c.withNode(c.steps().settleSteps), NoUndo: "forgotten with the operation"},
			{Name: "work off the steps", Do: c.withNode(c.steps().workOff), NoUndo: none, Deadline: stepDeadline, Elsewhere: true},
			{Name: "stop the ramdisk", Do: c.withNode(ifRamdisk(c.keepOff)), NoUndo: none, Deadline: c.bmcDeadline()},
			{Name: "clean up after the ramdisk", Do: c.withNode(ifRamdisk(c.cleanUpRamdisk)), NoUndo: none, Deadline: c.bmcDeadline()},
			{Name: "leave the cleaning network", Do: c.withNode(c.detach(driver.CleaningNet)), NoUndo: none, Deadline: networkDeadline, Elsewhere: true},
			{Name: "release", Do: c.withNode(c.release), NoUndo: none, Deadline: c.readDeadline()},
		},
	}
}

// cleansUnasked: the node's own word counts; what is configured counts for nodes whose
// disks we write. One whose deploy interface keeps the disk as it is does not lose it unasked.
func (c *Conductor) cleansUnasked(_ context.Context, _ *job.Run, m *managedNode) (bool, error) {
	if !m.heedsAgents() {
		return false, nil
	}
	if own := m.node.AutomatedClean; own != nil {
		return *own, nil
	}
	return c.AutomatedClean && m.writesImage(), nil
}

// stepsByRamdisk: steps that were asked for run with an agent, unless the asker wants none.
func stepsByRamdisk(_ context.Context, r *job.Run, m *managedNode) (bool, error) {
	var args metal.ProvisionArgs
	if len(r.Args) > 0 {
		if err := json.Unmarshal(r.Args, &args); err != nil {
			return false, problem.Invalidf("%s: %w", r.Kind, err)
		}
	}
	return m.heedsAgents() && !args.DisableRamdisk && args.HasSteps, nil
}

// timeout bounds the silence of the ramdisk of an operation.
func (c *Conductor) timeout(kind job.Kind) time.Duration {
	switch kind {
	case "deploy":
		return c.DeployTimeout
	case "service":
		return c.ServiceTimeout
	case "inspect":
		return c.InspectTimeout
	}
	return c.CleanTimeout
}

// cleanUpLeftovers asks the BMC only if a boot of ours may still be set up there.
func (c *Conductor) cleanUpLeftovers(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.node.Plan == nil && !m.node.HoldsRamdisk() {
		return job.Done()
	}
	if r.Memo[powerFoundNote] == "" && m.node.HoldsRamdisk() {
		r.Note(bootedNote, "before") // what told it goes now
	}
	if p := m.node.Plan; r.Kind == "deploy" && p != nil && (p.Persistent || p.Volumes) {
		return c.replacesSystem(c.cleanUpRamdisk)(ctx, r, m) // the boot of the former system goes
	}
	return c.cleanUpRamdisk(ctx, r, m)
}

func (c *Conductor) release(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	state, err := c.checkPower(ctx, r, m)
	if err != nil && !problem.Is(err, problem.Unsupported) {
		return job.From(err)
	}
	return job.Done(c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		n.PowerState, n.CleanStep = state, nil
	}), c.steps().forgetSteps(m.node.ID))
}
