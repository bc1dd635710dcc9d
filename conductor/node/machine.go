package node

import (
	"context"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// The node actions that several operations share.

// turnOff is forced off, proved by a read-back. What is wanted of the power stays
// as it is: the operation turns the machine on again. One that must not be switched off
// stays on, and start restarts it.
func (c *Conductor) turnOff(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.power == nil {
		return job.Fail(m.lacks("power"))
	}
	if m.node.DisablePowerOff {
		return job.Done()
	}
	return job.From(m.power.SetPower(ctx, m.node, metal.PowerOff))
}

// keepOff turns off and means it: power sync must not turn the machine on again.
func (c *Conductor) keepOff(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.power == nil {
		return job.Fail(m.lacks("power"))
	}
	if m.node.DisablePowerOff {
		return job.Done()
	}
	return job.From(m.power.SetPower(ctx, m.node, metal.PowerOff), c.keepPower(ctx, m, metal.PowerOff))
}

func (c *Conductor) turnOn(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.power == nil {
		return job.Fail(m.lacks("power"))
	}
	if err := c.noteBooted(ctx, r, m); err != nil {
		return job.From(err)
	}
	return job.From(c.start(ctx, r, m), c.keepPower(ctx, m, metal.PowerOn))
}

// keepPower notes what is wanted of the power from now on.
func (c *Conductor) keepPower(ctx context.Context, m *managedNode, want metal.Power) func(job.Tx) error {
	return c.edit(ctx, m.node.ID, func(n *metal.Node) { n.PowerState, n.TargetPower = want, "" })
}

// start boots a machine that was turned off before. One that must not be switched off is
// restarted, once in each action: who comes after a crash believes that it was. A restart that the BMC has surely not taken is given again.
func (c *Conductor) start(ctx context.Context, r *job.Run, m *managedNode) error {
	if !m.node.DisablePowerOff {
		return m.power.SetPower(ctx, m.node, metal.PowerOn)
	}
	return restartOnce(ctx, r, m, func() (restartFunc, error) { return restarter(m) })
}

// restarter is the restart of the machine's power interface. Unsupported: the interface has none.
func restarter(m *managedNode) (restartFunc, error) {
	d, err := requireInterface[driver.Restarter](m, "power", "a restart that does not switch off")
	if err != nil {
		return nil, err
	}
	return d.Restart, nil
}

// restartFunc restarts a machine that is on.
type restartFunc func(ctx context.Context, n *metal.Node) error

// restartOnce restarts a machine that is on, once in each action, in the way that find gives. It switches on a machine that is off.
func restartOnce(ctx context.Context, r *job.Run, m *managedNode, find func() (restartFunc, error)) error {
	state, err := m.power.PowerState(ctx, m.node)
	if err != nil {
		return err
	}
	mark := restartMark(r)
	if state != metal.PowerOn || r.Memo[mark] != "" {
		return m.power.SetPower(ctx, m.node, metal.PowerOn)
	}
	restart, err := find()
	if err != nil {
		return err
	}
	r.Note(mark, "yes")
	if err := r.Commit(ctx, nil); err != nil {
		return err
	}
	if err = restart(ctx, m.node); driver.IsNotTaken(err) {
		r.Note(mark, "") // the next try restarts the machine
		if commitErr := r.Commit(ctx, nil); commitErr != nil {
			return commitErr
		}
	}
	return err
}

// restartMark notes that the action in hand has restarted the machine.
func restartMark(r *job.Run) string { return "restarted by " + r.Action }

// attach and detach move the node's ports.
func (c *Conductor) attach(net driver.Net) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if m.network == nil {
			return job.Fail(m.lacks("network"))
		}
		return job.From(m.network.Attach(ctx, m.node, m.ports, net))
	}
}

func (c *Conductor) detach(net driver.Net) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if m.network == nil {
			return job.Fail(m.lacks("network"))
		}
		return job.From(m.network.Detach(ctx, m.node, m.ports, net))
	}
}

