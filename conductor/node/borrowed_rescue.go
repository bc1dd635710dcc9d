package node

import (
	"cmp"
	"context"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// borrowedRescue is the rescue that a diagnosis or a repair asks for, uses and ends. The rescue and the unrescue are operations like any other, so
// whoever looks sees their states. The job that asks for them locks nothing.
type borrowedRescue struct{ *Conductor }

const (
	// borrowedLasts bounds a borrowed rescue: should its unrescue fail, the machine is put back by the end of the session.
	borrowedLasts = 2 * time.Hour
	// requestDeadline is how long a job tries to begin an operation on a machine that another operation locks.
	requestDeadline = 2 * time.Minute
	// failureNote says why a borrowed rescue, or what was done in it, came to nothing, while the machine is put back.
	failureNote = "failed"
)

// isOwnRescue tells whether the node's rescue is the one that the job, a diagnosis or a repair, asked for.
func isOwnRescue(r *job.Run, m *managedNode) bool {
	return m.node.Rescue != nil && (m.node.Rescue.Diagnosis == r.ID || m.node.Rescue.Repair == r.ID)
}

// hindrance says why the machine is not booted into a borrowed rescue; empty: it may be. The unrescue that follows ends in active and switches
// the machine off, so only a machine that is active and may be switched off is booted.
func (c borrowedRescue) hindrance(m *managedNode) string {
	switch {
	case m.power == nil || m.rescue == nil || !m.rescue.NeedsRamdisk():
		return "the node's interfaces do not boot a rescue ramdisk"
	case c.PasswordInLookup:
		return "with [agent]rescue_password_in_lookup the agent of a rescue takes no command"
	case m.node.ProvisionState == metal.Rescue:
		return "the machine has just come into rescue; diagnose it again"
	case m.node.ProvisionState != metal.Active:
		return "the node is in state " + string(m.node.ProvisionState) + "; only a node that is active is booted into a rescue system"
	case m.node.Maintenance:
		return "the node is in maintenance"
	case m.node.DisablePowerOff:
		return "the node has disable_power_off"
	}
	return ""
}

// request asks for the rescue. args says for whom. A machine that is on is restarted only if reboot is set, and keep leaves it in rescue.
func (c borrowedRescue) request(ctx context.Context, r *job.Run, m *managedNode, args metal.ProvisionArgs, reboot, keep bool) error {
	// Nobody knows this password. Who wants to log in asks for a rescue with a password of their own.
	args.RescuePassword, args.OnlyIfOff = secret.NewToken(""), !reboot
	if !keep {
		args.RescueLasts = borrowedLasts
	}
	return c.Nodes.Provision(ctx, m.node.ID, metal.ToRescue, "rescue", args, askerOf(r))
}

// askerOf is who asked for the job.
func askerOf(r *job.Run) record.Asker { return record.Asker{RequestID: r.RequestID, User: r.User} }

// fromRequest is the outcome of a request for another operation. The job makes the request again while an operation locks the node.
func fromRequest(err error, commits ...func(job.Tx) error) job.Outcome {
	if problem.Is(err, problem.Conflict) {
		return job.Retry(0, err)
	}
	return job.From(err, commits...)
}

// await tells whether the rescue is still under way. The error says why it does not come. A rescue of somebody else counts if others is set.
func (c borrowedRescue) await(r *job.Run, m *managedNode, others bool) (wait bool, err error) {
	switch {
	case !others && !isOwnRescue(r, m):
		return false, problem.Conflictf("it was given up, and the node is in state %s", m.node.ProvisionState)
	case m.node.ProvisionState == metal.Rescue:
		return m.node.Reservation != "", nil
	case m.node.ProvisionState == metal.Rescuing, m.node.ProvisionState == metal.RescueWait:
		return true, nil
	}
	return false, problem.Conflictf("%s", cmp.Or(m.node.LastError, "the node is in state "+string(m.node.ProvisionState)))
}

// mustEnd tells whether the job has to ask for the unrescue of its own rescue.
func (c borrowedRescue) mustEnd(r *job.Run, m *managedNode, keep bool) bool {
	return !keep && isOwnRescue(r, m) && (m.node.ProvisionState == metal.Rescue || m.node.ProvisionState == metal.RescueFailed)
}

// end asks for the unrescue. It asks again while an operator keeps the node in maintenance.
func (c borrowedRescue) end(ctx context.Context, r *job.Run, m *managedNode, commits ...func(job.Tx) error) job.Outcome {
	err := c.Nodes.Provision(ctx, m.node.ID, metal.Unrescue, "unrescue", metal.ProvisionArgs{}, askerOf(r))
	if err != nil && m.node.Maintenance {
		return job.Retry(0, err)
	}
	return fromRequest(err, commits...)
}

// isEnding tells whether the unrescue of the job's own rescue is under way. The error says why it failed.
func (c borrowedRescue) isEnding(r *job.Run, m *managedNode) (bool, error) {
	if isOwnRescue(r, m) && m.node.ProvisionState == metal.UnrescueFailed {
		return false, problem.Conflictf("the machine could not be put back: %s", m.node.LastError)
	}
	return isOwnRescue(r, m) && m.node.ProvisionState == metal.Unrescuing, nil
}

// pollAgain has the job look at the node again in a moment. what names what the job waits for.
func (c borrowedRescue) pollAgain(what string) job.Outcome { return job.Pause(c.StepPoll/5, what) }
