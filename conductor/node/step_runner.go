package node

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/wire/agent"
)

// How steps are worked off: one after the other, each noted before it is begun and when
// it has ended, so that whoever claims the job next goes on where it stood.

// Notes of the step in hand.
const (
	stepNote    = "step"  // how many steps are done
	orderNote   = "order" // the agent's command of this step: orderAfter or orderID, and an id
	againNote   = "again" // the ramdisk is booted anew after this step: bootDue or bootDone
	pauseNote   = "pause" // when a step that waits ends
	heldNote    = "held"  // a hold has begun
	sinceNote   = "since" // when an interface began a step that takes its time, or the part of it that partNote names
	partNote    = "part"
	begunNote   = "begun"     // an interface has begun a step
	restartNote = "restarted" // the step has restarted the machine into the ramdisk
)

const (
	orderAfter = "after " // may have been given; the last command before it has this id
	orderID    = "id "    // was taken under this id
)

const (
	bootDue  = "due"
	bootDone = "done"
)

// workOff does the steps that are left.
func (c stepOperations) workOff(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	_, list, err := c.requestedSteps(ctx, m.node.ID)
	if err != nil {
		return job.From(err)
	}
	if list == nil {
		return job.Done()
	}
	for {
		i, _ := strconv.Atoi(r.Memo[stepNote])
		if i >= len(list.Chores) {
			return job.Done(c.shift(ctx, m, metal.ResumeEvent), c.edit(ctx, m.node.ID, func(n *metal.Node) { *familyOf(r.Kind).shown(n) = nil }))
		}
		s := list.Chores[i]
		if out, done := c.step(ctx, r, m, s, formatStepPosition(i, *list), list.Version); !done {
			return out
		}
		if err := c.stepDone(ctx, r, m, i+1); err != nil {
			return job.From(err)
		}
		// The looks take a while, and a step that is cut off in them must not be done again.
		if keep := c.rereadHardware(ctx, m, s); keep != nil {
			if err := c.commit(ctx, r, m, keep); err != nil {
				return job.From(err)
			}
		}
	}
}

// stepDone makes it durable that so many steps are done.
func (c stepOperations) stepDone(ctx context.Context, r *job.Run, m *managedNode, done int) error {
	for _, key := range []string{orderNote, againNote, pauseNote, heldNote, sinceNote, partNote, begunNote, restartNote} {
		r.Note(key, "")
	}
	r.Note(stepNote, strconv.Itoa(done))
	return c.commit(ctx, r, m, c.resume(ctx, m))
}

// commit makes notes and a change durable in the middle of an action, and reads the node afresh.
func (c stepOperations) commit(ctx context.Context, r *job.Run, m *managedNode, change func(job.Tx) error) error {
	if err := r.Commit(ctx, change); err != nil {
		return err
	}
	n, err := c.Store.Node(ctx, nil, m.node.ID)
	if err == nil {
		m.node = n
	}
	return err
}

// storeFacts is commit for a change of the facts of the node, which count as read from then on; a nil change does nothing.
func (c stepOperations) storeFacts(ctx context.Context, r *job.Run, m *managedNode, change func(*metal.Node)) error {
	if change == nil {
		return nil
	}
	err := c.commit(ctx, r, m, c.edit(ctx, m.node.ID, change))
	if err == nil {
		m.facts = factsOf(m.node)
	}
	return err
}

// step does one step; not done: the outcome says what comes next.
func (c stepOperations) step(ctx context.Context, r *job.Run, m *managedNode, s plannedStep, where string, version map[string]string) (job.Outcome, bool) {
	show := familyOf(r.Kind).shown
	if shown := *show(m.node); shown["step"] != s.Step.Step || shown["interface"] != s.Interface || shown["number"] != where {
		err := c.commit(ctx, r, m, c.edit(ctx, m.node.ID, func(n *metal.Node) {
			o := s.shownAs()
			o["number"] = where
			*show(n) = o
		}))
		if err != nil {
			return job.From(err), false
		}
	}
	if r.Memo[againNote] == "" {
		if out, done := c.stepDeed(ctx, r, m, s, version); !done {
			return out, false
		}
		if !s.Reboot || r.Memo[ramdiskMemo] != byRamdisk {
			return job.Outcome{}, true
		}
		// From here on the agent that did it may be gone.
		r.Note(againNote, bootDue)
		if r.Memo[restartNote] != "" {
			r.Note(againNote, bootDone)
		}
		if err := c.commit(ctx, r, m, c.resume(ctx, m)); err != nil {
			return job.From(err), false
		}
	}
	if r.Memo[againNote] == bootDue {
		if err := c.bootAgain(ctx, r, m); err != nil {
			return job.From(err), false
		}
	}
	_, contact, out := c.agentOf(ctx, r, m, c.timeout(r.Kind))
	return out, contact
}

func (c stepOperations) stepDeed(ctx context.Context, r *job.Run, m *managedNode, s plannedStep, version map[string]string) (job.Outcome, bool) {
	switch {
	case s.By == byAgent:
		return c.agentStep(ctx, r, m, s, version)
	case s.By == byDriver:
		return c.driverStep(ctx, r, m, s)
	case s.Step.Step == writeImage && s.Interface == "deploy":
		return c.writeImage(ctx, r, m, s, version)
	case s.Step.Step == prepareBoot && s.Interface == "deploy":
		return c.installLoader(ctx, r, m, s)
	}
	return c.reservedStep(ctx, r, m, s)
}

