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

// An operation that fails before anything of ours has booted leaves the machine as it was found: power, boot device, network.

// Notes of a job for that.
const (
	powerFoundNote = "power found" // by the first action that switches the machine off
	preparedNote   = "prepared"    // the boot device may have been changed
	bootedNote     = "booted"      // a ramdisk of ours may have been started, or the machine's own system is no longer what it was
)

// noteFound notes the power as it was found before the machine is switched off. A machine that runs a ramdisk of ours already
// was not found in its own system.
func (c *Conductor) noteFound(off nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if r.Memo[powerFoundNote] != "" || m.power == nil {
			return off(ctx, r, m)
		}
		state, err := c.checkPower(ctx, r, m)
		if err != nil {
			return job.From(err)
		}
		r.Note(powerFoundNote, string(state))
		if !runsOwnSystem(m.node) {
			r.Note(bootedNote, "before")
		}
		if err := r.Commit(ctx, nil); err != nil {
			return job.From(err)
		}
		return off(ctx, r, m)
	}
}

// runsOwnSystem tells whether what runs on the machine is, as far as is known, its own system.
func runsOwnSystem(n *metal.Node) bool {
	return !n.HoldsRamdisk() && (n.Rescue == nil || !n.Rescue.SavedKnown || n.Rescue.OwnSystem)
}

// noteBooted notes that the machine is switched on into what was prepared: from here on it is no longer as it was found.
func (c *Conductor) noteBooted(ctx context.Context, r *job.Run, m *managedNode) error {
	if r.Memo[bootedNote] != "" {
		return nil
	}
	r.Note(bootedNote, "yes")
	return r.Commit(ctx, c.edit(ctx, m.node.ID, func(n *metal.Node) { noteOwnSystem(n, false) }))
}

// replacesSystem wraps an action that takes the machine's own system, or the way to it, apart.
func (c *Conductor) replacesSystem(do nodeAction) nodeAction {
	return func(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
		if err := c.noteBooted(ctx, r, m); err != nil {
			return job.From(err)
		}
		return do(ctx, r, m)
	}
}

func noteOwnSystem(n *metal.Node, own bool) {
	n.EditRescue(func(s *rescue.Session) { s.OwnSystem = own })
}

// notePrepared notes, before the boot device is changed, that it is and what it was.
func (c *Conductor) notePrepared(ctx context.Context, r *job.Run, m *managedNode) error {
	if r.Memo[preparedNote] != "" {
		return nil
	}
	if r.Kind != "rescue" && r.Memo[metal.BootNote] == "" && m.manage != nil {
		boot, err := m.manage.BootDevice(ctx, m.node)
		if err != nil && !problem.Is(err, problem.Unsupported) {
			return err
		}
		if !boot.Persistent {
			boot = rescue.Boot{Mode: boot.Mode} // a one-time override is not how a system boots
		}
		text, err := json.Marshal(boot)
		if err != nil {
			return err
		}
		r.Note(metal.BootNote, string(text))
	}
	r.Note(preparedNote, "yes")
	return r.Commit(ctx, nil)
}

// foundBoot is how the machine was set to boot. A one-time override is not put back: the machine would boot by it once more.
func foundBoot(r *job.Run, n *metal.Node) (rescue.Boot, error) {
	boot := savedBoot(n)
	if text := r.Memo[metal.BootNote]; text != "" {
		boot = rescue.Boot{}
		if err := json.Unmarshal([]byte(text), &boot); err != nil {
			return boot, err
		}
	}
	if !boot.Persistent {
		boot = rescue.Boot{Mode: boot.Mode}
	}
	return boot, nil
}

