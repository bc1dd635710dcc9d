package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"salvor/problem"
)

// settle writes an outcome, again and again while the store does not take it; true means that the claim goes on.
func (r *Runner) settle(ctx context.Context, op *Definition, j *Job, a *Action, out Outcome, log *slog.Logger) bool {
	for {
		goesOn, again := r.settleOnce(ctx, op, j, a, &out, log)
		if !again {
			return goesOn
		}
	}
}

// settleOnce is one try of settle. It changes the outcome to a failure where the rows refuse it.
func (r *Runner) settleOnce(ctx context.Context, op *Definition, j *Job, a *Action, result *Outcome, log *slog.Logger) (goesOn, again bool) {
	out := *result
	if ctx.Err() != nil && (out.verdict == verdictFail || out.verdict == verdictRetry) {
		return true, false // we were stopped: the outcome says nothing about the machine
	}
	out = r.lastTry(j, a, out)
	next, keep := *j, false
	next.countOutages(out)
	switch out.verdict {
	case verdictDone:
		keep = r.advance(op, &next, out)
	case verdictThen:
		r.end(&next)
	case verdictWait:
		next.State = Waiting
		if out.within == 0 {
			next.Deadline = 0 // of an earlier wait, or of tries that failed
		} else if j.WaitFor != out.waitFor || j.Deadline == 0 {
			next.Deadline = r.tick(j.Group) + seconds(out.within)
		}
		next.WaitFor, next.Attempt, next.Crashes = out.waitFor, 0, 0
		next.markRest(out.rest)
	case verdictPause:
		next.State, next.Due, next.WaitFor = Ready, r.now().Add(min(out.after, MaxDelay)), out.waitFor
		next.Attempt, next.Crashes, next.Deadline = 0, 0, 0
	case verdictRetry:
		next.State = Ready
		if out.outage {
			r.scheduleOutage(&next)
		} else {
			r.scheduleRetry(&next, out)
		}
	case verdictFail:
		keep = r.fail(&next, out.err, log)
	}
	op.noteAdvanced(&next)
	err := r.store.Do(context.WithoutCancel(ctx), func(tx Tx) error {
		saved := next
		if err := r.store.Save(tx, &saved, keep); err != nil {
			return err
		}
		if out.next != nil {
			if err := r.store.Insert(tx, out.next); err != nil {
				return err
			}
		}
		if out.commit != nil && out.verdict != verdictFail {
			if err := out.commit(tx); err != nil {
				return err
			}
		}
		if next.State == Undoing && out.verdict == verdictFail {
			show := op.giveUp
			if next.Problem == j.AbortCause {
				show = op.showFailure
			}
			if err := show(ctx, tx, &next); err != nil {
				return err
			}
		}
		if next.State == Ended && next.Failed() && op.Failed != nil {
			if err := op.Failed(ctx, tx, &next); err != nil {
				return err
			}
		}
		return r.appendEvent(tx, j, &next, out)
	})
	if err == nil {
		next.Fence++
		*j = next
		return keep, false
	}
	*result = out
	return r.unsettled(ctx, j, result, err, log)
}

// unsettled looks at why an outcome was not written.
func (r *Runner) unsettled(ctx context.Context, j *Job, out *Outcome, err error, log *slog.Logger) (goesOn, again bool) {
	switch {
	case errors.Is(err, ErrFenced):
		log.Warn("the job belongs to someone else by now, or this was written already", "action", j.Action)
		r.forceRecheck()
		return false, false
	case out.verdict != verdictFail && problem.KindOf(err) != problem.Unavailable && ctx.Err() == nil:
		// The rows refuse the outcome: that is a failure like any other.
		*out = Fail(fmt.Errorf("%s: %w", j.Action, err))
		return false, true
	}
	log.Error("write the outcome of an action", "action", j.Action, "error", err)
	select {
	case <-ctx.Done():
		return true, false
	case <-time.After(time.Second):
		return false, true
	}
}

// advance moves the job to its next action, or ends it.
func (r *Runner) advance(op *Definition, j *Job, out Outcome) bool {
	j.Attempt, j.Crashes, j.Deadline, j.WaitFor = 0, 0, 0, ""
	if out.result != nil {
		j.Result = out.result
	}
	i := op.index(j.Action) + 1
	if i >= len(op.Actions) {
		r.end(j)
		return false
	}
	j.Action, j.ActionStartedAt, j.State = op.Actions[i].Name, r.now(), Running
	return true
}

// noteAdvanced marks a job that is past an action which changes something. Jobs of the former release lack the mark until here.
func (o *Definition) noteAdvanced(j *Job) {
	if j.Advanced() {
		return
	}
	for i := range max(o.index(j.Action), 0) {
		if !o.Actions[i].Checks {
			run := Run{Job: *j}
			run.Note(advancedMemo, "yes")
			*j = run.Job
			return
		}
	}
}

// advancedMemo marks a job of which an action that changes something has succeeded.
const advancedMemo = "advanced"

// Advanced tells whether an action of the job has succeeded that does more than look.
func (j *Job) Advanced() bool { return j.Memo[advancedMemo] != "" }

func (r *Runner) end(j *Job) {
	j.State, j.EndedAt, j.WaitFor, j.Deadline = Ended, r.now(), "", 0
	j.Secret = noSecret
}

