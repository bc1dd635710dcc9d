package server

import (
	"context"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/rescue"
)

// serverUnrescue takes the rescue image away and puts the server's own boot back. It trusts no undo: it starts from any half-done place.
func (c *Conductor) serverUnrescue() job.Definition {
	const again = "unrescue may be asked again from a failed session"
	return job.Definition{
		Kind: compute.JobUnrescue, Version: 1, Class: job.Operation, Failed: c.serverFailed("unrescued", nil), WaitsOn: c.waitForSilentHost, NoDeadline: waitsWithoutEnd,
		Actions: []job.Action{
			{Name: "power off", Do: c.withGuest(c.shutRescue), NoUndo: again, Deadline: guestDeadline(c.softErrand())},
			{Name: "define the server", Do: c.withGuest(c.defineOriginal), NoUndo: again, Deadline: guestDeadline(quickErrand)},
			{Name: "remove what the rescue left", Do: c.withGuest(c.releaseRescue), NoUndo: again, Deadline: guestDeadline(quickErrand)},
			{Name: "power on", Do: c.withGuest(c.powerAfterRescue), NoUndo: again, Deadline: guestDeadline(quickErrand)},
			{Name: "close the session", Do: c.withGuest(c.closeSession), NoUndo: "there is nothing left to fail"},
		},
	}
}

// shutRescue turns the rescue system off. Ours keeps nothing worth a shutdown; others are asked first.
func (c *Conductor) shutRescue(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.UnrescueArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	session := g.session()
	soft := session != nil && session.Source != nil && session.Source.Access != rescue.ByChannel
	off := hostOrder{verb: compute.SetPower, args: compute.Args{Power: compute.PowerOff}, ignoreNotFound: true}
	if soft {
		off.args.Soft, off.args.Within, off.within = true, a.Within, c.softWithin(a.Within)
	}
	shut := func() job.Outcome {
		return c.dispatch(ctx, r, g, off, func(result compute.Result) job.Outcome {
			return job.Done(c.editServer(ctx, g.server.ID, onSession(func(s *compute.Server, session *rescue.Session) {
				s.Power, session.State = compute.PowerOff, rescue.Leaving
			})), c.noteMemoryLost(r, result))
		})
	}
	if session != nil && session.State == rescue.Ready {
		return shut() // what runs is the rescue system
	}
	// After a rescue that failed, what runs or is saved may be the server's own system.
	return c.dispatch(ctx, r, g, hostOrder{verb: compute.Look, ignoreNotFound: true}, func(result compute.Result) job.Outcome {
		off.args.KeepSaved = result.Guest != nil && result.Guest.Rescue == ""
		if off.args.KeepSaved && result.Guest.Power == compute.PowerSaved {
			return job.Fail(hypervisor.RefusalOfSaved(result.Guest.Name))
		}
		return shut()
	})
}

func (c *Conductor) defineOriginal(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	return c.defineGuest(ctx, r, g, false, func() job.Outcome { return job.Done() })
}

func (c *Conductor) releaseRescue(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	return c.dispatch(ctx, r, g, hostOrder{verb: compute.Release}, func(compute.Result) job.Outcome { return job.Done() })
}

func (c *Conductor) powerAfterRescue(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.UnrescueArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if a.Power != compute.PowerOn {
		return job.Done()
	}
	return c.switchOn(ctx, r, g, func() job.Outcome {
		return job.Done(c.editServer(ctx, g.server.ID, func(s *compute.Server) { s.Power = compute.PowerOn }))
	})
}

// closeSession lets go of image and credential.
func (c *Conductor) closeSession(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	return job.Done(c.finishServer(ctx, g.server.ID, func(s *compute.Server) {
		s.Rescue, s.Fault, s.Wanted, s.State = nil, nil, s.Power, compute.Stopped
		s.Settle(s.Power)
		if s.Power == compute.PowerOn {
			s.LaunchedAt = c.Now().UTC()
		}
	}))
}
