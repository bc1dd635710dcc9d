package server

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// serverMove brings a server of a host that is fenced to another one. Until it is attached a destination that refuses it, or dies, is
// replaced by another, and a failure leaves it where it was; from then on there is only forward.
func (c moveOperations) serverMove() job.Definition {
	const forward = "the destination may have its disks: there is no way back to the source"
	return job.Definition{
		Kind: compute.JobMove, Version: 1, Class: job.Operation, Failed: c.moveFailed,
		Actions: []job.Action{
			{Name: "choose the destination", Do: c.moves(c.chooseDestination), NoUndo: "the end of a failed move gives the place back", Deadline: guestDeadline(quickErrand)},
			{Name: "prepare the disks", Do: c.moves(c.prepareThere), Undo: c.moves(c.clearThere), Deadline: guestDeadline(diskErrand)},
			{Name: "attach", Do: c.moves(c.attachThere), NoUndo: forward},
			{Name: "make the root disk anew", Do: c.moves(c.remakeRoot), NoUndo: forward, Deadline: guestDeadline(diskErrand)},
			{Name: "define the server", Do: c.moves(c.defineThere), NoUndo: forward, Deadline: guestDeadline(diskErrand)},
			{Name: "power on", Do: c.moves(c.startThere), NoUndo: forward, Deadline: guestDeadline(quickErrand)},
			{Name: "unlock", Do: c.moves(c.unlockThere), NoUndo: forward, Deadline: guestDeadline(unlockErrand)},
			{Name: "settle", Do: c.moves(c.settleMove), NoUndo: "there is nothing left to fail"},
		},
	}
}

// moveContext is a server on its way, read afresh for each action.
type moveContext struct {
	*managedServer
	move *compute.Move
	args compute.MoveArgs
}

func (c moveOperations) moves(do func(context.Context, *job.Run, *moveContext) job.Outcome) func(context.Context, *job.Run) job.Outcome {
	return func(ctx context.Context, r *job.Run) job.Outcome {
		v, err := c.moveContextOf(ctx, r)
		if err != nil {
			return job.From(err)
		}
		return do(ctx, r, v)
	}
}

func (c moveOperations) moveContextOf(ctx context.Context, r *job.Run) (*moveContext, error) {
	a, err := parseJobArgs[compute.MoveArgs](r)
	if err != nil {
		return nil, err
	}
	g, err := c.guest(ctx, r.Subject.ID)
	if err != nil {
		return nil, err
	}
	m, err := c.Compute.Moves.Get(ctx, a.MoveID)
	if err != nil {
		return nil, err
	}
	if g.server, err = c.Compute.Moves.There(ctx, g.server, m); err != nil {
		return nil, err
	}
	return &moveContext{managedServer: g, move: m, args: a}, nil
}

// What moves note: hosts that were no destination, and the epoch at which the destination was looked at.
const (
	refusedMemo = "refused"
	lookedMemo  = "looked"
)

// maxRefusals bounds how many destinations are tried, moveLook is how often a move looks whether the one that it has still lives.
const (
	maxRefusals = 10
	moveLook    = 2 * time.Second
)

func refusedDestinations(r *job.Run) []string {
	return strings.FieldsFunc(r.Memo[refusedMemo], func(r rune) bool { return r == ',' })
}

func (c moveOperations) chooseDestination(ctx context.Context, r *job.Run, v *moveContext) job.Outcome {
	if v.move.State == compute.MoveAccepted && v.host != nil && v.host.Kind == compute.GanetiHost {
		return c.clusters().failOver(ctx, r, v)
	}
	return c.toDestination(ctx, r, v, func(*moveContext) job.Outcome { return job.Done() })
}