// driverStep has an interface of the node do a step, without the ramdisk's help.
func (c stepOperations) driverStep(ctx context.Context, r *job.Run, m *managedNode, s plannedStep) (job.Outcome, bool) {
	runner := c.runner(m, s.Interface)
	if runner == nil {
		return job.Fail(m.lacks(s.Interface)), false
	}
	if err := c.forgetFormerStep(ctx, r, m, runner); err != nil {
		return job.From(err), false
	}
	worked, before := m.node, m.facts // the preparation of a start reads the node afresh
	wait, err := runner.RunStep(driver.WithBeforeStart(ctx, c.prepareStart(r, m)), worked, s.Step)
	if err := c.storeFacts(ctx, r, m, changedFacts(before, factsOf(worked))); err != nil {
		return job.From(err), false
	}
	if err != nil {
		return job.From(stepError(s, err)), false
	}
	if !wait {
		return job.Outcome{}, true
	}
	return c.stepWaits(ctx, r, m, s, runner), false
}

// forgetFormerStep drops what a step of a former job has noted in the node, once at the begin of a step: one that failed or was aborted
// leaves its notes, and by them the same step would count as asked for. The mark is stored with the first note that the step makes.
func (c stepOperations) forgetFormerStep(ctx context.Context, r *job.Run, m *managedNode, runner driver.StepRunner) error {
	f, ok := runner.(driver.StepForgetter)
	if !ok || r.Memo[begunNote] != "" || r.Memo[sinceNote] != "" {
		return nil
	}
	r.Note(begunNote, "yes")
	f.ForgetStep(m.node)
	return c.storeFacts(ctx, r, m, m.changedFacts())
}

// prepareStart gives what has the next start of the machine in a step be a fresh boot of the ramdisk that it runs. Without that, its own
// system would start on the network of the ramdisk.
func (c stepOperations) prepareStart(r *job.Run, m *managedNode) func(context.Context) error {
	return func(ctx context.Context) error {
		if r.Memo[ramdiskMemo] != byRamdisk {
			return nil
		}
		r.Note(restartNote, "yes")
		if err := c.planAgain(ctx, r, m); err != nil {
			return err
		}
		return c.storeFacts(ctx, r, m, m.changedFacts())
	}
}

// stepWaits looks at the step again by and by. Hardware that never ends one must not lock the node for good.
func (c stepOperations) stepWaits(ctx context.Context, r *job.Run, m *managedNode, s plannedStep, runner driver.StepRunner) job.Outcome {
	within := c.timeout(r.Kind)
	part := ""
	if p, ok := runner.(driver.StepParts); ok {
		part = p.StepPart(m.node)
	}
	since, err := time.Parse(time.RFC3339Nano, r.Memo[sinceNote])
	if err != nil || part != r.Memo[partNote] {
		r.Note(partNote, part)
		r.Note(sinceNote, c.Now().UTC().Format(time.RFC3339Nano))
		since = c.Now()
	}
	if within == 0 || c.Now().Sub(since) <= within {
		return job.Pause(c.StepPoll, "the step "+s.name())
	}
	if f, ok := runner.(driver.StepForgetter); ok {
		f.ForgetStep(m.node)
		if err := c.storeFacts(ctx, r, m, m.changedFacts()); err != nil {
			return job.From(err)
		}
	}
	return job.Fail(stepError(s, problem.Unavailablef("it did not end within %s; look at the machine's own logs", within)))
}

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
		return c.park(ctx, m, "the agent to end "+s.name()+", heard of at "+contact.HeartbeatAt.UTC().Format(time.TimeOnly), within), false
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

// bootAgain switches the machine off and on into a fresh boot of the ramdisk. One that must
// not be switched off is restarted into it.
func (c stepOperations) bootAgain(ctx context.Context, r *job.Run, m *managedNode) error {
	if m.power == nil {
		return m.lacks("power")
	}
	// A restart that may have been given boots the plan that is there.
	if r.Memo[restartMark(r)] == "" {
		if err := c.planAgain(ctx, r, m); err != nil {
			return err
		}
	}
	if err := c.start(ctx, r, m); err != nil {
		return err
	}
	r.Note(restartMark(r), "")
	r.Note(againNote, bootDone)
	return c.commit(ctx, r, m, c.edit(ctx, m.node.ID, func(n *metal.Node) { n.PowerState = metal.PowerOn }))
}

// planAgain has the next boot of a machine be a fresh one of the ramdisk that it runs.
func (c stepOperations) planAgain(ctx context.Context, r *job.Run, m *managedNode) error {
	number := m.node.BootNumber + 1
	old := m.node.Plan
	if old == nil {
		return errBootTaken
	}
	plan, err := glanceImages(c).bootPlan(ctx, m, driver.Ramdisk{Kernel: old.Kernel, Image: old.Ramdisk, ISO: old.ISO, BootNumber: number, CarryToken: old.CarryToken, Ports: m.bootPorts()})
	if err != nil {
		return err
	}
	if !m.node.DisablePowerOff { // not before the plan: what is refused leaves the machine on
		if err := m.power.SetPower(ctx, m.node, metal.PowerOff); err != nil {
			return err
		}
	}
	plan.Image, plan.System = old.Image, old.System
	if err := c.commit(ctx, r, m, c.edit(ctx, m.node.ID, func(n *metal.Node) { n.BootNumber, n.Plan = number, plan })); err != nil {
		return err
	}
	return m.boot.PrepareRamdisk(ctx, m.node)
}
