package server

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
)

// serverRescue boots a rescue image in place of a server's own system, with all of its disks in their order. The definition comes
// before the power-off: an image that cannot be had is told while the server runs as it did.
func (c *Conductor) serverRescue() job.Definition {
	return job.Definition{
		Kind: compute.JobRescue, Version: 1, Class: job.Operation, Failed: c.rescueFailed, WaitsOn: c.waitForSilentHost, NoDeadline: waitsWithoutEnd,
		Actions: []job.Action{
			{Name: "save the boot", Do: c.withGuest(c.saveGuest), NoUndo: "what is saved stays with the session until it is closed", Deadline: guestDeadline(quickErrand)},
			{Name: "define the rescue", Do: c.withGuest(c.defineRescue), Undo: c.withGuest(c.undoRescue), Deadline: guestDeadline(diskErrand)},
			{Name: "power off", Do: c.withGuest(c.shutForRescue), NoUndo: "the power comes back with the definition", Deadline: guestDeadline(c.softErrand())},
			{Name: "power on", Do: c.withGuest(c.bootRescue), Undo: c.withGuest(c.cutPower), Deadline: guestDeadline(quickErrand)},
			{Name: "unlock", Do: c.withGuest(c.unlockRescue), NoUndo: "the credential goes with the power", Deadline: guestDeadline(unlockErrand)},
			{Name: "open the session", Do: c.withGuest(c.openSession), NoUndo: "there is nothing left to fail"},
		},
	}
}

// softErrand is how long a power-off may take that asks the guest's system first, at most.
func (c *Conductor) softErrand() time.Duration { return c.SoftOffTimeout + quickErrand }

// softWithin bounds a power-off that asks for so many seconds.
func (c *Conductor) softWithin(seconds int) time.Duration {
	return min(time.Duration(seconds)*time.Second, c.SoftOffTimeout) + quickErrand
}

// saveGuest remembers how the guest is, once a session: a second rescue would only see what the first one left.
func (c *Conductor) saveGuest(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	session := g.session()
	if session == nil || session.Source == nil {
		return job.Fail(problem.Conflictf("server %s has no rescue session", g.server.ID))
	}
	if session.SavedKnown {
		return job.Done()
	}
	return c.dispatch(ctx, r, g, hostOrder{verb: compute.Look, ignoreNotFound: true}, func(result compute.Result) job.Outcome {
		power := powerOf(result, compute.PowerOff)
		if power == compute.PowerSaved {
			return job.Fail(hypervisor.RefusalOfSaved(g.server.GuestName))
		}
		if power != compute.PowerOn {
			power = compute.PowerOff
		}
		var settings map[string]string
		if result.Guest != nil {
			settings = maps.Clone(result.Guest.Settings)
		}
		return job.Done(c.editSession(ctx, g, func(s *compute.Server, session *rescue.Session) {
			session.Saved.Power, session.SavedSettings, session.SavedKnown = string(power), settings, true
			session.Saved.Mode = string(s.Firmware)
			s.Power = power
		}))
	})
}

// editSession changes the open session in the transaction that ends the action.
func (c *Conductor) editSession(ctx context.Context, g *managedServer, change func(*compute.Server, *rescue.Session)) func(job.Tx) error {
	return c.editServer(ctx, g.server.ID, onSession(change))
}

// onSession changes a copy of the session: what was read is not written to.
func onSession(change func(*compute.Server, *rescue.Session)) func(*compute.Server) {
	return func(s *compute.Server) {
		if s.Rescue == nil {
			return
		}
		session := *s.Rescue
		s.Rescue = &session
		change(s, &session)
	}
}

func toSession(state rescue.State) func(*compute.Server, *rescue.Session) {
	return func(_ *compute.Server, session *rescue.Session) { session.State = state }
}

// definedNote says that the rescue was defined: from then on the guest's power may have been touched.
const definedNote = "defined"

func (c *Conductor) defineRescue(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	return c.defineGuest(ctx, r, g, true, func() job.Outcome {
		r.Note(definedNote, "yes")
		return job.Done(c.editSession(ctx, g, toSession(rescue.Prepared)))
	})
}

func (c *Conductor) shutForRescue(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.RescueArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if !a.Boot {
		return c.mustBeOff(ctx, r, g)
	}
	return c.shutGuest(ctx, r, g, c.offOrder(true, a.Within))
}

// mustBeOff refuses what only a server that is off may be given: it may have been started beside us.
func (c *Conductor) mustBeOff(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	return c.dispatch(ctx, r, g, hostOrder{verb: compute.Look, ignoreNotFound: true}, func(result compute.Result) job.Outcome {
		if power := powerOf(result, compute.PowerOff); power != compute.PowerOff && power != compute.PowerCrashed {
			return job.Fail(problem.Conflictf("server %s is %s: stop it first", g.server.ID, power))
		}
		return job.Done()
	})
}