// cleanUpRamdisk ejects media and removes overrides, and voids the boot: its plan
// and its token are gone with the same transaction.
func (c *Conductor) cleanUpRamdisk(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.boot == nil {
		return job.Fail(m.lacks("boot"))
	}
	return job.From(m.boot.CleanUpRamdisk(ctx, withVoidBoot(m.node)), c.edit(ctx, m.node.ID, func(n *metal.Node) {
		n.VoidBoot()
		n.RamdiskCleared()
	}))
}

// withVoidBoot gives the node as drivers clean up after it: if its ramdisk's boot is void already, they look for what that boot left.
func withVoidBoot(n *metal.Node) *metal.Node {
	method := n.RamdiskBootMethod()
	if n.Plan != nil || method == "" {
		return n
	}
	n = n.Clone()
	n.Plan = &metal.BootPlan{Method: method}
	return n
}

// planInstance plans the boot of the node's own system, as far as that needs a plan, and voids what an earlier life left.
func (c *Conductor) planInstance(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	plan, err := c.planSystem(ctx, m)
	return job.From(err, plan)
}

// planSystem is planInstance as a change of the node.
func (c *Conductor) planSystem(ctx context.Context, m *managedNode) (func(job.Tx) error, error) {
	v, boot, err := c.volumes(ctx, m)
	switch {
	case err != nil:
		return nil, err
	case v.Root != nil:
		return c.planVolumes(ctx, m, v, boot)
	case m.deploy == nil || !m.deploy.BootsRamdisk():
		return c.edit(ctx, m.node.ID, (*metal.Node).VoidBoot), nil
	case m.boot == nil:
		return nil, m.lacks("boot")
	}
	number := m.node.BootNumber + 1
	system, err := m.systemRamdisk(ctx, c.Nodes)
	if err != nil {
		return nil, err
	}
	system.BootNumber = number
	plan, err := glanceImages{c}.bootPlan(ctx, m, system)
	if err != nil {
		return nil, err
	}
	return c.edit(ctx, m.node.ID, func(n *metal.Node) { n.BootNumber, n.Plan = number, plan }), nil
}

// prepareInstance sets the boot of the node's own system.
func (c *Conductor) prepareInstance(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	boot := savedBoot(m.node)
	if r.Kind == "deploy" && m.writesImage() {
		boot = rescue.Boot{Device: "disk", Mode: driver.BootMode(m.node), Persistent: true} // where the image is
	}
	if r.Kind == "service" {
		var err error
		if boot, err = foundBoot(r, m.node); err != nil {
			return job.Fail(err)
		}
	}
	return job.From(c.prepareSystem(ctx, m, boot))
}

// prepareSystem sets the boot of the node's own system: its volumes, the ramdisk that is its system, or boot.
func (c *Conductor) prepareSystem(ctx context.Context, m *managedNode, boot rescue.Boot) error {
	v, volumes, err := c.volumes(ctx, m)
	switch {
	case err != nil:
		return err
	case v.Root != nil:
		return volumes.PrepareVolumes(ctx, m.node, v)
	case m.boot == nil:
		return m.lacks("boot")
	case m.node.Plan != nil && m.node.Plan.Persistent:
		return m.boot.PrepareRamdisk(ctx, m.node)
	}
	return m.boot.PrepareInstance(ctx, m.node, boot)
}

// checkPower reads the power, for operations that only accept a machine.
func (c *Conductor) checkPower(ctx context.Context, r *job.Run, m *managedNode) (metal.Power, error) {
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
	// firstContact bounds the tries to reach a BMC for the first time. With the end of the last try, they take 60 s at most.
	firstContact     = 45 * time.Second
	finalizeDeadline = 5 * time.Minute
	networkDeadline  = 2 * time.Minute
)

// bmcDeadline bounds the tries of an action that asks a BMC: long enough for a BMC
// that restarts, which takes several times what a change of power does.
func (c *Conductor) bmcDeadline() time.Duration { return 5 * c.PowerTimeout }

// readDeadline bounds the tries of an action that only reads the power: nothing is half
// done, so a user who waits for the answer gets it sooner.
func (c *Conductor) readDeadline() time.Duration { return 2 * c.PowerTimeout }
