package node

import (
	"context"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/wire/agent"
)

// Nodes whose system lies on volumes: what operations do in place of writing an image
// and booting a disk. The targets are read afresh each time, so that what they say now is what boots.

const checksOnly = "checking changes nothing"

// volumes gives what the node boots from its targets; without a root it boots its disk.
func (c *Conductor) volumes(ctx context.Context, m *managedNode) (metal.VolumePlan, driver.VolumeBoot, error) {
	v, err := c.Nodes.VolumePlan(ctx, m.node)
	if err != nil || v.Root == nil {
		return v, nil, err
	}
	boot, ok := m.boot.(driver.VolumeBoot)
	if !ok {
		return v, nil, problem.Unsupportedf("node %s: its boot interface cannot boot from volumes", m.node.ID)
	}
	return v, boot, nil
}

// checkVolumes comes before any change of power: a volume that cannot be booted is told
// while the machine is as it was.
func (c *Conductor) checkVolumes(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	v, boot, err := c.volumes(ctx, m)
	if err != nil || v.Root == nil {
		return job.From(err)
	}
	return job.From(boot.CheckVolumes(ctx, m.node, v))
}

// planVolumes opens the boot of a machine that asks us on its way to its volumes. It gives the change of the node.
func (c *Conductor) planVolumes(ctx context.Context, m *managedNode, v metal.VolumePlan, boot driver.VolumeBoot) (func(job.Tx) error, error) {
	number := m.node.BootNumber + 1
	plan, err := boot.PlanVolumes(m.node, m.bootPorts(), v, number)
	if err != nil {
		return nil, err
	}
	if plan == nil {
		return c.edit(ctx, m.node.ID, func(n *metal.Node) {
			n.VoidBoot()
			markVolumes(n, true) // before the machine is told of them
		}), nil
	}
	return c.edit(ctx, m.node.ID, func(n *metal.Node) { n.BootNumber, n.Plan = number, plan }), nil
}

// refreshVolumes brings what an active machine keeps of its volumes up to date before it is
// switched on.
func (c *Conductor) refreshVolumes(ctx context.Context, m *managedNode) error {
	if m.node.ProvisionState != metal.Active {
		return nil
	}
	v, boot, err := c.volumes(ctx, m)
	if err != nil || v.Root == nil {
		return err
	}
	return boot.RefreshVolumes(ctx, m.node, v)
}

// volumesMark in driver_internal_info tells that the machine itself may hold volumes, which outlive their records.
const volumesMark = "salvor_volumes_set"

func markVolumes(n *metal.Node, set bool) { markInternal(n, volumesMark, set) }

// markInternal sets a mark in driver_internal_info, or removes it.
func markInternal(n *metal.Node, mark string, set bool) {
	if (n.InternalInfo[mark] != nil) == set {
		return
	}
	if set {
		n.SetInternal(mark, true)
	} else {
		n.SetInternal(mark, nil)
	}
}

// leaveVolumes has the machine forget its volumes, whatever became of the records.
func (c *Conductor) leaveVolumes(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	boot, holds := holdsVolumes(m)
	if !holds {
		return job.Done()
	}
	return job.From(boot.CleanUpVolumes(ctx, m.node), c.edit(ctx, m.node.ID, func(n *metal.Node) { markVolumes(n, false) }))
}

// holdsVolumes tells whether the machine itself may hold volumes.
func holdsVolumes(m *managedNode) (driver.VolumeBoot, bool) {
	boot, ok := m.boot.(driver.VolumeBoot)
	return boot, ok && (m.info.FromVolumes(m.node) || m.node.InternalInfo[volumesMark] != nil)
}

// leaveFormerVolumes is for a system that is built again on its disk: a target that is gone, and its secret, would stay in
// the machine, and boot.
func (c *Conductor) leaveFormerVolumes(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if v, _, err := c.volumes(ctx, m); err != nil || v.Root != nil {
		return job.From(err)
	}
	if _, holds := holdsVolumes(m); !holds {
		return job.Done()
	}
	return c.replacesSystem(c.leaveVolumes)(ctx, r, m)
}

// dropTargets deletes the volume targets with the instance, as Ironic clears instance_info, and the connectors that lessees made.
// Other connectors belong to the machine and stay.
func (c *Conductor) dropTargets(ctx context.Context, nodeID string) func(job.Tx) error {
	return func(tx job.Tx) error {
		if err := c.Nodes.DropLesseeConnectors(ctx, tx, nodeID, ""); err != nil {
			return err
		}
		targets, err := c.Store.Targets().List(ctx, tx, metal.TargetFilter{NodeID: nodeID}, record.Page{Limit: 1000})
		if err != nil {
			return err
		}
		for _, t := range targets {
			if err := c.Store.Targets().Delete(tx, t); err != nil {
				return err
			}
		}
		return nil
	}
}

// rescueVolumes tells the rescue ramdisk where the volumes are. A node whose records are not in
// order is rescued all the same, without them.
func (c *Conductor) rescueVolumes(ctx context.Context, m *managedNode, log func(msg string, args ...any)) []agent.Volume {
	v, err := c.Nodes.VolumePlan(ctx, m.node)
	if err != nil {
		log("the rescue shows no volumes", "error", err)
	}
	if err != nil || v.Root == nil {
		return nil
	}
	var out []agent.Volume
	for _, volume := range append([]metal.Volume{*v.Root}, v.Others...) {
		for _, p := range volume.Paths {
			out = append(out, agent.Volume{
				Initiator: v.Initiator, Target: p.IQN, Host: p.Host, Port: p.Port,
				Username: volume.Login.Username, Password: volume.Login.Password.Reveal(),
				MutualUsername: volume.Mutual.Username, MutualPassword: volume.Mutual.Password.Reveal(),
			})
		}
	}
	return out
}
