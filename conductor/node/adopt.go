package node

import "salvor/job"

// adopt takes over a machine that already runs its system: nothing is touched, its power is read.
func (c *Conductor) adopt() job.Definition {
	return job.Definition{
		Kind: "adopt", Version: 1, Class: job.Operation, Failed: c.failed, Stuck: c.stuck,
		Actions: []job.Action{
			{Name: "read the power", Do: c.withNode(c.acceptPower), NoUndo: "reading changes nothing", Deadline: c.readDeadline()},
		},
	}
}
