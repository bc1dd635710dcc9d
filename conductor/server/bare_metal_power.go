package server

import (
	"context"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// switchBareMetal starts, stops and reboots a machine. A reboot is off, then on: nothing relative that a repetition would spoil.
func (c bareMetalOperations) switchBareMetal() job.Definition {
	const command = "a user's command is not taken back"
	return job.Definition{
		Kind: compute.JobMetalPower, Version: 1, Class: job.Operation, Failed: c.guestPowerFailed,
		Actions: []job.Action{
			{Name: "power off", Do: c.withBareMetal(c.bareMetalOff), NoUndo: command, Deadline: bareMetalRetryTime},
			{Name: "power on", Do: c.withBareMetal(c.bareMetalOn), NoUndo: command, Deadline: bareMetalRetryTime},
			{Name: "settle", Do: c.withGuest(c.settlePower), NoUndo: "there is nothing left to fail"},
		},
	}
}

func (c bareMetalOperations) bareMetalOff(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	a, err := parseJobArgs[compute.PowerArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if !a.Restart && a.Power != compute.PowerOff {
		return job.Done()
	}
	return c.switchNode(ctx, r, g, compute.PowerOff, a.Soft, min(time.Duration(a.Within)*time.Second, c.SoftOffTimeout))
}

func (c bareMetalOperations) bareMetalOn(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	a, err := parseJobArgs[compute.PowerArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if a.Power != compute.PowerOn {
		return job.Done()
	}
	r.Note("starts", "yes")
	return c.switchNode(ctx, r, g, compute.PowerOn, false, 0)
}

// switchPatience is how long a change of power may take beside what a soft one is given.
const switchPatience = 3 * time.Minute

// switchNode brings a machine to a power state, and looks until it shows it. Where its own system does not answer to being asked,
// within that time or at all, it is switched off.
func (c bareMetalOperations) switchNode(ctx context.Context, r *job.Run, g *bareMetalServer, to compute.Power, soft bool, within time.Duration) job.Outcome {
	if err := g.lost(); err != nil {
		return job.Fail(err)
	}
	m, asked := g.node, r.Action+" asked"
	if m.Power == to && !m.Switching {
		return job.Done(c.editServer(ctx, g.server.ID, func(s *compute.Server) { s.Power = to }))
	}
	_, so := loadWaitMemo(r, "waited")
	soft = soft && so < within
	if before := r.Memo[asked]; before == "hard" || before == "soft" && soft {
		return c.pollAgain(r, "node "+m.ID+" to be "+string(to), within+switchPatience,
			problem.Unavailablef("node %s is not %s: %s", m.ID, to, wordsOr(m.LastError, "it does not say why")))
	}
	err := g.api.Switch(ctx, m.ID, to, soft, within)
	if soft && (problem.Is(err, problem.Invalid) || problem.Is(err, problem.Unsupported)) {
		soft, err = false, g.api.Switch(ctx, m.ID, to, false, 0)
	}
	if err != nil {
		return c.fromNode(r, g, err)
	}
	r.Note(asked, map[bool]string{true: "soft", false: "hard"}[soft])
	return c.pollAgain(r, "node "+m.ID+" to be "+string(to), within+switchPatience, g.stays(m.Provision))
}
