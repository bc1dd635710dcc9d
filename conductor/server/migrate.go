package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/rescue"
)

// serverMigrate moves a server whose host lives: live where the hypervisor can, else off at the source and on again at the destination.
// Until it is handed over the source owns it and a failure leaves it running there; from then on the destination does. The guest is
// never begun at the destination before the source has told that it is off, or, live, libvirt lets one side run only.
func (c moveOperations) serverMigrate() job.Definition {
	const forward = "the destination owns the server: there is no way back to the source"
	return job.Definition{
		Kind: compute.JobMigrate, Version: 1, Class: job.Operation, Failed: c.migrateFailed,
		Actions: []job.Action{
			{Name: compute.MigrateChooses, Do: c.withMigration(c.reserveThere), NoUndo: "the end of a failed move gives the place back", Deadline: guestDeadline(quickErrand)},
			{Name: compute.MigratePrepares, Do: c.withMigration(c.makeReady), Undo: c.withMigration(beforeHandOver(c.clearReady)), Deadline: guestDeadline(diskErrand)},
			{Name: compute.LeaveSource, Do: c.withMigration(c.leaveSource), Undo: c.withMigration(beforeHandOver(c.stayAtSource)), Deadline: guestDeadline(liveErrand)},
			{Name: "hand over", Do: c.withMigration(c.handOver), NoUndo: forward},
			{Name: "arrive", Do: c.withMigration(c.arriveLive), NoUndo: forward, Deadline: guestDeadline(quickErrand)},
			{Name: "end the guest at the source", Do: c.withMigration(c.endAtSource), NoUndo: forward, Deadline: guestDeadline(endErrand)},
			{Name: "define the server", Do: c.withMigration(c.defineArrived), NoUndo: forward, Deadline: guestDeadline(quickErrand)},
			{Name: "power on", Do: c.withMigration(c.startArrived), NoUndo: forward, Deadline: guestDeadline(quickErrand)},
			{Name: "unlock", Do: c.withMigration(c.unlockArrived), NoUndo: forward, Deadline: guestDeadline(unlockErrand)},
			{Name: "clear the source", Do: c.withMigration(c.clearSource), NoUndo: forward, Deadline: guestDeadline(quickErrand)},
			{Name: "settle", Do: c.withMigration(c.settleTrip), NoUndo: "there is nothing left to fail"},
		},
	}
}

const (
	// liveErrand bounds the sending of a guest's memory.
	liveErrand = time.Hour
	// shutWithin is how long a guest's system is asked to end before it is moved off.
	shutWithin = time.Minute
	// endErrand is for how long a source that does not answer any more may come back, or be fenced, before the server is called in error.
	endErrand = 15 * time.Minute
)

// What a trip notes: what the source answered last, in base64; that it goes off and not live; that the guest runs there;
// that it came, and could not go on there; that nothing
// of it is left at the source; where a cluster brought it.
const (
	cookieMemo  = "cookie"
	coldMemo    = "cold"
	livesMemo   = "lives"
	brokeMemo   = "broke"
	clearedMemo = "cleared"
	broughtMemo = "brought"
	stateMemo   = "state" // a compute.GuestState as JSON
)

// serverMigration is a server on its way from a living host, seen from both of its ends. there is nil until there is a destination.
type serverMigration struct {
	here, there *managedServer
	move        *compute.Move
	args        compute.MigrateArgs
}

func (c moveOperations) withMigration(do func(context.Context, *job.Run, *serverMigration) job.Outcome) func(context.Context, *job.Run) job.Outcome {
	return func(ctx context.Context, r *job.Run) job.Outcome {
		t, err := c.migrationOf(ctx, r)
		if err != nil {
			return job.From(err)
		}
		return do(ctx, r, t)
	}
}

// beforeHandOver takes nothing back of a move that was handed over: the destination may run the guest.
func beforeHandOver(undo func(context.Context, *job.Run, *serverMigration) job.Outcome) func(context.Context, *job.Run, *serverMigration) job.Outcome {
	return func(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
		if t.move.State != compute.MovePreparing {
			return job.Done()
		}
		return undo(ctx, r, t)
	}
}

func (c moveOperations) migrationOf(ctx context.Context, r *job.Run) (*serverMigration, error) {
	t := &serverMigration{}
	var err error
	if t.args, err = parseJobArgs[compute.MigrateArgs](r); err != nil {
		return nil, err
	}
	if t.move, err = c.Compute.Moves.Get(ctx, t.args.MoveID); err != nil {
		return nil, err
	}
	g, err := c.guest(ctx, r.Subject.ID)
	if err != nil {
		return nil, err
	}
	t.here = &managedServer{server: g.server}
	if t.here.host, err = c.Store.Hosts().Get(ctx, nil, t.move.SourceID); err != nil && !problem.Is(err, problem.NotFound) {
		return nil, err
	}
	if t.move.DestID == "" {
		return t, nil
	}
	there, err := c.Compute.Moves.There(ctx, g.server, t.move)
	if err != nil {
		return nil, err
	}
	moved := *there
	moved.HostID = t.move.DestID
	t.there = &managedServer{server: &moved}
	t.there.host, err = c.Store.Hosts().Get(ctx, nil, t.move.DestID)
	return t, err
}

