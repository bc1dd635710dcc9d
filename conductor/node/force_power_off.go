package node

import (
	"context"
	"encoding/json"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

const (
	// cutDeadline bounds all tries to reach a BMC that is to switch a dead host off: no answer is no evidence, and something else may be.
	cutDeadline = 20 * time.Second
	// cutCall bounds one of them, and proveCall one reading.
	cutCall, proveCall = 12 * time.Second, 5 * time.Second
	// cutGap is the time between the two readings.
	cutGap = 300 * time.Millisecond
	// cutAgain is how soon a BMC that did not answer is asked again.
	cutAgain = time.Second
)

// forcePowerOff switches a node off by force and reads back twice that it is.
func (c powerOperations) forcePowerOff() job.Definition {
	const off = "what is held off stays off"
	return job.Definition{
		Kind: metal.JobForcePowerOff, Version: 1, Class: job.Command, Failed: c.cutFailed,
		Actions: []job.Action{
			{Name: "switch off", Do: c.withNode(requirePower(c.cutOff)), NoUndo: off, Deadline: cutDeadline},
			{Name: "read back", Do: c.withNode(requirePower(c.readBackOff)), NoUndo: off, Deadline: cutDeadline / 2},
		},
	}
}

const cutWas = "was" // how the power was before

func (c powerOperations) cutOff(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	ctx, cancel := context.WithTimeout(ctx, cutCall)
	defer cancel()
	if was, err := m.power.PowerState(ctx, m.node); err == nil && r.Memo[cutWas] == "" {
		r.Note(cutWas, string(was))
	}
	return cutOutcome(m.power.SetPower(ctx, m.node, metal.PowerOff), c.keepPower(ctx, m, metal.PowerOff))
}

// cutOutcome tries again soon where the BMC did not answer.
func cutOutcome(err error, commits ...func(job.Tx) error) job.Outcome {
	switch {
	case err == nil:
		return job.Done(commits...)
	case problem.Is(err, problem.Unavailable):
		return job.Retry(cutAgain, err)
	}
	return job.Fail(err)
}

// readBackOff asks the BMC two times, and anew each time.
func (c powerOperations) readBackOff(ctx context.Context, r *job.Run, m *managedNode) job.Outcome {
	cut := metal.PowerOffProof{Was: metal.Power(r.Memo[cutWas])}
	for range 2 {
		if len(cut.Reads) > 0 {
			select {
			case <-ctx.Done():
				return job.Retry(0, driver.Trouble(ctx.Err()))
			case <-time.After(cutGap):
			}
		}
		bounded, cancel := context.WithTimeout(ctx, proveCall)
		state, err := m.power.PowerState(bounded, m.node)
		cancel()
		if err != nil {
			return cutOutcome(err)
		}
		if cut.Reads = append(cut.Reads, state); state != metal.PowerOff {
			return job.Fail(problem.Conflictf("node %s: the BMC took the order to switch off, and says %q", m.node.ID, orUnknown(string(state))))
		}
	}
	return job.Answer(cut, c.tellCut(&r.Job))
}

// tellCut wakes who waits for the cut.
func (c powerOperations) tellCut(j *job.Job) func(job.Tx) error {
	var a metal.ForcePowerOffArgs
	if err := json.Unmarshal(j.Args, &a); err != nil || a.NotifySubject.ID == "" {
		return nil
	}
	return func(tx job.Tx) error { return c.Store.Signal(tx, a.NotifySubject) }
}

// cutFailed tells it on the node, whose power is what was read last.
func (c powerOperations) cutFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	err := c.Nodes.Edit(ctx, tx, j.Subject.ID, func(n *metal.Node) { n.LastError = "Failed to switch the power off: " + j.Problem })
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	if tell := c.tellCut(j); tell != nil && j.State == job.Ended {
		return tell(tx)
	}
	return nil
}

// heldPower is the power of a node that must stay off.
type heldPower struct {
	driver.Power
	reason string
}

func (h heldPower) SetPower(ctx context.Context, n *metal.Node, want metal.Power) error {
	if want != metal.PowerOff {
		return problem.Conflictf("node %s is held off: %s", n.ID, h.reason)
	}
	return h.Power.SetPower(ctx, n, want)
}
