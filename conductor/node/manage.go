package node

import (
	"context"

	"salvor/job"
	"salvor/metal"
)

// manage verifies that the node's BMC answers with the given credentials.
func (c *Conductor) manage() job.Definition {
	return job.Definition{
		Kind: "manage", Version: 1, Class: job.Operation, Failed: c.failed, Stuck: c.stuck,
		Actions: []job.Action{
			{Name: "read the power", Do: c.withNode(c.acceptPower), NoUndo: "reading changes nothing", Deadline: min(c.readDeadline(), firstContact)},
		},
	}
}

// acceptPower ends an operation that takes a machine as it is: its power, and what else
// its controller tells, is believed from now on.
func (c *Conductor) acceptPower(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	state, err := c.checkPower(ctx, r, m)
	if err != nil {
		return job.From(err)
	}
	change, writes := c.noteHardware(ctx, m)
	accept := c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		n.PowerState, n.LastError = state, ""
		change(n)
	})
	return job.Done(append([]func(job.Tx) error{accept}, writes...)...)
}