// live tells whether the guest is brought over running.
func (t *serverMigration) live(r *job.Run) bool {
	return t.move.Kind == compute.LiveMigration && r.Memo[coldMemo] == ""
}

// byCluster tells whether a cluster moves the guest by itself.
func (t *serverMigration) byCluster() bool {
	return t.here.host != nil && t.here.host.Kind == compute.GanetiHost
}

// runs tells whether the server is to run in the end.
func (t *serverMigration) runs() bool { return t.move.WasPower == compute.PowerOn }

func cookieOf(r *job.Run) []byte {
	b, _ := base64.StdEncoding.DecodeString(r.Memo[cookieMemo]) // our own writing
	return b
}

// reserveThere takes a place at the best host, and has that host look at the disks; one that does not see them is none.
func (c moveOperations) reserveThere(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.move.State == compute.MoveAccepted {
		err := r.Commit(ctx, func(tx job.Tx) error {
			return c.Compute.Moves.Reserve(detachContext(ctx), tx, t.move.ID, t.args.MoveArgs, refusedDestinations(r))
		})
		if err == nil {
			t, err = c.migrationOf(ctx, r)
		}
		if err != nil {
			return job.From(err)
		}
	}
	if t.byCluster() || t.move.State != compute.MovePreparing {
		return job.Done()
	}
	probes, err := c.Compute.Moves.ProbesOf(ctx, t.here.server, t.move)
	if err != nil {
		return job.From(err)
	}
	ask := hostOrder{verb: compute.Probe, args: compute.Args{Probes: probes}, look: moveLook, within: quickErrand / 4}
	no := func(err error) job.Outcome { return c.reserveElsewhere(ctx, r, t, err) }
	return c.tryDispatch(ctx, r, t.there, ask, func(result compute.Result) job.Outcome {
		if len(result.Sights) != len(probes) {
			return no(problem.Unavailablef("the answer of host %s is not understood", t.there.host.Name))
		}
		v := moveContext{managedServer: t.there, move: t.move}
		if err := v.judge(compute.WorstSight(result.Sights), probes); err != nil {
			return no(err)
		}
		return job.Done()
	}, no)
}

// reserveElsewhere gives the place back and tries the next host.
func (c moveOperations) reserveElsewhere(ctx context.Context, r *job.Run, t *serverMigration, why error) job.Outcome {
	refused := append(refusedDestinations(r), t.move.DestID)
	if t.args.Force || len(refused) > maxRefusals {
		return job.Fail(why)
	}
	r.Note(refusedMemo, strings.Join(refused, ","))
	// The next order is another one: the one that was answered has this number.
	r.Note(orderName(r, compute.Probe), "1"+strings.Repeat("0", len(refused)))
	return job.Pause(0, "another destination", func(tx job.Tx) error {
		return c.Compute.Moves.Unreserve(detachContext(ctx), tx, t.move.ID, why.Error())
	})
}

// blueprintOf is what one end must know of the server as it is now: with its rescue system where it is in one.
func (c moveOperations) blueprintOf(ctx context.Context, g *managedServer) (*compute.Blueprint, error) {
	return c.blueprint(ctx, g, g.inRescue(), "")
}

// makeReady brings to the destination all that the guest needs beside its disks, which must be there.
func (c moveOperations) makeReady(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.byCluster() {
		return job.Done()
	}
	b, err := c.blueprintOf(ctx, t.there)
	if err != nil {
		return job.From(err)
	}
	e := hostOrder{verb: compute.Prepare, args: compute.Args{Spec: &b.Spec, Found: true}, within: diskErrand}
	e.secret = compute.OrderSecret{CHAP: b.Secret.CHAP, Drive: b.Secret.Drive, RescueDrive: b.Secret.RescueDrive}
	return c.dispatch(ctx, r, t.there, e, func(compute.Result) job.Outcome { return job.Done() })
}

// clearReady removes what was brought. A destination that cannot be asked keeps it: nobody starts it there.
func (c moveOperations) clearReady(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.byCluster() {
		return job.Done()
	}
	e := hostOrder{verb: compute.Remove, args: compute.Args{KeepDisks: true}, ignoreNotFound: true}
	return c.tryDispatch(ctx, r, t.there, e, finishAction, ignoreCleanupError)
}

func finishAction(compute.Result) job.Outcome { return job.Done() }

// ignoreCleanupError goes on though something was not taken away.
func ignoreCleanupError(error) job.Outcome { return job.Done() }

