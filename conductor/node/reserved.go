package node

import (
	"context"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// reservedStep does a step that belongs to no interface.
func (c stepOperations) reservedStep(ctx context.Context, r *job.Run, m *managedNode, s plannedStep) (job.Outcome, bool) {
	switch s.Step.Step {
	case "hold":
		return c.hold(ctx, r, m)
	case "wait":
		return c.waitStep(ctx, r, m, s)
	}
	if m.power == nil {
		return job.Fail(m.lacks("power")), false
	}
	return c.powerStep(ctx, r, m, s)
}

// powerStep is absolute, like every action: a reboot is off, then on. Where a ramdisk runs,
// what switches the machine on boots the ramdisk anew, after the step.
func (c stepOperations) powerStep(ctx context.Context, r *job.Run, m *managedNode, s plannedStep) (job.Outcome, bool) {
	var wanted []metal.Power
	switch {
	case m.node.DisablePowerOff && s.Step.Step == "power_off":
		return job.Fail(stepError(s, problem.Conflictf("the node's disable_power_off is set: it is not switched off"))), false
	case m.node.DisablePowerOff && s.Step.Step == "reboot" && r.Memo[ramdiskMemo] != byRamdisk:
		if err := c.start(ctx, r, m); err != nil {
			return job.From(stepError(s, err)), false
		}
		r.Note(restartMark(r), "") // made durable with the end of the step
	case s.Step.Step == "power_off":
		wanted = []metal.Power{metal.PowerOff}
	case r.Memo[ramdiskMemo] == byRamdisk:
	case s.Step.Step == "reboot":
		wanted = []metal.Power{metal.PowerOff, metal.PowerOn}
	default:
		wanted = []metal.Power{metal.PowerOn}
	}
	for _, want := range wanted {
		if err := m.power.SetPower(ctx, m.node, want); err != nil {
			return job.From(stepError(s, err)), false
		}
		if err := c.commit(ctx, r, m, c.edit(ctx, m.node.ID, func(n *metal.Node) { n.PowerState = want })); err != nil {
			return job.From(err), false
		}
	}
	return job.Outcome{}, true
}

// hold parks the job until somebody asks for unhold.
func (c stepOperations) hold(ctx context.Context, r *job.Run, m *managedNode) (job.Outcome, bool) {
	if r.Memo[heldNote] == "" {
		r.Note(heldNote, "yes")
		return job.Wait("unhold", 0, c.shift(ctx, m, metal.HoldEvent)), false
	}
	if _, err := metal.ByVerb(m.node.ProvisionState, metal.Unhold); err {
		return job.Wait("unhold", 0), false
	}
	return job.Outcome{}, true
}

const (
	// defaultWait is how long a wait step without seconds lasts where no ramdisk tells that it is there.
	defaultWait = 30 * time.Second
	// briefWait is how much of a wait is spent with the node locked; a longer one can be aborted.
	briefWait = 2 * time.Second
)

// waitStep parks the job for a time or, without seconds, until the ramdisk is heard again.
func (c stepOperations) waitStep(ctx context.Context, r *job.Run, m *managedNode, s plannedStep) (job.Outcome, bool) {
	lasts := defaultWait
	if v, ok := s.arg("seconds"); ok {
		n, isNumber := v.(float64)
		if !isNumber || n < 0 || n > 24*3600 {
			return job.Fail(stepError(s, problem.Invalidf("seconds must be a number from 0 to 86400"))), false
		}
		lasts = time.Duration(n * float64(time.Second))
	} else if r.Memo[ramdiskMemo] == byRamdisk {
		return c.nextHeartbeat(ctx, r, m)
	}
	end, err := time.Parse(time.RFC3339Nano, r.Memo[pauseNote])
	if err != nil {
		end = c.Now().Add(lasts)
		r.Note(pauseNote, end.UTC().Format(time.RFC3339Nano))
	}
	switch left := end.Sub(c.Now()); {
	case left <= 0:
		return job.Outcome{}, true
	case left <= briefWait:
		return job.Pause(left, "the end of a wait step"), false
	default:
		return job.Rest("the end of a wait step", left, c.shift(ctx, m, metal.WaitEvent)), false
	}
}

func (c stepOperations) nextHeartbeat(ctx context.Context, r *job.Run, m *managedNode) (job.Outcome, bool) {
	within := c.timeout(r.Kind)
	if _, contact, out := c.agentOf(ctx, r, m, within); !contact {
		return out, false
	}
	contact, err := c.Store.Contact(ctx, nil, m.node.ID)
	if err != nil {
		return job.From(err), false
	}
	last := contact.HeartbeatAt.UTC().Format(time.RFC3339Nano)
	if before := r.Memo[pauseNote]; before != "" && before != last {
		return job.Outcome{}, true
	}
	r.Note(pauseNote, last)
	return c.park(ctx, m, "the next heartbeat of the ramdisk", within), false
}
