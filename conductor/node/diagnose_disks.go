package node

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"salvor/diagnose"
	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
	"salvor/wire/agent"
	"salvor/wire/answer"
)

// examineDisks has the agent of a rescue look at the disks, if the rescue was made for a diagnosis. Whatever comes of it, the rescue goes on.
func (c diagnosisOperations) examineDisks(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	if m.node.Rescue == nil || m.node.Rescue.Diagnosis == "" {
		return job.Done()
	}
	id := m.node.Rescue.Diagnosis
	credential, err := rescue.UnpackCredential(r.Secret)
	if err != nil {
		return job.Fail(err)
	}
	found, wait, err := c.examination(ctx, m, id, credential.LUKSKeys)
	inTime := c.Now().Sub(r.ActionStartedAt) < examineTime
	if inTime && !wait && problem.Is(err, problem.Unavailable) {
		return job.Pause(c.StepPoll, "the agent, which does not answer")
	}
	if !credential.LUKSKeys.Empty() { // the agent has them, or is never to get them
		credential.LUKSKeys = noSecret
		packed, err := credential.Pack()
		if err != nil {
			return job.Fail(err)
		}
		r.Secret = packed
	}
	switch {
	case wait && inTime:
		return c.borrowed().pollAgain("the examination of the disks")
	case wait:
		err = problem.Unavailablef("the agent has not examined the disks within %s", examineTime)
	}
	return job.Done(func(tx job.Tx) error {
		return c.Nodes.EditDiagnosis(ctx, tx, m.node.ID, id, func(d *metal.Diagnosis) { takeExamination(d, found, err) })
	})
}

// takeExamination adds what an agent found on the disks, or why it found nothing.
func takeExamination(d *metal.Diagnosis, found *diagnose.Examination, err error) {
	if err != nil {
		d.AddDiskGap(problem.Public(err))
		return
	}
	d.Step = "the disks have been examined"
	d.AddExamination(found, d.Args.OnlyRead)
}

// examineTime bounds the examination. It is a bound of the action's own, since a pause has no deadline; the deadline is for an agent that
// takes connections and answers nothing.
const (
	examineTime     = 15 * time.Minute
	examineDeadline = 20 * time.Minute
)

// examination is what the agent found, or whether it is still at it. An examination only looks, so the same examination may be asked for twice.
func (c diagnosisOperations) examination(ctx context.Context, m *managedNode, id string, keys secret.Value) (found *diagnose.Examination, wait bool, err error) {
	ctx, end := answer.Begin(ctx)
	defer end()
	contact, err := c.Store.Contact(ctx, nil, m.node.ID)
	if err != nil {
		return nil, false, err
	}
	if contact.AgentURL == "" {
		return nil, false, problem.Unsupportedf("the ramdisk's agent names no address at which it takes commands")
	}
	a := driver.Agent{URL: contact.AgentURL, Version: contact.AgentVersion, CA: contact.AgentCA, Token: m.node.AgentToken(c.Key)}
	list, err := c.Agents.List(ctx, m.node, a)
	if err != nil {
		return nil, false, err
	}
	last, taken, err := findAgentCommand(list, orderAfter, agent.Examine)
	if err != nil {
		return nil, false, err
	}
	if taken {
		last, err = rescueAgents(c).withOutcome(ctx, m.node, a, last)
	}
	if !taken || errors.Is(err, errRamdiskRestarted) {
		last, err = c.giveExamination(ctx, m, a, id, keys)
	}
	if err != nil {
		return nil, false, err
	}
	return examinationOf(last)
}

// giveExamination has an agent begin to examine the disks for a diagnosis, with the packed LUKS keys.
func (c diagnosisOperations) giveExamination(ctx context.Context, m *managedNode, a driver.Agent, id string, packed secret.Value) (agent.Result, error) {
	params, err := examineParams(m.node, c.Now(), packed)
	if err != nil {
		return agent.Result{}, err
	}
	kept, err := c.Nodes.Diagnoses(ctx, nil, m.node.ID)
	if err != nil {
		return agent.Result{}, err
	}
	params.OnlyRead = slices.ContainsFunc(kept, func(d metal.Diagnosis) bool { return d.ID == id && d.Args.OnlyRead })
	return c.Agents.Give(ctx, m.node, a, agent.Examine, params)
}

// examineParams are what an agent needs to know before it reads the disks of a node. They hold the packed LUKS keys in the open, so they are
// made last.
func examineParams(n *metal.Node, now time.Time, packed secret.Value) (params agent.ExamineParams, err error) {
	params.Now = now
	if params.NetworkData, err = networkData(n); err != nil {
		return params, err
	}
	params.LUKSKeys, params.LUKSKeysByUUID, err = diagnose.UnpackLUKSKeys(packed)
	return params, err
}

// examinationOf is what an examination found, or whether it goes on.
func examinationOf(last agent.Result) (found *diagnose.Examination, wait bool, err error) {
	switch last.Status {
	case agent.Running:
		return nil, true, nil
	case agent.Succeeded:
		// In a rescue the user of the machine can answer in place of the agent.
		if len(last.Outcome) > agent.MaxExamination {
			return nil, false, problem.Invalidf("the agent's examination has %d bytes; at most %d are taken", len(last.Outcome), agent.MaxExamination)
		}
		found = &diagnose.Examination{}
		if err := json.Unmarshal(last.Outcome, found); err != nil {
			return nil, false, problem.Invalidf("the agent's examination is no JSON of the expected form: %w", err)
		}
		return found, false, nil
	}
	why := "it gives no reason"
	if last.Error != nil {
		why = last.Error.Details
		if why == "" {
			why = last.Error.Message
		}
	}
	return nil, false, problem.Conflictf("the agent could not examine the disks: %s", driver.Sanitize(why))
}
