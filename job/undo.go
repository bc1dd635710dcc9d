package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"salvor/problem"
)

// undoOne takes one action back; true means that there is more to do now.
func (r *Runner) undoOne(ctx context.Context, op *Definition, j *Job, log *slog.Logger) bool {
	i := op.index(j.Action)
	for i >= 0 && op.Actions[i].Undo == nil {
		i--
	}
	out := Done()
	var a *Action
	if i >= 0 {
		a = &op.Actions[i]
		if j.Action != a.Name {
			j.Action, j.ActionStartedAt = a.Name, r.now()
		}
		out = r.callUndo(ctx, j, a, log)
		if ctx.Err() != nil && out.verdict != verdictDone {
			return true
		}
	}
	if a != nil {
		out = r.lastTry(j, a, out)
		if out.verdict == verdictRetry && j.Memo[hastyMemo] != "" && !out.outage {
			out = Fail(out.err)
		}
	}
	next, keep := *j, true
	cause := r.abortOf(j)
	if cause != "" && out.verdict != verdictDone && out.verdict != verdictThen {
		out = Fail(problem.Conflictf("%s", cause))
	}
	next.countOutages(out)
	switch {
	case cause != "" && a != nil:
		keep = r.leaveUndone(op, &next, i, out, log)
	case out.outage:
		r.scheduleOutage(&next)
		keep = false
	case out.verdict == verdictRetry && !r.late(j, a):
		r.scheduleRetry(&next, out)
		keep = false
	case out.verdict == verdictPause && !r.late(j, a):
		next.Due, next.WaitFor = r.now().Add(min(out.after, MaxDelay)), out.waitFor
		keep = false
	case out.verdict == verdictPause:
		out = Fail(problem.Unavailablef("%s did not come", out.waitFor))
		keep = r.giveUp(op, &next, i, out.err, log)
	case out.verdict == verdictDone || out.verdict == verdictThen:
		keep = r.backward(op, &next, i)
	default:
		keep = r.giveUp(op, &next, i, out.err, log)
	}
	err := r.store.Do(context.WithoutCancel(ctx), func(tx Tx) error {
		return r.saveUndo(ctx, tx, op, j, &next, keep, out)
	})
	if err == nil {
		next.Fence++
		*j = next
		return keep
	}
	if errors.Is(err, ErrFenced) {
		r.forceRecheck()
		return false
	}
	log.Error("write an undo", "action", j.Action, "error", err)
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return true
}

// callUndo runs the undo of an action once.
func (r *Runner) callUndo(ctx context.Context, j *Job, a *Action, log *slog.Logger) Outcome {
	run := &Run{Job: *j, Log: log.With("undo", a.Name), runner: r}
	began := time.Now()
	within, end := r.abortable(ctx, j.ID)
	defer end()
	if j.Memo[hastyMemo] == hastyBMC {
		bounded, cancel := context.WithTimeout(within, hastyTry)
		defer cancel()
		within = bounded
	}
	out := r.call(within, a, a.Undo, run)
	*j = run.Job
	if out.verdict == verdictRetry || out.verdict == verdictPause {
		r.startDeadline(j, a, time.Since(began), out)
	}
	return out
}

// giveUp leaves an action that cannot be taken back, notes that, and goes on with the one before.
func (r *Runner) giveUp(op *Definition, next *Job, i int, why error, log *slog.Logger) bool {
	log.Error("undo", "action", op.Actions[i].Name, "error", why)
	next.noteStuck(op.Actions[i].Name, next.shown(why))
	return r.backward(op, next, i)
}

// noteStuck adds an action that could not be taken back, and why, to those before it.
func (j *Job) noteStuck(action string, why error) {
	run := Run{Job: *j}
	text := fmt.Sprintf("%q could not be taken back: %v", action, why)
	if before := run.Memo[stuckMemo]; before != "" {
		text = before + "; " + text
	}
	run.Note(stuckMemo, text)
	*j = run.Job
}

// stuckMemo lists what could not be taken back.
const stuckMemo = "stuck"

// Stuck tells what of the job could not be taken back so far; empty if all was.
func (j *Job) Stuck() string { return j.Memo[stuckMemo] }

// leaveUndone ends the undoing at an action, because somebody wants it to end: what is left is told as not taken back.
func (r *Runner) leaveUndone(op *Definition, next *Job, i int, out Outcome, log *slog.Logger) bool {
	cause := problem.Conflictf("%s", r.abortOf(next))
	if out.verdict == verdictDone || out.verdict == verdictThen {
		i--
	}
	for ; i >= 0; i-- {
		if a := &op.Actions[i]; a.Undo != nil {
			log.Warn("undo given up", "action", a.Name, "error", cause)
			next.noteStuck(a.Name, cause)
		}
	}
	r.end(next)
	return false
}

func (r *Runner) saveUndo(ctx context.Context, tx Tx, op *Definition, j, next *Job, keep bool, out Outcome) error {
	saved := *next
	if err := r.store.Save(tx, &saved, keep); err != nil {
		return err
	}
	if out.commit != nil {
		if err := out.commit(tx); err != nil {
			return err
		}
	}
	if next.State == Ended {
		if op.Failed != nil {
			if err := op.Failed(ctx, tx, next); err != nil {
				return err
			}
		}
		if why := next.Stuck(); why != "" && op.Stuck != nil {
			if err := op.Stuck(ctx, tx, next, why); err != nil {
				return err
			}
		}
	}
	return r.appendEvent(tx, j, next, out)
}

// backward moves to the action before, or ends the job.
func (r *Runner) backward(op *Definition, j *Job, i int) bool {
	j.Attempt, j.Crashes, j.Deadline, j.WaitFor = 0, 0, 0, ""
	for i--; i >= 0; i-- {
		if op.Actions[i].Undo != nil {
			j.Action, j.ActionStartedAt = op.Actions[i].Name, r.now()
			return true
		}
	}
	r.end(j)
	return false
}