// leaveSource holds the guest at the source with all of its memory sent, or turns it off there.
func (c moveOperations) leaveSource(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	switch {
	case t.byCluster():
		return c.clusters().moveByCluster(ctx, r, t)
	case t.live(r):
		return c.sendLive(ctx, r, t)
	}
	// What lies at the source is looked at before the guest ends and after: a backup tool may take a snapshot in between.
	e := hostOrder{verb: compute.Look, ignoreNotFound: true}
	return c.dispatch(ctx, r, t.here, e, func(result compute.Result) job.Outcome {
		if err := leavesNothing(result); err != nil {
			return job.Fail(err)
		}
		if !t.runs() {
			return c.exportState(ctx, r, t)
		}
		if result.Guest != nil && result.Guest.Power == compute.PowerSaved { // since the move was asked for
			return job.Fail(hypervisor.RefusalOfSaved(result.Guest.Name))
		}
		off := c.offOrder(true, int(min(shutWithin, c.SoftOffTimeout)/time.Second))
		return c.dispatch(ctx, r, t.here, off, func(result compute.Result) job.Outcome {
			if err := leavesNothing(result); err != nil {
				return job.Fail(err)
			}
			return c.exportState(ctx, r, t, c.noteOff(ctx, t.here))
		})
	})
}

// exportState notes what of the guest, which is off, lies at the source alone: it goes to the destination with the definition.
func (c moveOperations) exportState(ctx context.Context, r *job.Run, t *serverMigration, commits ...func(job.Tx) error) job.Outcome {
	take := func(result compute.Result) job.Outcome {
		if result.State == nil {
			return job.Done(commits...)
		}
		text, err := json.Marshal(result.State)
		if err != nil {
			return job.Fail(err)
		}
		r.Note(stateMemo, string(text))
		return job.Done(commits...)
	}
	return c.tryDispatch(ctx, r, t.here, hostOrder{verb: compute.Export, ignoreNotFound: true}, take, func(err error) job.Outcome {
		if problem.Is(err, problem.Unsupported) && t.here.server.Firmware != compute.UEFI {
			return job.Done(commits...) // an agent of a former release: a BIOS guest has no variables
		}
		return job.Fail(err)
	})
}

// stateOf is what exportState noted; nil: nothing.
func stateOf(r *job.Run) (*compute.GuestState, error) {
	if r.Memo[stateMemo] == "" {
		return nil, nil
	}
	state := &compute.GuestState{}
	return state, json.Unmarshal([]byte(r.Memo[stateMemo]), state)
}

// leavesNothing is Conflict where the guest of a result has a disk that would not go with it.
func leavesNothing(result compute.Result) error {
	if result.Guest == nil {
		return nil
	}
	return result.Guest.RefusalToLeave()
}

// clearSource removes what the source has left. It may have died by now: then it is told when it returns.
func (c moveOperations) clearSource(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	if t.byCluster() || t.here.host == nil || t.here.host.Fenced {
		return job.Done()
	}
	remove := func() job.Outcome {
		e := hostOrder{verb: compute.Remove, args: compute.Args{KeepDisks: true}, look: moveLook, within: quickErrand / 4, ignoreNotFound: true}
		return c.tryDispatch(ctx, r, t.here, e, func(compute.Result) job.Outcome {
			r.Note(clearedMemo, "yes")
			return job.Done()
		}, ignoreCleanupError)
	}
	if r.Memo[livesMemo] != "yes" {
		return remove()
	}
	e := hostOrder{verb: compute.MigrateConfirm, args: compute.Args{Cookie: cookieOf(r)}, look: moveLook, within: quickErrand / 4}
	return c.tryDispatch(ctx, r, t.here, e, func(compute.Result) job.Outcome { return remove() }, ignoreCleanupError)
}

// settleTrip shows the server where it is now; its state is what it was.
func (c moveOperations) settleTrip(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	return job.Done(func(tx job.Tx) error { return c.endTrip(detachContext(ctx), tx, &r.Job, t.move) })
}

func (c moveOperations) endTrip(ctx context.Context, tx job.Tx, j *job.Job, m *compute.Move) error {
	return c.Compute.Moves.EndMigration(ctx, tx, m.ID, j.Memo[clearedMemo] != "", onAny(func(s *compute.Server, session *rescue.Session) {
		if m.WasPower == compute.PowerOn {
			s.Power = compute.PowerOn
		}
		if j.Memo[livesMemo] == "anew" {
			s.LaunchedAt = c.Now().UTC()
			if session != nil && session.State == rescue.Booting {
				session.State = rescue.Ready
			}
		}
	}))
}

// migrateFailed ends the move as far as it came: a server that lives at its destination is not in error because the source could not be cleared.
func (c moveOperations) migrateFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.State != job.Ended {
		return nil // its end calls again
	}
	a, err := parseJobArgs[compute.MigrateArgs](&job.Run{Job: *j})
	if err != nil {
		return err
	}
	m, err := c.Store.Moves().Get(ctx, tx, a.MoveID)
	if err != nil || !m.Going() {
		return suppressNotFound(err)
	}
	if m.State == compute.MoveAttached && j.Memo[livesMemo] != "" {
		return suppressNotFound(c.endTrip(ctx, tx, j, m))
	}
	return suppressNotFound(c.Compute.Moves.FailMigration(ctx, tx, a.MoveID, j.Problem))
}