// fail ends the successful course: undo for what has actions to take back.
func (r *Runner) fail(j *Job, err error, log *slog.Logger) bool {
	log.Warn("job failed", "action", j.Action, "error", err)
	j.SetCause(j.shown(err))
	j.Secret, j.Attempt, j.Deadline, j.WaitFor = noSecret, 0, 0, ""
	if j.Class == Background {
		r.end(j)
		return false
	}
	j.State = Undoing
	return true
}

// shown is an error as users may read it: of one that nobody gave a kind, the log has the words.
func (j *Job) shown(err error) error {
	if problem.KindOf(err) == problem.Internal {
		return problem.New(problem.Internal, "internal error in action %q of job %s; the conductor's log tells more", j.Action, j.ID)
	}
	return err
}

// lastTry turns a try that no other follows into a failure.
func (r *Runner) lastTry(j *Job, a *Action, out Outcome) Outcome {
	switch most := problem.MostTries(out.err); {
	case out.verdict != verdictRetry, out.outage:
	case most > 0 && j.Attempt+1 >= most:
		out = Fail(out.err)
	case r.late(j, a):
		out = Fail(problem.New(problem.KindOf(out.err), "%s: gave up after %s: %w", j.Action, a.deadline(), out.err))
	}
	return out
}

// late tells whether the tries of an action have used up its deadline.
func (r *Runner) late(j *Job, a *Action) bool {
	return a == nil || j.Deadline > 0 && r.tick(j.Group) >= j.Deadline
}

// startDeadline starts the deadline of an action at its first try that is to be repeated, and
// counts what that try took: one that lasted as long as all may was the last.
func (r *Runner) startDeadline(j *Job, a *Action, took time.Duration, out Outcome) {
	if j.Deadline == 0 && !out.outage {
		j.Deadline = r.tick(j.Group) + seconds(max(a.deadline()-took, 0))
	}
}

// scheduleRetry makes the job claimable again after a delay that grows with the tries.
func (r *Runner) scheduleRetry(j *Job, out Outcome) {
	j.Attempt++
	after := out.after
	if after == 0 {
		after = backOff(250*time.Millisecond, j.Attempt)
	}
	// The last try is at the deadline, not a whole delay after it.
	if j.Deadline > 0 {
		after = min(after, time.Duration(max(j.Deadline-r.tick(j.Group), 0))*time.Second)
	}
	j.Due = r.now().Add(after)
	j.WaitFor = fmt.Sprintf("try %d of %q; the last one: %v", j.Attempt+1, j.Action, out.err)
}

// backOff is the pause before the next of so many tries.
func backOff(first time.Duration, tries int) time.Duration {
	return min(time.Duration(1<<min(tries, 12))*first, maxBackOff)
}

// appendEvent writes the timeline of an outcome.
func (r *Runner) appendEvent(tx Tx, j, next *Job, out Outcome) error {
	e := Event{Subject: j.Subject, At: r.now(), Type: "action", JobID: j.ID, Action: j.Action, Severity: "info", RequestID: j.RequestID, User: j.User}
	word := ""
	if j.State == Undoing {
		word = "undo "
	}
	switch {
	case j.Class == Background, (out.verdict == verdictPause || out.rest) && j.WaitFor == out.waitFor:
		return nil
	case out.outage && next.outages() > 1, out.verdict == verdictRetry && !out.outage && next.Attempt > 1:
		return nil // one line for the first failed try; the count is in the job
	case out.verdict == verdictRetry:
		e.Severity, e.Text = "error", fmt.Sprintf("%s%s: will try again: %s", word, j.Action, problem.Public(out.err))
	case out.verdict == verdictFail && j.State == Undoing:
		e.Severity, e.Text = "error", fmt.Sprintf("%s%s: failed: %s", word, j.Action, problem.Public(j.shown(out.err)))
	case out.verdict == verdictFail:
		e.Severity, e.Text = "error", fmt.Sprintf("%s%s: failed: %v", word, j.Action, next.Problem)
	case out.verdict == verdictWait, out.verdict == verdictPause:
		e.Text = fmt.Sprintf("%s%s: waits for %s", word, j.Action, out.waitFor)
	default:
		e.Text, e.Duration = word+j.Action, r.now().Sub(j.ActionStartedAt)
	}
	return r.store.Append(tx, e)
}

func (r *Runner) save(ctx context.Context, j *Job, keep bool) error {
	if j.State == Running && !keep {
		j.State = Ready
	}
	return r.store.Do(ctx, func(tx Tx) error {
		saved := *j
		return r.store.Save(tx, &saved, keep)
	})
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// restMemo marks a job whose wait is no failure when its time is over.
const restMemo = "rest"

// Rests tells whether the end of the job's wait is no failure.
func (j *Job) Rests() bool { return j.State == Waiting && j.Memo[restMemo] != "" }

// markRest sets the mark. The map is not changed: it may be shared with a copy of the job.
func (j *Job) markRest(on bool) {
	if on == (j.Memo[restMemo] != "") {
		return
	}
	memo := maps.Clone(j.Memo)
	if memo == nil {
		memo = map[string]string{}
	}
	if delete(memo, restMemo); on {
		memo[restMemo] = "yes"
	}
	j.Memo = memo
}
