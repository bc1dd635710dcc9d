package node

import (
	"context"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// An operation that is given up first voids the boot of its ramdisk, with its files and its token, in a transaction that needs no BMC.
// Then it is taken back: a machine comes to its tenant's network only if it is proven off, or never was started into a ramdisk.

var errBootTaken = problem.Conflictf("the boot of the ramdisk was taken away")

// giveUp voids the boot of the operation's ramdisk.
func (c *Conductor) giveUp(ctx context.Context, tx job.Tx, j *job.Job) error {
	n, err := c.Store.Node(ctx, tx, j.Subject.ID)
	if problem.Is(err, problem.NotFound) || err == nil && n.Plan == nil {
		return nil
	}
	if err != nil {
		return err
	}
	return c.Nodes.Edit(ctx, tx, n.ID, (*metal.Node).VoidRamdisk)
}

// mayRunNote marks a machine that was started into a ramdisk and is not proven off since.
const mayRunNote = "may run the ramdisk"

// stopRamdisk switches a machine off whose ramdisk is given up. One that must not be switched off goes on running it.
func (c *Conductor) stopRamdisk(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	r.Note(mayRunNote, "yes")
	if m.power == nil {
		return job.Fail(m.lacks("power"))
	}
	if m.node.DisablePowerOff {
		return job.Done()
	}
	if err := m.power.SetPower(ctx, m.node, metal.PowerOff); err != nil {
		return job.From(err)
	}
	r.Note(mayRunNote, "")
	return job.Done(c.keepPower(ctx, m, metal.PowerOff))
}

// rejoinTenant puts a machine back on its tenant's network, unless it may run a ramdisk there.
func (c *Conductor) rejoinTenant(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if r.Memo[mayRunNote] != "" {
		return job.Fail(problem.Conflictf("the machine is not proven off and may still run the ramdisk, so it stays off its tenant's network"))
	}
	return c.attach(driver.Tenant)(ctx, r, m)
}
