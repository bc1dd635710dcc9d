package server

import (
	"context"
	"encoding/json"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
)

// rescueBareMetal has the endpoint boot a machine's rescue ramdisk. A failure is the server's error, in the node's words; the session
// stays Failed, for an unrescue or another rescue.
func (c bareMetalOperations) rescueBareMetal() job.Definition {
	const again = "unrescue may be asked from a failed session"
	return job.Definition{
		Kind: compute.JobMetalRescue, Version: 1, Class: job.Operation, Failed: c.serverFailed("rescued", nil),
		Actions: []job.Action{
			{Name: "power off", Do: c.withBareMetal(c.shutBeforeRescue), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "rescue", Do: c.withBareMetal(c.askRescue), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "wait for the rescue", Do: c.withBareMetal(c.awaitMetalRescue), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "open the session", Do: c.withGuest(c.openSession), NoUndo: "there is nothing left to fail"},
		},
	}
}

// unrescueBareMetal has the endpoint boot a machine's own system again. It starts from any half-done place.
func (c bareMetalOperations) unrescueBareMetal() job.Definition {
	const again = "unrescue may be asked again from a failed session"
	return job.Definition{
		Kind: compute.JobMetalUnrescue, Version: 1, Class: job.Operation, Failed: c.serverFailed("unrescued", nil),
		Actions: []job.Action{
			{Name: "unrescue", Do: c.withBareMetal(c.askUnrescue), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "wait for the unrescue", Do: c.withBareMetal(c.awaitMetalUnrescue), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "power", Do: c.withBareMetal(c.powerAfterUnrescue), NoUndo: again, Deadline: bareMetalRetryTime},
			{Name: "close the session", Do: c.withGuest(c.closeSession), NoUndo: "there is nothing left to fail"},
		},
	}
}

// shutBeforeRescue asks the machine's system to end; who boots the ramdisk would merely cut the power.
func (c bareMetalOperations) shutBeforeRescue(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	a, err := parseJobArgs[compute.RescueArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if err := g.lost(); err != nil {
		return job.Fail(err)
	}
	if g.node.Provision != hypervisor.InUse || g.node.Power != compute.PowerOn && !g.node.Switching {
		return job.Done()
	}
	return c.switchNode(ctx, r, g, compute.PowerOff, true, min(time.Duration(a.Within)*time.Second, c.SoftOffTimeout))
}

// askRescue hands the password on; with that it is forgotten here.
func (c bareMetalOperations) askRescue(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	return c.ask(ctx, r, g, toRescue, func() (hypervisor.NodeRequest, error) {
		var s compute.JobSecret
		if r.Secret.Empty() || json.Unmarshal([]byte(r.Secret.Reveal()), &s) != nil || s.Password == "" {
			return hypervisor.NodeRequest{}, problem.Conflictf("its password is gone; ask again")
		}
		return hypervisor.NodeRequest{Password: secret.New(s.Password)}, nil
	})
}

func (c bareMetalOperations) awaitMetalRescue(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	r.Secret = secret.Value{}
	return c.arrive(r, g, toRescue, c.editSession(ctx, g.managedServer, func(s *compute.Server, session *rescue.Session) {
		s.Power, session.State, session.SavedKnown = compute.PowerOn, rescue.Booting, true
	}))
}

func (c bareMetalOperations) askUnrescue(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	return c.ask(ctx, r, g, fromRescue, func() (hypervisor.NodeRequest, error) { return hypervisor.NodeRequest{}, nil })
}

func (c bareMetalOperations) awaitMetalUnrescue(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	return c.arrive(r, g, fromRescue)
}

func (c bareMetalOperations) powerAfterUnrescue(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	a, err := parseJobArgs[compute.UnrescueArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	to := compute.PowerOn
	if a.Power == compute.PowerOff {
		to = compute.PowerOff
	}
	return c.switchNode(ctx, r, g, to, false, 0)
}
