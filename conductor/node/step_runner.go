package node

import (
	"context"
	"strconv"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
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