// restorePower ends the undoing of an operation. A machine that was found on, and into which nothing of ours was booted, runs
// its own system again, and so does one whose service was given up; of any other the power is read.
func (c *Conductor) restorePower(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if r.Memo[powerFoundNote] != string(metal.PowerOn) || r.Memo[bootedNote] != "" && !isServiceStopped(r) || m.power == nil || m.node.PowerLock != "" {
		return c.syncPowerState(ctx, r, m)
	}
	if err := c.leaveRamdiskNetwork(ctx, r, m); err != nil {
		return job.From(err)
	}
	prepared := m.boot != nil && (r.Memo[preparedNote] != "" || lacksSystemPlan(r, m))
	if prepared {
		// The undo of the preparation may have failed, and then the machine would boot our ramdisk.
		if err := m.boot.CleanUpRamdisk(ctx, withVoidBoot(m.node)); err != nil {
			return job.From(err)
		}
		if err := c.restoreSystemBoot(ctx, r, m); err != nil {
			return job.From(err)
		}
	}
	return job.From(m.power.SetPower(ctx, m.node, metal.PowerOn), c.edit(ctx, m.node.ID, func(n *metal.Node) {
		n.PowerState, n.TargetPower = metal.PowerOn, ""
		noteOwnSystem(n, true)
		if prepared {
			n.VoidRamdisk()
			n.RamdiskCleared()
		}
	}))
}

// isServiceStopped tells whether the job is a service that is given up and whose ramdisk is proven off, so that the machine's own
// system can start.
func isServiceStopped(r *job.Run) bool {
	return r.Kind == "service" && r.Memo[bootedNote] == "yes" && r.Memo[mayRunNote] == ""
}

// hasSystem tells whether the job found the machine in a system that a user works with.
func hasSystem(r *job.Run) bool { return r.Kind == "rescue" || r.Kind == "service" }

// lacksSystemPlan tells whether the machine's own system boots by a plan of ours and the job has replaced that plan.
func lacksSystemPlan(r *job.Run, m *managedNode) bool {
	planned := m.deploy != nil && m.deploy.BootsRamdisk() || m.info.FromVolumes(m.node)
	return hasSystem(r) && planned && (m.node.Plan == nil || m.node.BootsRamdisk())
}

// restoreSystemBoot has the machine boot its own system as it was found.
func (c *Conductor) restoreSystemBoot(ctx context.Context, r *job.Run, m *managedNode) error {
	boot, err := foundBoot(r, m.node)
	if err != nil {
		return err
	}
	if !hasSystem(r) {
		return m.boot.PrepareInstance(ctx, m.node, boot)
	}
	plan, err := c.planSystem(ctx, m)
	if err != nil {
		return err
	}
	if err := c.steps().commit(ctx, r, m, plan); err != nil {
		return err
	}
	return c.prepareSystem(ctx, m, boot)
}

// leaveRamdiskNetwork tries once more what an earlier undo may have failed at: the machine's own system must not start on the
// network of a ramdisk.
func (c *Conductor) leaveRamdiskNetwork(ctx context.Context, r *job.Run, m *managedNode) error {
	if r.Stuck() == "" || m.network == nil {
		return nil
	}
	net := driver.CleaningNet
	switch r.Kind {
	case "rescue":
		net = driver.Rescuing
	case "deploy":
		net = driver.Provisioning
	case "inspect":
		net = driver.Inspection
	}
	if err := m.network.Detach(ctx, m.node, m.ports, net); err != nil || !isRebuildJob(r) {
		return err
	}
	return m.network.Attach(ctx, m.node, m.ports, driver.Tenant)
}

// isRebuildJob tells whether the job builds the system of an active node again.
func isRebuildJob(r *job.Run) bool {
	var args metal.ProvisionArgs
	return r.Kind == "deploy" && json.Unmarshal(r.Args, &args) == nil && args.Rebuild
}

// leaveProvisioning takes the machine off the provisioning network; a system that was to be built again gets its tenant's back.
func (c *Conductor) leaveProvisioning(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.network == nil {
		return job.Fail(m.lacks("network"))
	}
	if err := m.network.Detach(ctx, m.node, m.ports, driver.Provisioning); err != nil {
		return job.From(err)
	}
	// A job of the former release notes nothing of the boot.
	if !isRebuildJob(r) || r.Memo[bootedNote] != "" || r.Memo[mayRunNote] != "" || r.Memo[powerFoundNote] == "" {
		return job.Done()
	}
	return c.attach(driver.Tenant)(ctx, r, m)
}
