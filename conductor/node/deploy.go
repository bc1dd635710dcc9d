package node

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// deploy boots a node into the system that it has: on its disk, or the ramdisk that
// instance_info names (deploy interface "ramdisk").
func (c *Conductor) deploy() job.Definition {
	const again = "a failed deployment is asked for again or deleted"
	return job.Definition{
		Kind: "deploy", Version: 2, Class: job.Operation, GiveUp: c.giveUp, Failed: c.failed, Stuck: c.stuck, NoDeadline: stepsUnbounded,
		Actions: []job.Action{
			c.checkAction(),
			{Name: "check the volumes", Do: c.withNode(c.checkVolumes), NoUndo: checksOnly, Checks: true, Deadline: c.readDeadline()},
			{Name: "choose the road", Do: c.withNode(c.decideRamdisk(c.deploysByRamdisk)), NoUndo: checksOnly, Checks: true},
			{Name: "power off", Do: c.withNode(c.noteFound(c.keepOff)), Undo: c.withNode(c.restorePower), Deadline: c.bmcDeadline()},
			{Name: "clean up the ramdisk", Do: c.withNode(c.cleanUpLeftovers), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "leave former volumes", Do: c.withNode(c.leaveFormerVolumes), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "leave the rescuing network", Do: c.withNode(c.leaveRescue), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "join the provisioning network", Do: c.withNode(ifRamdisk(c.joinProvisioning)), Undo: c.withNode(ifRamdisk(c.leaveProvisioning)), Deadline: networkDeadline, Elsewhere: true},
			{Name: "plan the ramdisk", Do: c.withNode(ifRamdisk(c.planRamdisk())), NoUndo: "voided with the ramdisk"},
			{Name: "prepare the ramdisk", Do: c.withNode(ifRamdisk(c.prepareRamdisk)), Undo: c.withNode(ifRamdisk(c.cleanUpRamdisk)), Deadline: c.bmcDeadline()},
			{Name: "start the ramdisk", Do: c.withNode(ifRamdisk(c.turnOn)), Undo: c.withNode(ifRamdisk(c.stopRamdisk)), Deadline: c.bmcDeadline()},
			{Name: "await the ramdisk", Do: c.withNode(ifRamdisk(c.awaitRamdisk(c.DeployTimeout))), NoUndo: "waiting changes nothing"},
			{Name: "settle the steps", Do: c.withNode(c.steps().settleSteps), NoUndo: "forgotten with the operation"},
			{Name: "work off the steps", Do: c.withNode(c.steps().workOff), NoUndo: again, Deadline: stepDeadline, Elsewhere: true},
			{Name: "stop the ramdisk", Do: c.withNode(ifRamdisk(c.quiet)), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "clean up after the ramdisk", Do: c.withNode(ifRamdisk(c.cleanUpRamdisk)), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "leave the provisioning network", Do: c.withNode(ifRamdisk(c.detach(driver.Provisioning))), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "join the tenant network", Do: c.withNode(c.attach(driver.Tenant)), NoUndo: again, Deadline: networkDeadline, Elsewhere: true},
			{Name: "plan the boot", Do: c.withNode(c.replacesSystem(secureBoot{c}.withSecureBootOn(c.planInstance))), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "prepare the instance", Do: c.withNode(c.prepareInstance), NoUndo: again, Deadline: c.bmcDeadline()},
			{Name: "power on", Do: c.withNode(c.finishDeploy), NoUndo: again, Deadline: c.bmcDeadline()},
		},
	}
}

// systemRamdisk is what a node boots whose system is a ramdisk, or an ISO image.
func (m *managedNode) systemRamdisk(ctx context.Context, nodes *metal.Nodes) (driver.Ramdisk, error) {
	info := func(key string) string { text, _ := m.node.InstanceInfo[key].(string); return text }
	r := driver.Ramdisk{Kernel: info("kernel"), Image: info("ramdisk"), ISO: info("boot_iso"), Persistent: true, Ports: m.bootPorts()}
	drive, err := nodes.ConfigDrive(ctx, m.node)
	r.ConfigDrive = len(drive) > 0 && string(drive) != "null"
	var text string
	if err == nil && r.ConfigDrive && json.Unmarshal(drive, &text) == nil && strings.Contains(text, "://") {
		err = problem.Invalidf("the config drive of node %s is a URL, which cannot be shown to a system that is a ramdisk: give an object, or base64 of a gzipped ISO image", m.node.ID)
	}
	return r, err
}

// leaveRescue is for nodes that come from a rescue by way of a deletion that failed.
func (c *Conductor) leaveRescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.node.Rescue == nil {
		return job.Done()
	}
	return c.detach(driver.Rescuing)(ctx, r, m)
}

func (c *Conductor) finishDeploy(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	return job.From(c.start(ctx, r, m), c.advance(ctx, m.node.ID, metal.DoneEvent, func(n *metal.Node) {
		n.PowerState, n.TargetPower, n.Rescue, n.LastError, n.DeployStep = metal.PowerOn, "", nil, "", nil
	}), c.steps().forgetSteps(m.node.ID))
}

// deploysByRamdisk: an image is to be written, or steps were asked for that the agent may do.
func (c *Conductor) deploysByRamdisk(ctx context.Context, r *job.Run, m *managedNode) (bool, error) {
	if v, _, err := c.volumes(ctx, m); err != nil || v.Root != nil {
		return false, err
	}
	if m.writesImage() {
		if imager, ok := m.deploy.(driver.Imager); ok {
			// What cannot be given to the machine is told while the machine is as it was.
			if _, err := imager.LocalImage(m.node); err != nil {
				return true, err
			}
			return true, glanceImages{c}.note(ctx, r, m)
		}
		return true, nil
	}
	if !m.heedsAgents() {
		return false, nil
	}
	asked, settled, err := c.steps().requestedSteps(ctx, m.node.ID)
	if err != nil || len(asked) > 0 || settled != nil {
		return true, err
	}
	templates, err := c.steps().templateSteps(ctx, m.node)
	return len(templates) > 0, err
}

// joinProvisioning takes a machine that is deployed anew off its tenant's network first.
func (c *Conductor) joinProvisioning(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.network == nil {
		return job.Fail(m.lacks("network"))
	}
	if err := m.network.Detach(ctx, m.node, m.ports, driver.Tenant); err != nil {
		return job.From(err)
	}
	return c.attach(driver.Provisioning)(ctx, r, m)
}

// stepDeadline bounds the tries of one step that does not come about; one that is under way has more.
const stepDeadline = 10 * time.Minute