// toDestination goes on with a destination that lives and was looked at; if there is none yet, or none any more, it chooses one.
func (c moveOperations) toDestination(ctx context.Context, r *job.Run, v *moveContext, then func(*moveContext) job.Outcome) job.Outcome {
	switch v.move.State {
	case compute.MoveAccepted:
		var next *moveContext
		err := r.Commit(ctx, func(tx job.Tx) error {
			_, err := c.Compute.Moves.Claim(detachContext(ctx), tx, v.move.ID, v.args, refusedDestinations(r))
			return err
		})
		if err == nil {
			next, err = c.moveContextOf(ctx, r)
		}
		if err != nil {
			return job.From(err)
		}
		return c.toDestination(ctx, r, next, then)
	case compute.MovePreparing:
	default:
		return then(v)
	}
	up, err := c.Compute.Liveness.Up(ctx, v.host)
	switch {
	case err != nil:
		return job.From(err)
	case !up:
		return c.elsewhere(ctx, r, v, problem.Unavailablef("host %s is down", v.host.Name), then)
	case r.Memo[lookedMemo] == epochOf(v):
		return then(v)
	}
	return c.lookThere(ctx, r, v, then)
}

// elsewhere gives a destination up and goes to the next one.
func (c moveOperations) elsewhere(ctx context.Context, r *job.Run, v *moveContext, why error, then func(*moveContext) job.Outcome) job.Outcome {
	refused := append(refusedDestinations(r), v.move.DestID)
	if v.args.Force || len(refused) > maxRefusals {
		return job.Fail(why)
	}
	r.Note(refusedMemo, strings.Join(refused, ","))
	for _, verb := range []compute.Verb{compute.Probe, compute.Discard, compute.Prepare} {
		r.Note(orderName(r, verb), "") // the next one has all tries
	}
	err := r.Commit(ctx, func(tx job.Tx) error {
		return c.Compute.Moves.Release(detachContext(ctx), tx, v.move.ID, why.Error())
	})
	var next *moveContext
	if err == nil {
		next, err = c.moveContextOf(ctx, r)
	}
	if err != nil {
		return job.From(err)
	}
	return c.toDestination(ctx, r, next, then)
}

// lookThere has the destination tell what it sees of the disks. Where another guest of that name is, or it cannot tell, it is none; a
// store that is there and lacks the disk stops the move: nothing is made in its place.
func (c moveOperations) lookThere(ctx context.Context, r *job.Run, v *moveContext, then func(*moveContext) job.Outcome) job.Outcome {
	probes, err := c.Compute.Moves.ProbesOf(ctx, v.server, v.move)
	if err != nil {
		return job.From(err)
	}
	no := func(err error) job.Outcome { return c.elsewhere(ctx, r, v, err, then) }
	ask := hostOrder{verb: compute.Probe, args: compute.Args{Probes: probes}, look: moveLook}
	return c.tryDispatch(ctx, r, v.managedServer, ask, func(result compute.Result) job.Outcome {
		if len(result.Sights) != len(probes) {
			return no(problem.Unavailablef("the answer of host %s is not understood", v.host.Name))
		}
		err := v.judge(compute.WorstSight(result.Sights), probes)
		switch {
		case err == nil:
			r.Note(lookedMemo, epochOf(v))
			return then(v)
		case problem.Is(err, problem.Unavailable):
			return no(err)
		}
		return job.Fail(err)
	}, no)
}

func epochOf(v *moveContext) string {
	return v.move.DestID + " " + strconv.FormatInt(v.server.Epoch, 10)
}

// judge tells whether the destination will do: nil. Unavailable: another one may; else none will. Questions that name no disk ask for
// the guest alone.
func (v *moveContext) judge(s compute.DiskSight, probes []compute.DiskProbe) error {
	name, anew := v.host.Name, v.move.Disposition == compute.Reimage
	switch s.Sight {
	case compute.SightGuest:
		return problem.Unavailablef("host %s has a guest of that name or UUID already: %s", name, s.Text)
	case compute.SightUnknown:
		return problem.Unavailablef("host %s cannot tell what it sees of the disks: %s", name, s.Text)
	}
	disks := slices.ContainsFunc(probes, func(p compute.DiskProbe) bool { return p.Disk != nil })
	switch {
	case !disks, s.Sight == compute.SightSame && !anew, s.Sight == compute.SightAbsent && anew:
		return nil
	case s.Sight == compute.SightSame:
		return problem.Conflictf("host %s sees the disk that was thought to be lost: make a new plan", name)
	case s.Sight == compute.SightAbsent:
		return problem.Unavailablef("host %s does not see the disk store", name)
	case v.move.WasBuilding():
		return nil
	}
	return problem.Conflictf("host %s has the disk store, and the disk is not in it, or is not proven to be the server's: %s", name, s.Text)
}
