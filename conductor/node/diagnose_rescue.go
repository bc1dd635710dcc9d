package node

import (
	"context"
	"errors"
	"strings"
	"time"

	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/wire/agent"
	"salvor/wire/answer"
)

const (
	// reachTime is how long a diagnosis tries to reach the agent of a rescue that is under way. One that has just been handed over is away for some
	// seconds.
	reachTime = 20 * time.Second
	// silenceTime is how long an agent that examines the disks may be silent: disks that fail, and a lack of memory, hold a whole system up.
	silenceTime = time.Minute
)

// examineInRescue has the agent of a rescue that is under way look at the disks. The node stays in rescue, and nothing is booted.
func (c diagnosisOperations) examineInRescue(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	begun := r.Memo[orderNote] != ""
	if m.node.ProvisionState != metal.Rescue && !begun || isOwnRescue(r, m) {
		return job.Done()
	}
	found, wait, err := c.examinedInRescue(ctx, r, m)
	if wait || !problem.Is(err, problem.Unavailable) {
		r.Secret = noSecret // the agent has the keys, or is never to get them
	}
	away := problem.Is(err, problem.Unavailable)
	silence := rescueAgents(c).silence(r, away)
	switch inTime := c.Now().Sub(r.ActionStartedAt) < examineTime; {
	case wait && inTime:
		return c.borrowed().pollAgain("the examination of the disks")
	case wait:
		err = problem.Unavailablef("the agent has not examined the disks within %s", examineTime)
	case away && inTime && (silence < reachTime || silence < silenceTime && strings.HasPrefix(r.Memo[orderNote], orderID)):
		return job.Pause(c.StepPoll/5, "the agent in the rescue system, which does not answer")
	}
	r.Secret = noSecret
	r.Note(noBootNote, "yes") // whatever came of it, the rescue is the user's
	return job.Done(c.note(ctx, r, func(d *metal.Diagnosis) { takeExamination(d, found, err) }))
}

// examinedInRescue is what the agent found, or whether it is still at it. Earlier diagnoses are in the agent's list too, so the job notes which
// command came before its own.
func (c diagnosisOperations) examinedInRescue(ctx context.Context, r *job.Run, m *managedNode) (found *diagnose.Examination, wait bool, err error) {
	ctx, end := answer.Begin(ctx)
	defer end()
	a, err := rescueAgents(c).rescueAgent(ctx, m)
	if err != nil {
		return nil, false, err
	}
	last, taken, err := rescueAgents(c).givenCommand(ctx, r, m.node, a, agent.Examine)
	if errors.Is(err, errRamdiskRestarted) {
		err = problem.Conflictf("the agent in the rescue system was restarted while it examined the disks, perhaps for lack of memory; diagnose the node again")
	}
	if err != nil {
		return nil, false, err
	}
	if !taken {
		if last, err = c.giveExamination(ctx, m, a, r.ID, r.Secret); err != nil {
			return nil, false, err
		}
	}
	r.Note(orderNote, orderID+last.ID)
	return examinationOf(last)
}