func (c *Conductor) bootRescue(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.RescueArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if !a.Boot {
		return job.Done()
	}
	return c.switchOn(ctx, r, g, func() job.Outcome {
		return job.Done(c.editSession(ctx, g, func(s *compute.Server, session *rescue.Session) {
			s.Power, session.State = compute.PowerOn, rescue.Booting
		}))
	})
}

func (c *Conductor) unlockRescue(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	session := g.session()
	if session == nil || session.State != rescue.Booting {
		return job.Done()
	}
	return c.unlock(ctx, r, g)
}

// networkData is the file of a config drive that tells a system its addresses.
const networkData = "openstack/latest/network_data.json"

// unlock gives the rescue system that boots its credential and its addresses, where our agent in it waits for them.
func (c *Conductor) unlock(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	session := g.session()
	if session == nil || session.Source == nil || session.Source.Access != rescue.ByChannel {
		return job.Done()
	}
	hidden := compute.OrderSecret{Hash: session.Credential.Hash.Reveal(), Keys: session.Credential.Keys}
	if hidden.Hash == "" && len(hidden.Keys) == 0 {
		return job.Done() // nobody asked for any: its console is all that there is
	}
	b, err := c.blueprint(ctx, g, false, "")
	if err != nil {
		return job.From(err)
	}
	if addresses, there := b.Secret.Drive[networkData]; there {
		hidden.Drive = map[string][]byte{networkData: addresses}
	}
	return c.dispatch(ctx, r, g, hostOrder{verb: compute.Unlock, secret: hidden, within: unlockErrand}, func(result compute.Result) job.Outcome {
		return job.Done(c.editSession(ctx, g, func(_ *compute.Server, session *rescue.Session) {
			session.Fingerprint, session.HostKey = result.Fingerprint, ""
			// A guest may say anything: only a key of this fingerprint is one to pin.
			if key, err := rescue.ParseHostKey(result.HostKey); err == nil && key.Fingerprint == result.Fingerprint {
				session.HostKey = key.Key
			}
		}))
	})
}

func (c *Conductor) openSession(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	return job.Done(c.finishServer(ctx, g.server.ID, onSession(func(s *compute.Server, session *rescue.Session) {
		now := c.Now().UTC()
		s.State, s.Fault, s.LaunchedAt, s.Wanted = compute.Rescued, nil, now, s.Power
		if session.State == rescue.Booting {
			session.State = rescue.Ready
		}
	})))
}

// undoRescue takes a rescue back: the original definition, nothing left on the host, and the power as it was.
func (c *Conductor) undoRescue(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	session := g.session()
	if session == nil {
		return job.Done()
	}
	return c.defineGuest(ctx, r, g, false, func() job.Outcome {
		return c.dispatch(ctx, r, g, hostOrder{verb: compute.Release}, func(compute.Result) job.Outcome {
			if compute.Power(session.Saved.Power) != compute.PowerOn {
				return job.Done()
			}
			return c.switchOn(ctx, r, g, func() job.Outcome {
				return job.Done(c.editServer(ctx, g.server.ID, func(s *compute.Server) { s.Power = compute.PowerOn }))
			})
		})
	})
}

// cutPower ends the rescue system of a rescue that failed.
func (c *Conductor) cutPower(ctx context.Context, r *job.Run, g *managedServer) job.Outcome {
	a, err := parseJobArgs[compute.RescueArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	if !a.Boot {
		return job.Done()
	}
	off := c.offOrder(false, 0)
	off.args.KeepSaved = false // what runs is the rescue system
	return c.shutGuest(ctx, r, g, off)
}

// rescueFailed closes the session of a rescue that left nothing behind; one that did stays Failed, for an unrescue. A rescue that
// failed before it touched the guest, or was not to boot, has changed nothing: its server is in the state in which it was, and has a fault.
func (c *Conductor) rescueFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	var a compute.RescueArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return err
	}
	untouched := a.Boot && j.Memo[definedNote] == "" && (a.State == compute.Active || a.State == compute.Stopped)
	if untouched && j.State != job.Ended {
		return nil // its end calls again
	}
	return c.serverFailed("rescued", func(s *compute.Server, clean bool) {
		if !clean {
			return
		}
		saved := s.Rescue
		s.Rescue = nil
		switch {
		case untouched:
			s.Settle(s.Power)
			s.Wanted = s.Power
		case saved != nil && !a.Boot:
			s.Settle(compute.Power(saved.Saved.Power))
			s.Wanted = s.Power
		}
	})(ctx, tx, j)
}
