package conductor

import (
	"context"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// The deeds that several operations share.

// turnOff is forced off, proved by a read-back. What is wanted of the power stays
// as it is: the operation turns the machine on again.
func (c *Conductor) turnOff(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	if m.power == nil {
		return job.Fail(m.lacks("power"))
	}
	return job.From(m.power.SetPower(ctx, m.node, metal.PowerOff))
}

// keepOff turns off and means it: power sync must not turn the machine on again.
func (c *Conductor) keepOff(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	return c.turnAndKeep(ctx, m, metal.PowerOff)
}

func (c *Conductor) turnOn(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	return c.turnAndKeep(ctx, m, metal.PowerOn)
}

// turnAndKeep sets the power and what is wanted of it.
func (c *Conductor) turnAndKeep(ctx context.Context, m *machine, want metal.Power) job.Outcome {
	if m.power == nil {
		return job.Fail(m.lacks("power"))
	}
	return job.From(m.power.SetPower(ctx, m.node, want), c.edit(ctx, m.node.ID, func(n *metal.Node) {
		n.PowerState, n.TargetPower = want, ""
	}))
}

// attach and detach move the node's ports.
func (c *Conductor) attach(net driver.Net) deed {
	return func(ctx context.Context, r *job.Run, m *machine) job.Outcome {
		if m.network == nil {
			return job.Fail(m.lacks("network"))
		}
		return job.From(m.network.Attach(ctx, m.node, m.ports, net))
	}
}

func (c *Conductor) detach(net driver.Net) deed {
	return func(ctx context.Context, r *job.Run, m *machine) job.Outcome {
		if m.network == nil {
			return job.Fail(m.lacks("network"))
		}
		return job.From(m.network.Detach(ctx, m.node, m.ports, net))
	}
}

// cleanUpRamdisk ejects media and removes overrides, and voids the boot: its plan
// and its token are gone with the same transaction.
func (c *Conductor) cleanUpRamdisk(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	if m.boot == nil {
		return job.Fail(m.lacks("boot"))
	}
	return job.From(m.boot.CleanUpRamdisk(ctx, m.node), c.edit(ctx, m.node.ID, voidBoot))
}

// voidBoot takes the plan away and makes its token worthless.
func voidBoot(n *metal.Node) {
	if n.Plan != nil {
		n.Plan = nil
		n.BootNumber++
	}
}

// prepareInstance sets the boot of the node's own system: the saved one, or the
// ramdisk that is its system.
func (c *Conductor) prepareInstance(ctx context.Context, r *job.Run, m *machine) job.Outcome {
	if m.boot == nil {
		return job.Fail(m.lacks("boot"))
	}
	if m.node.Plan != nil && m.node.Plan.Persistent {
		return job.From(m.boot.PrepareRamdisk(ctx, m.node))
	}
	return job.From(m.boot.PrepareInstance(ctx, m.node, savedBoot(m.node)))
}

// checkPower reads the power, for operations that only accept a machine.
func (c *Conductor) checkPower(ctx context.Context, r *job.Run, m *machine) (metal.Power, error) {
	if m.power == nil {
		return "", m.lacks("power")
	}
	state, err := m.power.PowerState(ctx, m.node)
	if problem.Is(err, problem.Unsupported) {
		return m.node.PowerState, nil
	}
	return state, err
}

// Deadlines of actions.
const (
	finalizeDeadline = 5 * time.Minute
	networkDeadline  = 2 * time.Minute
)

// bmcDeadline bounds the tries of an action that asks a BMC: long enough for a BMC
// that restarts, which takes several times what a change of power does.
func (c *Conductor) bmcDeadline() time.Duration { return 5 * c.PowerTimeout }

// readDeadline bounds the tries of an action that only reads the power: nothing is half
// done, so a user who waits for the answer gets it sooner.
func (c *Conductor) readDeadline() time.Duration { return 2 * c.PowerTimeout }
