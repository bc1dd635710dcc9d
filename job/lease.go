package job

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"salvor/problem"
	"salvor/secret"
)

var noSecret secret.Value

// every runs fn once per period until ctx ends.
func every(ctx context.Context, period time.Duration, fn func()) {
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			fn()
		}
	}
}

// keepLease beats once a second and stops this incarnation when it could not for
// too long: peers must be able to count on that.
func (r *Runner) keepLease(ctx context.Context) {
	if !r.leased {
		return
	}
	peers := map[string]sighting{}
	// A timer of its own: a beat that hangs in the store must not keep the actions alive.
	guard := time.AfterFunc(selfStop, r.stopActions)
	defer guard.Stop()
	var reaper sync.WaitGroup
	defer reaper.Wait()
	reaper.Go(func() { every(ctx, beatEvery/2, func() { r.reapDeadConductors(ctx, peers) }) })
	every(ctx, beatEvery, func() { r.renewLease(ctx, guard) })
}

func (r *Runner) renewLease(ctx context.Context, guard *time.Timer) {
	r.mu.Lock()
	me := r.me
	r.mu.Unlock()
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, beatEvery)
	err := r.store.RenewLease(bounded, me)
	cancel()
	r.mu.Lock()
	lost, closing := r.epoch.Err() != nil || errors.Is(err, ErrFenced), r.closing
	if err == nil && !lost {
		r.lastBeat = began
		guard.Reset(selfStop - time.Since(began))
	}
	r.mu.Unlock()
	if !lost || closing {
		return
	}
	r.log.Error("the lease is lost: every action stops and a new incarnation begins", "error", err)
	r.stopActions()
	r.working.Wait()
	r.mu.Lock()
	r.me.Incarnation = uuid.NewString()
	r.mu.Unlock()
	if err := r.Join(ctx); err != nil {
		if ctx.Err() == nil {
			r.log.Error("join again", "error", err)
		}
		return
	}
	guard.Reset(selfStop)
}

// drain lets the running actions come to their end within grace, each job handed over at
// its next action; what takes longer is cancelled, and goes on elsewhere from its beginning.
func (r *Runner) drain(grace time.Duration) {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	drained := make(chan struct{})
	go func() { r.working.Wait(); close(drained) }()
	select {
	case <-drained:
		return
	case <-time.After(grace):
	}
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	r.stopActions()
	select {
	case <-drained:
	case <-time.After(overrun + selfStop):
		r.die("jobs could not be handed over: the store does not answer")
	}
}

func (r *Runner) drains() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

type sighting struct {
	counter int64
	moved   time.Time
}

// reapDeadConductors frees the jobs of conductors whose counter stands still on our clock, and of those that were buried already.
func (r *Runner) reapDeadConductors(ctx context.Context, seen map[string]sighting) {
	ctx, done := context.WithTimeout(ctx, lookTime)
	defer done()
	if n, err := r.store.ReleaseOrphans(ctx); err == nil && n > 0 {
		r.log.Warn("jobs were claimed in the name of a conductor that had ended; they are free", "jobs", n)
	}
	asked := time.Now() // what is read is as old as the question, however late the answer comes
	all, err := r.store.Conductors(ctx)
	if err != nil {
		return
	}
	for _, c := range all {
		s, known := seen[c.Owner()]
		if !known || s.counter != c.Counter {
			seen[c.Owner()] = sighting{c.Counter, time.Now()}
			continue
		}
		if c.ID == r.me.ID || asked.Sub(s.moved) < peerDead {
			continue
		}
		// Its row goes too: should it only have been frozen, its next beat finds itself void.
		err := r.store.Retire(ctx, c)
		if problem.Is(err, problem.Conflict) {
			continue // it beat a moment ago
		}
		if err != nil {
			r.log.Error("free the jobs of a dead conductor", "conductor", c.Hostname, "error", err)
			continue
		}
		delete(seen, c.Owner())
		r.log.Warn("a conductor was silent for too long; its jobs are free", "conductor", c.Hostname, "silent", time.Since(s.moved))
	}
}

// keepTime advances the clock of alive seconds of each group.
func (r *Runner) keepTime(ctx context.Context) {
	every(ctx, beatEvery, func() {
		r.mu.Lock()
		seen := r.ticks
		r.mu.Unlock()
		if err := r.store.Advance(ctx, seen); err != nil {
			return
		}
		bounded, done := context.WithTimeout(ctx, lookTime)
		now, err := r.store.Ticks(bounded, r.me.Groups)
		done()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.ticks = now
		r.mu.Unlock()
	})
}

