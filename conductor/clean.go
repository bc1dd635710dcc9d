package conductor

import (
	"context"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// provide makes a node available: a cleaning without steps, and no ramdisk or boot
// plan of an earlier life left.
func (c *Conductor) provide() job.Definition { return c.cleaning("provide") }

// clean is the same, asked for by hand: the node goes back to manageable.
func (c *Conductor) clean() job.Definition { return c.cleaning("clean") }

func (c *Conductor) cleaning(kind job.Kind) job.Definition {
	const none = "a failed cleaning is cleaned again"
	return job.Definition{
		Kind: kind, Version: 1, Class: job.Operation, Failed: c.failed, Stuck: c.stuck,
		Actions: []job.Action{
			{Name: "clean up the ramdisk", Do: c.act(c.cleanUpLeftovers), NoUndo: none, Deadline: c.bmcDeadline()},
			{Name: "leave the cleaning network", Do: c.act(c.detach(driver.CleaningNet)), NoUndo: none, Deadline: networkDeadline},
			{Name: "release", Do: c.act(c.release), NoUndo: none, Deadline: c.readDeadline()},
		},
	}
}

// cleanUpLeftovers asks the BMC only if a boot of ours may still be set up there.
func (c *Conductor) cleanUpLeftovers(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	if m.node.Plan == nil {
		return job.Done()
	}
	return c.cleanUpRamdisk(ctx, r, m)
}

func (c *Conductor) release(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	state, err := c.checkPower(ctx, r, m)
	if err != nil && !problem.Is(err, problem.Unsupported) {
		return job.From(err)
	}
	return job.Done(c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		n.PowerState, n.CleanStep = state, nil
	}))
}
