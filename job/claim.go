package job

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"salvor/problem"
)

// inFlight is what this process works on. A job may be in it twice for a moment: given up, claimed again,
// and the first of the two not yet over.
type inFlight struct {
	jobs map[string]int
	// looked is when the store was last asked what it holds for us.
	looked time.Time
	// actions are under way, by their jobs: each can be cancelled. aborts are the causes of jobs that are to be aborted.
	actions map[string]*underWay
	aborts  map[string]string
}

// strayEvery is how often the store is asked for jobs that we hold and do not know of: the commit of a claim
// whose connection was cut may be carried out later than the error was told.
const strayEvery = 5 * time.Second

func (h *inFlight) add(id string) { h.jobs[id]++ }

func (h *inFlight) remove(id string) {
	if h.jobs[id]--; h.jobs[id] <= 0 {
		delete(h.jobs, id)
		delete(h.aborts, id)
	}
}

// forceRecheck has the next look for work begin with what the store may hold for us unknown to us.
func (r *Runner) forceRecheck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hand.looked = time.Time{}
}

// take gives up to free jobs to work on: those that a claim took whose answer was lost, else new ones.
// Only the claiming goroutine calls it, so that nothing comes into our hand meanwhile.
func (r *Runner) take(ctx context.Context, me Conductor, free int) ([]Job, error) {
	lost, err := r.lostClaims(ctx, me, free)
	if err != nil || len(lost) > 0 {
		return lost, err
	}
	jobs, err := r.store.Claim(ctx, me.Owner(), r.now(), me.Groups, r.kinds, free)
	if err != nil {
		r.forceRecheck()
	}
	return jobs, err
}

// lostClaims finds jobs of ours that nobody works on.
func (r *Runner) lostClaims(ctx context.Context, me Conductor, free int) ([]Job, error) {
	r.mu.Lock()
	if time.Since(r.hand.looked) < strayEvery {
		r.mu.Unlock()
		return nil, nil
	}
	// What is in our hand now may be given up while the store answers, and is no stray then.
	known := make(map[string]bool, len(r.hand.jobs))
	for id := range r.hand.jobs {
		known[id] = true
	}
	r.hand.looked = time.Now()
	r.mu.Unlock()
	held, err := r.store.Claimed(ctx, me.Owner(), len(known)+free)
	if err != nil {
		r.forceRecheck()
		return nil, err
	}
	var lost []Job
	for _, j := range held {
		if !known[j.ID] && len(lost) < free {
			r.log.Warn("this conductor holds a job that it does not work on: an answer of the database was lost", "job", j.ID, "kind", string(j.Kind), "action", j.Action)
			lost = append(lost, j)
		}
	}
	if len(lost) == free {
		r.forceRecheck() // there may be more
	}
	return lost, nil
}

// quarantineJob ends a job whose row cannot be read. Neither its actions nor their undoing can be trusted with
// what is left of it, so the subject is shown as failed, and as one that needs a human.
func (r *Runner) quarantineJob(ctx context.Context, op *Definition, next Job, log *slog.Logger) {
	log.Error("a job ends without undo: its row cannot be read", "action", next.Action, "damage", next.Damage)
	next.SetCause(problem.New(problem.Internal, "job %s (%s) was ended without undo at %q: its row cannot be read", next.ID, next.Kind, next.Action))
	next.Memo = nil
	r.endWithoutUndo(ctx, op, next, log)
}

// endWithoutUndoMemo marks an aborted job that is to end where it stands. Stored jobs hold this text.
const endWithoutUndoMemo = "set aside"

// MarkEndWithoutUndo marks a job that is to end where it stands, with its AbortCause: none of its actions is done or undone any more.
func (j *Job) MarkEndWithoutUndo() { j.addMemo(endWithoutUndoMemo, "yes") }

// EndsWithoutUndo tells whether somebody ended the job, or wants it to end, where it stands. Nobody knows what of it was done.
func (j *Job) EndsWithoutUndo() bool { return j.AbortCause != "" && j.Memo[endWithoutUndoMemo] != "" }

// endMarked ends a job that MarkEndWithoutUndo has marked. The problem of a job that was being undone stays, and the cause of the end follows.
func (r *Runner) endMarked(ctx context.Context, op *Definition, next Job, log *slog.Logger) {
	log.Warn("a job ends without undo", "action", next.Action, "cause", next.AbortCause)
	if next.Failed() {
		next.Problem += "; " + next.AbortCause
	} else {
		next.SetCause(problem.Conflictf("%s", next.AbortCause))
	}
	r.endWithoutUndo(ctx, op, next, log)
}

// endWithoutUndo ends a job without undoing anything, and shows that on its subject.
func (r *Runner) endWithoutUndo(ctx context.Context, op *Definition, next Job, log *slog.Logger) {
	next.addMemo(stuckMemo, "nothing was taken back")
	next.Attempt, next.Crashes = 0, 0
	r.end(&next)
	for shown := true; ctx.Err() == nil; {
		err := r.store.Do(context.WithoutCancel(ctx), func(tx Tx) error { return r.saveEnd(ctx, tx, op, next, shown) })
		if err == nil {
			r.watch.Ended(&next)
		}
		if err == nil || errors.Is(err, ErrFenced) {
			return
		}
		log.Error("a job that ends without undo is not stored yet", "error", err)
		// A subject that cannot show it must not keep the job.
		shown = problem.Is(err, problem.Unavailable)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (r *Runner) saveEnd(ctx context.Context, tx Tx, op *Definition, next Job, shown bool) error {
	if err := r.store.Save(tx, &next, false); err != nil {
		return err
	}
	if op.GiveUp != nil {
		if err := op.GiveUp(ctx, tx, &next); err != nil && shown {
			return err
		}
	}
	if shown && op.Failed != nil {
		if err := op.Failed(ctx, tx, &next); err != nil {
			return err
		}
	}
	if shown && op.Stuck != nil {
		if err := op.Stuck(ctx, tx, &next, next.Problem); err != nil {
			return err
		}
	}
	return r.store.Append(tx, Event{Subject: next.Subject, At: r.now(), Type: "action", Severity: "error", JobID: next.ID, Action: next.Action,
		Text: next.Problem, RequestID: next.RequestID, User: next.User})
}
