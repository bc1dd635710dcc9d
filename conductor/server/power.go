package server

import (
	"context"
	"encoding/json"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/rescue"
)

// serverPower starts, stops, reboots, pauses, suspends and takes these back. A reboot is off, then on: nothing relative that a
// repetition would spoil. What starts, or is mended, is
// defined anew first, its rescue system included.
func (c *Conductor) serverPower() job.Definition { return c.switches(compute.JobPower) }

// serverReconcile mends the power of a server that was found otherwise than it should be.
func (c *Conductor) serverReconcile() job.Definition { return c.switches(compute.JobReconcile) }

func (c *Conductor) switches(kind job.Kind) job.Definition {
	const command = "a user's command is not taken back"
	return job.Definition{
		Kind: kind, Version: 1, Class: job.Operation, Failed: c.guestPowerFailed, WaitsOn: c.waitForSilentHost, NoDeadline: waitsWithoutEnd,
		Actions: []job.Action{
			{Name: "define the server", Do: c.withGuest(c.defineToStart), NoUndo: command, Deadline: guestDeadline(diskErrand)},
			{Name: "power off", Do: c.withGuest(c.turnGuestOff), NoUndo: command, Deadline: guestDeadline(c.softErrand())},
			{Name: "switch", Do: c.withGuest(c.switchGuest), NoUndo: command, Deadline: guestDeadline(quickErrand)},
			{Name: "unlock", Do: c.withGuest(c.unlockAgain), NoUndo: command, Deadline: guestDeadline(unlockErrand)},
			{Name: "settle", Do: c.withGuest(c.settlePower), NoUndo: "there is nothing left to fail"},
		},
	}
}

// isFreshStart tells whether the guest begins to run anew, not only to go on.
func isFreshStart(a compute.PowerArgs, s *compute.Server) bool {
	return a.Power == compute.PowerOn && (a.Restart || s.Power != compute.PowerPaused && s.Power != compute.PowerSaved)
}

func (c *Conductor) defineToStart(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.PowerArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	begins := isFreshStart(a, g.server)
	if !begins && (r.Kind != compute.JobReconcile || a.Power == compute.PowerOn) {
		return job.Done() // a guest that goes on keeps the definition that it began with
	}
	if begins {
		r.Note("starts", "yes")
	}
	return c.defineGuest(ctx, r, g, g.inRescue(), func() job.Outcome { return job.Done() })
}

func (c *Conductor) turnGuestOff(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.PowerArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if !a.Restart && a.Power != compute.PowerOff {
		return job.Done()
	}
	off := c.offOrder(a.Soft, a.Within)
	off.args.KeepSaved = !a.Restart || a.Soft // a hard reboot gives the memory up, as a cut of the power does
	return c.shutGuest(ctx, r, g, off)
}

// shutGuest turns a guest off, and tells on the server's timeline if that gave its saved memory up.
func (c *Conductor) shutGuest(ctx context.Context, r *job.Run, g *managedServer, off hostOrder) job.Outcome {
	return c.keepMemory(ctx, r, g, off, func(off hostOrder) job.Outcome {
		return c.dispatch(ctx, r, g, off, func(result compute.Result) job.Outcome {
			return job.Done(c.noteOff(ctx, g), c.noteMemoryLost(r, result))
		})
	})
}

// keepMemory looks at a guest before it is switched off by an agent of a former release, which does not obey KeepSaved, and refuses to give saved memory up.
// Memory that somebody saves between this look and the order is lost.
func (c *Conductor) keepMemory(ctx context.Context, r *job.Run, g *managedServer, off hostOrder, then func(hostOrder) job.Outcome) job.Outcome {
	if !off.args.KeepSaved || g.host == nil || g.host.Kind != compute.AgentHost || g.host.Inventory.KeepsSaved {
		return then(off)
	}
	return c.dispatch(ctx, r, g, hostOrder{verb: compute.Look, ignoreNotFound: true}, func(result compute.Result) job.Outcome {
		if result.Guest != nil && result.Guest.Power == compute.PowerSaved {
			return job.Fail(hypervisor.RefusalOfSaved(result.Guest.Name))
		}
		return then(off)
	})
}

// noteMemoryLost tells on the server's timeline if the order that switched the guest off gave its saved memory up.
func (c *Conductor) noteMemoryLost(r *job.Run, result compute.Result) func(job.Tx) error {
	return func(tx job.Tx) error {
		if !result.MemoryLost {
			return nil
		}
		return c.warn(tx, r, "the memory of the guest was saved on its host, and was given up when the guest was switched off")
	}
}

