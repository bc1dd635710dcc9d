package server

import (
	"context"
	"encoding/json"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
)

// The second half of a move: what its destination is told once it was found.

// toRescue tells whether the server boots its rescue system at the destination: the session goes on there.
func (v *moveContext) toRescue() bool {
	s := v.session()
	return s != nil && s.Source != nil && s.State != rescue.Leaving && s.State != rescue.Failed
}

// prepareThere has the destination prove the disks that are kept, or make those that are lost, and brings config drive and rescue
// files. A destination where that fails, or that dies meanwhile, is replaced.
func (c moveOperations) prepareThere(ctx context.Context, r *job.Run, v *moveContext) job.Outcome {
	return c.toDestination(ctx, r, v, func(v *moveContext) job.Outcome {
		if v.move.State != compute.MovePreparing {
			return job.Done()
		}
		prepare, b, err := c.preparation(ctx, r, v)
		if err != nil {
			return job.From(err)
		}
		no := func(err error) job.Outcome {
			if problem.Is(err, problem.Forbidden) { // another host has the disk's lease, and would have it wherever the server went
				return job.Fail(err)
			}
			return c.elsewhere(ctx, r, v, err, func(next *moveContext) job.Outcome { return c.prepareThere(ctx, r, next) })
		}
		make := func(compute.Result) job.Outcome {
			return c.tryDispatch(ctx, r, v.managedServer, prepare, func(compute.Result) job.Outcome { return job.Done() }, no)
		}
		if v.move.Disposition != compute.Reimage {
			return make(compute.Result{})
		}
		// What it may have kept of this server from long ago is not taken for a fresh disk.
		discard := hostOrder{verb: compute.Discard, args: compute.Args{Spec: &b.Spec, Reason: compute.QuarantineReimage}, look: moveLook}
		return c.tryDispatch(ctx, r, v.managedServer, discard, make, no)
	})
}

// preparation is the host order: disks that are kept must be found.
func (c moveOperations) preparation(ctx context.Context, r *job.Run, v *moveContext) (hostOrder, *compute.Blueprint, error) {
	hash, err := firstPassword(r.Secret)
	if err != nil {
		return hostOrder{}, nil, err
	}
	b, err := c.planAt(ctx, v, hash)
	if err != nil {
		return hostOrder{}, nil, err
	}
	e := hostOrder{verb: compute.Prepare, args: compute.Args{Spec: &b.Spec}, within: diskErrand, look: moveLook}
	e.args.Receipt = v.move.ReceiptID
	e.args.Found = v.move.Disposition != compute.Reimage && !v.move.WasBuilding()
	e.args.NeedsState = v.move.FindsState() && v.server.Firmware == compute.UEFI && !v.move.MayLoseVariables
	e.secret = compute.OrderSecret{CHAP: b.Secret.CHAP, Drive: b.Secret.Drive, RescueDrive: b.Secret.RescueDrive}
	return e, b, nil
}

// planAt is the blueprint at the destination: there are no settings that a rescue had replaced.
func (c moveOperations) planAt(ctx context.Context, v *moveContext, hash string) (*compute.Blueprint, error) {
	b, err := c.blueprint(ctx, v.managedServer, v.toRescue(), hash)
	if err == nil {
		b.Spec.Restore = nil
	}
	return b, err
}

// clearThere takes away what was prepared at a destination that never attached the disks. Those that were made there go, those that
// were found stay.
func (c moveOperations) clearThere(ctx context.Context, r *job.Run, v *moveContext) job.Outcome {
	if v.move.State != compute.MovePreparing {
		return job.Done()
	}
	up, err := c.Compute.Liveness.Up(ctx, v.host)
	if err != nil || !up {
		return job.From(err) // it is gone, and what it has is no more than files
	}
	b, err := c.planAt(ctx, v, "")
	if err != nil {
		return job.From(err)
	}
	e := hostOrder{verb: compute.Remove, args: compute.Args{Spec: &b.Spec, KeepDisks: v.move.Disposition != compute.Reimage, SameEpoch: true}, ignoreNotFound: true}
	return c.dispatch(ctx, r, v.managedServer, e, func(compute.Result) job.Outcome { return job.Done() })
}

