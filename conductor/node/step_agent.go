package node

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/wire/agent"
)

// agentStep has the agent do a step.
func (c stepOperations) agentStep(ctx context.Context, r *job.Run, m *managedNode, s plannedStep, version map[string]string) (job.Outcome, bool) {
	node, ports, err := m.shown()
	if err != nil {
		return job.Fail(err), false
	}
	args := make(map[string]json.RawMessage, len(s.Args))
	for k, v := range s.Args {
		if args[k], err = json.Marshal(v); err != nil {
			return job.Fail(err), false
		}
	}
	params := agent.StepParams{Node: node, Ports: ports, Step: agent.Step{Step: s.Step.Step, Interface: s.Interface, Priority: s.Priority, RebootRequested: s.Reboot, Args: args}}
	switch r.Kind {
	case "deploy":
		params.DeployVersion = version
	case "service":
		params.ServiceVersion = version
	default:
		params.CleanVersion = version
	}
	return c.order(ctx, r, m, s, familyOf(r.Kind).execute, params)
}

// writeImage has the agent fetch the image, prove it and write it to the disk: by the agent's own step, as Ironic does since Wallaby, so
// that a hardware manager can replace it; else by the older command.
func (c stepOperations) writeImage(ctx context.Context, r *job.Run, m *managedNode, s plannedStep, version map[string]string) (job.Outcome, bool) {
	imager, ok := m.deploy.(driver.Imager)
	if !ok {
		return job.Fail(m.lacks("deploy")), false
	}
	body, err := c.Nodes.ConfigDrive(ctx, m.node)
	if err != nil {
		return job.From(err), false
	}
	params, err := imager.Prepare(m.node, body)
	if err != nil {
		return job.From(err), false
	}
	if !s.AgentHas {
		return c.order(ctx, r, m, s, agent.PrepareImage, params)
	}
	s.Args = metal.Object{"image_info": params.ImageInfo}
	if params.ConfigDrive != "" { // of an empty one the agent would make an empty partition
		s.Args["configdrive"] = params.ConfigDrive
	}
	return c.agentStep(ctx, r, m, s, version)
}

// installLoader has the agent make the disk bootable: EFI boot entries, or a look at what a BIOS will find.
func (c stepOperations) installLoader(ctx context.Context, r *job.Run, m *managedNode, s plannedStep) (job.Outcome, bool) {
	return c.order(ctx, r, m, s, agent.InstallBootloader, agent.BootloaderParams{TargetMode: driver.BootMode(m.node)})
}

// order has the agent do a command once, and follows it to its end. That it may have been
// given is durable before it is; what was taken shows in the agent's own list.
func (c stepOperations) order(ctx context.Context, r *job.Run, m *managedNode, s plannedStep, name string, params any) (job.Outcome, bool) {
	within := c.timeout(r.Kind)
	a, contact, out := c.agentOf(ctx, r, m, within)
	if !contact {
		return out, false
	}
	list, err := c.Agents.List(ctx, m.node, a)
	if err != nil {
		return fromAgent(r, stepError(s, err)), false
	}
	res, taken, err := findAgentCommand(list, r.Memo[orderNote], name)
	if err != nil {
		return job.Fail(stepError(s, err)), false
	}
	if !taken {
		if r.Memo[orderNote] == "" {
			last := ""
			if len(list) > 0 {
				last = list[len(list)-1].ID
			}
			r.Note(orderNote, orderAfter+last)
			if err := c.commit(ctx, r, m, c.resume(ctx, m)); err != nil {
				return job.From(err), false
			}
		}
		if res, err = c.Agents.Give(ctx, m.node, a, name, params); err != nil {
			return fromAgent(r, stepError(s, err)), false
		}
	}
	r.Note(orderNote, orderID+res.ID)
	switch res.Status {
	case agent.Succeeded:
		return job.Outcome{}, true
	case agent.Running:
		// The agent tells of a command's end by a heartbeat. Each one gives it as much time anew.
		contact, err := c.Store.Contact(ctx, nil, m.node.ID)
		if err != nil {
			return job.From(err), false
		}
		return c.park(ctx, m, "the agent to end "+s.name()+", heard of at "+record.Moment(contact.HeartbeatAt), within), false
	case agent.CleanVersionMismatch:
		return job.Fail(stepError(s, problem.Conflictf("the ramdisk was booted anew from another image in the middle of the steps"))), false
	}
	err = problem.Conflictf("the agent failed: %s", agentFailure(res))
	if s.Step.Step == writeImage && s.Interface == "deploy" {
		err = glanceImages(c).cause(ctx, m.node, err)
	}
	return job.Fail(stepError(s, err)), false
}

// errRamdiskRestarted is why nothing is known of a command: the agent that took it, or was to take it, is gone.
var errRamdiskRestarted = problem.Conflictf("the ramdisk was restarted while its agent was at it")

// findAgentCommand finds the command of a note in the agent's list.
func findAgentCommand(list []agent.Result, note, name string) (res agent.Result, taken bool, err error) {
	if id, ok := strings.CutPrefix(note, orderID); ok {
		for _, r := range list {
			if r.ID == id {
				return r, true, nil
			}
		}
		return res, false, errRamdiskRestarted
	}
	last, ok := strings.CutPrefix(note, orderAfter)
	if !ok {
		return res, false, nil
	}
	from := 0
	if last != "" {
		// An agent that does not know the one before is another boot's: the command may have been taken by the one that is gone.
		if from = 1 + slices.IndexFunc(list, func(r agent.Result) bool { return r.ID == last }); from == 0 {
			return res, false, errRamdiskRestarted
		}
	}
	_, verb, _ := strings.Cut(name, ".")
	for _, r := range list[from:] {
		if r.Name == name || r.Name == verb {
			return r, true, nil
		}
	}
	return res, false, nil
}
