package node

import (
	"context"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// powerEventDeadline bounds all tries to send one event: by then Nova has read the power itself, as its sync_power_state_interval
// (600 s by default) says.
const powerEventDeadline = 10 * time.Minute

// powerEvent sends Nova the power of the machine of one of its servers. The transaction that changes the power inserts the job, so
// one conductor sends each change, and a conductor that ends meanwhile loses none. As it locks nothing, no operation waits for Nova.
func (c powerOperations) powerEvent() job.Definition {
	return job.Definition{
		Kind: metal.JobPowerEvent, Version: 1, Class: job.Background, Failed: c.powerEventFailed, NoDeadline: "it waits for the release of a restored database and for the end of the operation on the node",
		Actions: []job.Action{{Name: "send", Do: c.sendPower, NoUndo: "what was sent stays sent", Deadline: powerEventDeadline, Elsewhere: true}},
	}
}

// sendPower sends the power as it is now: the newest of two changes may be sent first, and the older one must not undo it.
func (c powerOperations) sendPower(ctx context.Context, r *job.Run) job.Outcome {
	// A restored database may hold a power of long ago, and jobs that lock nothing run while it is held. The time of the hold is not Nova's.
	if c.Permission.HeldReason() != nil {
		return job.Pause(c.StepPoll, "the release of the restored database")
	}
	if err := c.Permission.Lost(); err != nil {
		return job.Retry(0, err)
	}
	n, err := c.Store.Node(ctx, nil, r.Subject.ID)
	if problem.Is(err, problem.NotFound) {
		return job.Done()
	}
	if err != nil {
		return job.From(err)
	}
	if c.PowerEvents == nil || n.InstanceUUID == "" || n.PowerState == "" {
		return job.Done()
	}
	// Nova takes events one after the other behind its own operation. A power off of a deployment would reach it when its server is active, and
	// it would then stop the machine.
	if phase := n.ProvisionState.Info().Phase; phase == metal.Working || phase == metal.WaitsForRamdisk || phase == metal.HeldByStep {
		return job.Pause(c.StepPoll, "the operation on the node to end")
	}
	err = c.PowerEvents.SendPower(ctx, n.InstanceUUID, n.PowerState == metal.PowerOn)
	if problem.Is(err, problem.NotFound) {
		r.Log.Debug("nova does not have the server of a node", "node", n.ID, "server", n.InstanceUUID, "error", err)
		return job.Done()
	}
	return job.From(err)
}

func (c powerOperations) powerEventFailed(_ context.Context, tx job.Tx, j *job.Job) error {
	return c.Store.Append(tx, job.Event{
		Subject: j.Subject, At: c.Now(), Type: "contact", Severity: "warning", JobID: j.ID,
		Text: "Nova does not know of a change of the node's power: " + j.Problem +
			". Nova finds out by itself within its sync_power_state_interval, and may then set the power as it was. Where Nova refuses or is away, mend the section [nova], or set [nova]send_power_notifications to false.",
	})
}