func (c moveOperations) attachThere(ctx context.Context, r *job.Run, v *moveContext) job.Outcome {
	if err := c.storageAccess().shutOut(ctx, v); err != nil {
		return job.From(err)
	}
	// In the middle of the action: while the former host speaks it is asked again, within bounds.
	return job.From(r.Commit(ctx, func(tx job.Tx) error { return c.Compute.Moves.Attach(detachContext(ctx), tx, v.move.ID) }))
}

// remakeRoot completes a rebuild that was going on when the host died: its owner had given the old disk up.
func (c moveOperations) remakeRoot(ctx context.Context, r *job.Run, v *moveContext) job.Outcome {
	done := func(compute.Result) job.Outcome {
		r.Secret = secret.Value{}
		return job.Done()
	}
	if v.move.WasTask != compute.Rebuilding || v.move.Disposition != compute.KeepDisk {
		return done(compute.Result{})
	}
	prepare, b, err := c.preparation(ctx, r, v)
	if err != nil {
		return job.From(err)
	}
	prepare.look = 0
	discard := hostOrder{verb: compute.Discard, args: compute.Args{Spec: &b.Spec}}
	return c.dispatch(ctx, r, v.managedServer, discard, func(compute.Result) job.Outcome { return c.dispatch(ctx, r, v.managedServer, prepare, done) })
}

// defineThere defines the guest, which must be new there: one of that name or UUID that is somebody else's is left alone.
func (c moveOperations) defineThere(ctx context.Context, r *job.Run, v *moveContext) job.Outcome {
	b, err := c.planAt(ctx, v, "")
	if err != nil {
		return job.From(err)
	}
	e := defineErrand(b)
	e.args.Fresh, e.args.Receipt, e.within = true, v.move.ReceiptID, diskErrand
	e.args.CopiedState = v.move.FindsState()
	return c.dispatch(ctx, r, v.managedServer, e, func(result compute.Result) job.Outcome {
		var commits []func(job.Tx) error
		if e.args.CopiedState && v.server.Firmware == compute.UEFI && !result.StateTaken {
			commits = append(commits, func(tx job.Tx) error {
				return c.warn(tx, r, "no copy of its UEFI variables could be read beside its disk: it begins with new ones")
			})
		}
		if v.toRescue() {
			commits = append(commits, c.editSession(ctx, v.managedServer, toSession(rescue.Prepared)))
		}
		return job.Done(commits...)
	})
}

func (c moveOperations) startThere(ctx context.Context, r *job.Run, v *moveContext) job.Outcome {
	is := func(p compute.Power) job.Outcome {
		return job.Done(c.editServer(ctx, v.server.ID, onAny(func(s *compute.Server, session *rescue.Session) {
			s.Power = p
			if session != nil && session.State == rescue.Prepared && p == compute.PowerOn {
				session.State = rescue.Booting
			}
		})))
	}
	if v.move.Wanted != compute.PowerOn {
		return is(compute.PowerOff)
	}
	return c.switchOn(ctx, r, v.managedServer, func() job.Outcome { return is(compute.PowerOn) })
}

func (c moveOperations) unlockThere(ctx context.Context, r *job.Run, v *moveContext) job.Outcome {
	return c.unlockRescue(ctx, r, v.managedServer)
}

// settleMove ends the move: the server is what it was, or what was wanted of it. A session that was to be left is closed.
func (c moveOperations) settleMove(ctx context.Context, _ *job.Run, v *moveContext) job.Outcome {
	return job.Done(func(tx job.Tx) error {
		return c.Compute.Moves.Finish(detachContext(ctx), tx, v.move.ID, onAny(func(s *compute.Server, session *rescue.Session) {
			s.Fault, s.Wanted = nil, s.Power
			if s.Power == compute.PowerOn {
				s.LaunchedAt = c.Now().UTC()
			}
			if session != nil && session.State != rescue.Leaving {
				s.State = compute.Rescued
				if session.State == rescue.Booting {
					session.State = rescue.Ready
				}
				return
			}
			s.Rescue, s.State = nil, compute.Stopped
			s.Settle(s.Power)
		}))
	})
}

// moveFailed ends the move's record, and puts the server back if it attached nowhere.
func (c moveOperations) moveFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.State != job.Ended {
		return nil // its end calls again
	}
	var a compute.MoveArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return err
	}
	return c.Compute.Moves.Fail(ctx, tx, a.MoveID, j.Problem)
}