// warn adds a warning of the job to the timeline of the job's subject.
func (c *Conductor) warn(tx job.Tx, r *job.Run, text string) error {
	return c.Store.Append(tx, job.Event{Subject: r.Subject, Type: "contact", Severity: "warning", JobID: r.ID, RequestID: r.RequestID, User: r.User, Text: text})
}

// offOrder switches a guest off; soft: its system is asked first, for at most within seconds. A guest whose memory is saved is not switched off.
func (c *Conductor) offOrder(soft bool, within int) hostOrder {
	off := hostOrder{verb: compute.SetPower, args: compute.Args{Power: compute.PowerOff, KeepSaved: true}, ignoreNotFound: true}
	if soft {
		off.args.Soft, off.args.Within, off.within = true, within, c.softWithin(within)
	}
	return off
}

// noteOff writes that the server is off, in the transaction that ends the action.
func (c *Conductor) noteOff(ctx context.Context, g *managedServer) func(job.Tx) error {
	return c.editServer(ctx, g.server.ID, func(s *compute.Server) { s.Power = compute.PowerOff })
}

func (c *Conductor) switchGuest(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.PowerArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if a.Power == compute.PowerOff {
		return job.Done()
	}
	return c.dispatch(ctx, r, g, hostOrder{verb: compute.SetPower, args: compute.Args{Power: a.Power}}, func(result compute.Result) job.Outcome {
		return job.Done(c.editServer(ctx, g.server.ID, func(s *compute.Server) { s.Power = powerOf(result, a.Power) }))
	})
}

func (c *Conductor) unlockAgain(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	if r.Memo["starts"] == "" || !g.inRescue() {
		return job.Done()
	}
	return c.unlock(ctx, r, g)
}

// settlePower shows the power as it is now. A server in a session stays in it: what runs, or is going to, is the rescue system.
func (c *Conductor) settlePower(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.PowerArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	in := g.inRescue()
	return job.Done(c.finishServer(ctx, g.server.ID, onAny(func(s *compute.Server, session *rescue.Session) {
		s.Pause = compute.GuestPause{} // what it stood still for is over
		if s.Wanted, s.Fault = s.Power, nil; s.Power == compute.PowerCrashed && r.Memo["starts"] != "" {
			s.Wanted = compute.PowerOn // it crashed at once: the next look counts that
		}
		if a.Power == compute.PowerOn && (s.Power == compute.PowerPaused || s.Power == compute.PowerSaved) {
			s.Wanted = compute.PowerOn // it stands still again, and the next look says why
		}
		if r.Memo["starts"] != "" {
			s.LaunchedAt = c.Now().UTC()
		}
		switch {
		case !in:
			s.Settle(s.Power)
		case s.Power == compute.PowerOn:
			s.State, session.State = compute.Rescued, rescue.Ready
		case s.Power == compute.PowerOff:
			s.State, session.State, session.Fingerprint, session.HostKey = compute.Rescued, rescue.Prepared, "", ""
		}
	})))
}

// onAny is onSession for servers without a session too, whose session is then nil.
func onAny(change func(*compute.Server, *rescue.Session)) func(*compute.Server) {
	return func(s *compute.Server) {
		if s.Rescue == nil {
			change(s, nil)
			return
		}
		onSession(change)(s)
	}
}

// guestPowerFailed shows the failure. A server that should run by now, and does not, is in error; any other is what its power makes it.
func (c *Conductor) guestPowerFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.State != job.Ended {
		return nil // its end calls again
	}
	var a compute.PowerArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return err
	}
	again := false
	err := c.serverFailed("switched "+string(a.Power), func(s *compute.Server, _ bool) {
		switch {
		case a.Crashed && s.Power != compute.PowerOn && s.MayRestart(c.Now()) && !j.EndsWithoutUndo():
			again, s.Wanted = true, compute.PowerOn
		case a.Crashed && s.Power != compute.PowerOn:
			s.EndRestarts(c.Now(), j.Problem)
		case a.Power == compute.PowerOn && !a.Restart && (s.Power == compute.PowerPaused || s.Power == compute.PowerSaved):
			s.Wanted = compute.PowerOn // it stands still as before, and the next look says why
			s.Settle(s.Power)
		case a.Power == compute.PowerOn && s.Power != compute.PowerOn && s.State != compute.Rescued:
			s.State = compute.Errored
		case s.State != compute.Errored:
			s.Settle(s.Power) // as far as it came
		}
	})(ctx, tx, j)
	if err != nil || !again {
		return err
	}
	return c.Compute.Observer.RestartLater(ctx, tx, j.Subject.ID, j.Problem)
}