func (r *Runner) tick(group string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ticks[group]
}

// watchWaits ends waits that took too long: the failure is shown first, then undone.
func (r *Runner) watchWaits(ctx context.Context) {
	every(ctx, beatEvery, func() {
		// One that cannot be ended now, because its subject is locked, must not keep those behind it waiting.
		var last Job
		for ctx.Err() == nil {
			bounded, done := context.WithTimeout(ctx, lookTime)
			late, err := r.store.Expired(bounded, r.me.Groups, r.kinds, last, claimAtOnce)
			done()
			if err != nil {
				if ctx.Err() == nil {
					r.log.Error("look for waits that took too long", "error", err)
				}
				return
			}
			for _, j := range late {
				if err := r.endWait(ctx, j); err != nil && !problem.Is(err, problem.Conflict) {
					r.log.Error("end a wait", "job", j.ID, "error", err)
				}
				last = j
			}
			if len(late) < claimAtOnce {
				return
			}
		}
	})
}

// timedOut begins the problem of a job whose wait took too long.
const timedOut = "Timeout reached while waiting for "

// TimedOut reports whether the job failed because what it waited for did not come.
func (j *Job) TimedOut() bool { return strings.HasPrefix(j.Problem, timedOut) }

// endWait fails the job, or has it go on if the time was all that it waited for.
func (r *Runner) endWait(ctx context.Context, j Job) error {
	op := r.ops[j.Kind]
	if j.Memo[restMemo] != "" && (j.OperationDeadline == 0 || r.tick(j.Group) < j.OperationDeadline) {
		return r.store.Do(ctx, func(tx Tx) error { return r.store.Signal(tx, j.Subject) })
	}
	cause := problem.Unavailablef(timedOut+"%s", j.WaitFor)
	return r.store.Do(ctx, func(tx Tx) error {
		// j was read outside of this transaction: the job may have gone on, or another conductor may have ended this wait.
		now, err := r.store.Job(ctx, tx, j.ID)
		if err != nil || now.State != Waiting || now.Fence != j.Fence || now.Deadline != j.Deadline || now.Action != j.Action {
			return ignoreGone(err)
		}
		if on, err := r.waitOn(ctx, tx, j, cause); on || err != nil {
			return err
		}
		if err := r.store.Interrupt(tx, j.ID, Undoing, cause); err != nil {
			return err
		}
		shown := j
		shown.SetCause(cause)
		if err := r.appendFailure(tx, &j, cause.Error()); err != nil {
			return err
		}
		return op.showFailure(ctx, tx, &shown)
	})
}

func ignoreGone(err error) error {
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// waitOnMemo names the action of which the timeline says that its wait goes on.
const waitOnMemo = "waits on at"

// waitOn has a job wait on if its definition says so, and tells whether it does. Once the definition does not say so any more, what the job waits for may have
// begun its work a moment ago. So the job then has the whole time of its action once more.
func (r *Runner) waitOn(ctx context.Context, tx Tx, j Job, cause error) (bool, error) {
	op := r.ops[j.Kind]
	if op.WaitsOn == nil || j.OperationDeadline > 0 && r.tick(j.Group) >= j.OperationDeadline {
		return false, nil
	}
	more, text, err := op.WaitsOn(ctx, tx, &j)
	i := op.index(j.Action)
	waitedOn := j.Memo[waitOnMemo] == j.Action && i >= 0
	switch {
	case err != nil || more <= 0 && !waitedOn:
		return false, err
	case more <= 0:
		more, text = op.Actions[i].deadline(), ""
		j.addMemo(waitOnMemo, "")
	}
	told := text == "" || waitedOn
	if !told {
		j.addMemo(waitOnMemo, j.Action)
	}
	if err := r.store.WaitOn(tx, &j, r.tick(j.Group)+seconds(more)); err != nil || told {
		return true, err
	}
	return true, r.appendFailure(tx, &j, cause.Error()+": "+text)
}

// appendFailure writes to the timeline that the time of a wait is over.
func (r *Runner) appendFailure(tx Tx, j *Job, text string) error {
	if j.Class == Background {
		return nil
	}
	return r.store.Append(tx, Event{Subject: j.Subject, At: r.now(), Type: "action", JobID: j.ID, Action: j.Action, Severity: "error", RequestID: j.RequestID, User: j.User,
		Text: j.Action + ": failed: " + text})
}
