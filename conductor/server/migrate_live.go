package server

import (
	"context"
	"encoding/base64"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// sendLive is the way of a running guest up to the hand-over. Where it cannot even begin, the server is moved off, unless only live was asked for.
func (c moveOperations) sendLive(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	b, err := c.blueprintOf(ctx, t.there)
	if err != nil {
		return job.From(err)
	}
	cold := func(err error) job.Outcome {
		if t.args.LiveOnly {
			return job.Fail(err)
		}
		return c.goOff(ctx, r, t, err)
	}
	return c.tryDispatch(ctx, r, t.here, hostOrder{verb: compute.MigrateBegin}, func(begun compute.Result) job.Outcome {
		listen := hostOrder{verb: compute.MigratePrepare, args: compute.Args{Spec: &b.Spec, Cookie: begun.Cookie}, secret: compute.OrderSecret{CHAP: b.Secret.CHAP}}
		return c.tryDispatch(ctx, r, t.there, listen, func(listens compute.Result) job.Outcome {
			send := hostOrder{verb: compute.MigratePerform, args: compute.Args{Cookie: listens.Cookie, Peer: listens.Peer}, within: liveErrand}
			return c.dispatch(ctx, r, t.here, send, func(sent compute.Result) job.Outcome {
				r.Note(cookieMemo, base64.StdEncoding.EncodeToString(sent.Cookie))
				return job.Done()
			})
		}, cold)
	}, cold)
}

// goOff has a server that cannot be moved live, because of why, moved off.
func (c moveOperations) goOff(ctx context.Context, r *job.Run, t *serverMigration, why error) job.Outcome {
	r.Note(coldMemo, why.Error())
	return job.Pause(0, "the server to be moved off", func(tx job.Tx) error {
		return c.Compute.Moves.NotLive(detachContext(ctx), tx, t.move.ID, why.Error())
	})
}

// stayAtSource has the guest go on at the source, as it was.
func (c moveOperations) stayAtSource(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.byCluster() || !t.runs() {
		return job.Done()
	}
	on := func(compute.Result) job.Outcome {
		return job.Done(c.editServer(ctx, t.here.server.ID, func(s *compute.Server) { s.Power = compute.PowerOn }))
	}
	if !t.live(r) {
		return c.tryDispatch(ctx, r, t.here, hostOrder{verb: compute.SetPower, args: compute.Args{Power: compute.PowerOn}}, func(result compute.Result) job.Outcome {
			if !t.here.inRescue() {
				return on(result)
			}
			return c.unlock(ctx, r, t.here)
		}, ignoreCleanupError)
	}
	b, err := c.blueprintOf(ctx, t.there)
	if err != nil {
		return job.From(err)
	}
	stay := func() job.Outcome {
		return c.tryDispatch(ctx, r, t.here, hostOrder{verb: compute.MigrateConfirm, args: compute.Args{Cancel: true}}, on, ignoreCleanupError)
	}
	away := hostOrder{verb: compute.MigrateFinish, args: compute.Args{Spec: &b.Spec, Cancel: true}}
	return c.tryDispatch(ctx, r, t.there, away, func(compute.Result) job.Outcome { return stay() }, func(error) job.Outcome { return stay() })
}

func (c moveOperations) handOver(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	return job.Done(func(tx job.Tx) error {
		return c.Compute.Moves.HandOver(detachContext(ctx), tx, t.move.ID, r.Memo[broughtMemo])
	})
}

// arriveLive lets the guest run at the destination. One that cannot go on there is begun anew, once it has ended at the source.
func (c moveOperations) arriveLive(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.byCluster() || !t.live(r) {
		return job.Done()
	}
	b, err := c.blueprintOf(ctx, t.there)
	if err != nil {
		return job.From(err)
	}
	e := hostOrder{verb: compute.MigrateFinish, args: compute.Args{Spec: &b.Spec, Cookie: cookieOf(r)}, secret: compute.OrderSecret{CHAP: b.Secret.CHAP}}
	return c.tryDispatch(ctx, r, t.there, e, func(result compute.Result) job.Outcome {
		r.Note(cookieMemo, base64.StdEncoding.EncodeToString(result.Cookie))
		r.Note(livesMemo, "yes")
		return job.Done()
	}, func(err error) job.Outcome {
		r.Note(coldMemo, err.Error())
		r.Note(brokeMemo, "yes")
		return job.Done(func(tx job.Tx) error {
			return c.Compute.Moves.NotLive(detachContext(ctx), tx, t.move.ID, err.Error())
		})
	})
}

// endAtSource proves that the guest is off where it came from, before it is begun anew elsewhere: the hand-over made earlier orders void, and
// what was read back before it may not hold for a guest that was held only. A source that dies now is waited for until it is fenced:
// that is the proof then.
func (c moveOperations) endAtSource(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.byCluster() || r.Memo[livesMemo] != "" || t.here.host == nil {
		return job.Done()
	}
	if proven, err := c.provenOff(ctx, t.here.host); err != nil || proven && r.Memo[brokeMemo] == "" {
		return job.From(err)
	}
	off := func(compute.Result) job.Outcome {
		if proven, err := c.provenOff(ctx, t.here.host); err != nil || proven {
			return job.From(err)
		}
		e := hostOrder{verb: compute.SetPower, args: compute.Args{Power: compute.PowerOff}, within: endErrand, look: moveLook, ignoreNotFound: true}
		return c.dispatch(ctx, r, t.here, e, func(compute.Result) job.Outcome {
			if r.Memo[stateMemo] != "" {
				return job.Done()
			}
			return c.exportState(ctx, r, t)
		})
	}
	if r.Memo[brokeMemo] == "" {
		return off(compute.Result{})
	}
	b, err := c.blueprintOf(ctx, t.there)
	if err != nil {
		return job.From(err)
	}
	// What came of it is thrown away; one that runs there all the same is a conflict, and is left alone.
	return c.dispatch(ctx, r, t.there, hostOrder{verb: compute.MigrateFinish, args: compute.Args{Spec: &b.Spec, Cancel: true}}, off)
}

// provenOff tells whether a host is fenced, and its fenced boot does not speak.
func (c moveOperations) provenOff(ctx context.Context, h *compute.Host) (bool, error) {
	if !h.Fenced {
		return false, nil
	}
	receipt, err := c.Compute.Fences.Receipt(ctx, nil, h.ID)
	if problem.Is(err, problem.NotFound) {
		return false, nil // it was closed at this very moment
	}
	return err == nil && receipt.Proves(), err
}

// receiptOf is the id of the receipt of a source that was fenced while its server was on the way; empty: it lives, and gives its disks up itself.
func (c moveOperations) receiptOf(ctx context.Context, h *compute.Host) (string, error) {
	if h == nil || !h.Fenced {
		return "", nil
	}
	receipt, err := c.Compute.Fences.Receipt(ctx, nil, h.ID)
	if err != nil {
		return "", suppressNotFound(err)
	}
	if receipt.Former() {
		return "", problem.Unavailablef("host %[1]s was fenced before the database was restored; prove it off again: salvor fence %[1]s", h.Name)
	}
	return receipt.ID, nil
}

func (c moveOperations) defineArrived(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.byCluster() || r.Memo[livesMemo] != "" {
		return job.Done()
	}
	b, err := c.blueprintOf(ctx, t.there)
	if err != nil {
		return job.From(err)
	}
	e := defineErrand(b)
	e.args.Fresh = true
	if e.args.State, err = stateOf(r); err != nil {
		return job.Fail(err)
	}
	if e.args.Receipt, err = c.receiptOf(ctx, t.here.host); err != nil {
		return job.From(err)
	}
	return c.dispatch(ctx, r, t.there, e, finishAction)
}

func (c moveOperations) startArrived(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.byCluster() || r.Memo[livesMemo] != "" {
		return job.Done()
	}
	if !t.runs() {
		r.Note(livesMemo, "off")
		return job.Done()
	}
	return c.switchOn(ctx, r, t.there, func() job.Outcome {
		r.Note(livesMemo, "anew")
		return job.Done(c.editServer(ctx, t.there.server.ID, func(s *compute.Server) { s.Power = compute.PowerOn }))
	})
}

func (c moveOperations) unlockArrived(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.byCluster() || r.Memo[livesMemo] != "anew" || !t.there.inRescue() {
		return job.Done()
	}
	return c.unlock(ctx, r, t.there)
}
