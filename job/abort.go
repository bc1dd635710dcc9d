package job

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"salvor/problem"
)

const (
	// abortEvery is how often a conductor asks which of its jobs are to be aborted.
	abortEvery = time.Second / 2
	// hastyMemo marks a job that was aborted while it tried again and again: whoever it asks does not answer, so each of its undos is
	// tried once. With hastyBMC that is the BMC, which most undos ask, and each gets hastyTry.
	hastyMemo = "hasty"
	hastyBMC  = "yes"
	hastyOnce = "once"
	hastyTry  = 1500 * time.Millisecond
	// hastyCut marks a job that was aborted otherwise, so nobody knows whether the BMC answers. An undo of a job under hastyCut or hastyOnce,
	// unless it works elsewhere, is cut off after silentTry without an answer. hastySilent marks the job then: later undos get silentNext.
	hastyCut    = "cut"
	hastySilent = "silent"
	silentTry   = 2500 * time.Millisecond
	silentNext  = time.Second / 2
)

// errSilent is the cause of the end of an undo's context when the BMC has not answered in time.
var errSilent = errors.New("no answer")

type progressKey struct{}

// ReportProgress tells the undo of an aborted job that the BMC has answered a request, so that its time begins anew. Other work ignores it.
func ReportProgress(ctx context.Context) {
	if fn, ok := ctx.Value(progressKey{}).(func()); ok {
		fn()
	}
}

// boundUndo gives the context in which an undo of an aborted job runs, by the job's hastyMemo. If the context ends because nobody answered,
// its cause is errSilent.
func boundUndo(ctx context.Context, j *Job, a *Action) (context.Context, context.CancelFunc) {
	switch mode := j.Memo[hastyMemo]; {
	case mode == hastyBMC:
		return context.WithTimeout(ctx, hastyTry)
	case a.Elsewhere || mode == "":
		return ctx, func() {}
	case mode == hastySilent:
		return context.WithTimeoutCause(ctx, silentNext, errSilent)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	silence := time.AfterFunc(silentTry, func() { cancel(errSilent) })
	ctx = context.WithValue(ctx, progressKey{}, func() {
		if silence.Stop() {
			silence.Reset(silentTry)
		}
	})
	return ctx, func() { silence.Stop(); cancel(nil) }
}

// errAborted is why the context of an action ends whose job is aborted.
var errAborted = errors.New("the job is aborted")

// underWay is an action that an abort can cancel.
type underWay struct{ cancel context.CancelCauseFunc }

// abortable gives a context for an action of the job, which ends with an abort; end releases it.
func (r *Runner) abortable(ctx context.Context, id string) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &underWay{cancel}
	r.mu.Lock()
	r.hand.actions[id] = a
	r.mu.Unlock()
	return ctx, func() {
		r.mu.Lock()
		if r.hand.actions[id] == a {
			delete(r.hand.actions, id)
		}
		r.mu.Unlock()
		cancel(nil)
	}
}

// abortOf tells why the job is to be aborted now; empty if it is not, or if it is being undone because of that.
func (r *Runner) abortOf(j *Job) string {
	r.mu.Lock()
	if cause := r.hand.aborts[j.ID]; cause != "" {
		j.AbortCause = cause
	}
	r.mu.Unlock()
	if j.AbortCause == j.Problem {
		return ""
	}
	return j.AbortCause
}

// abort fails a job because somebody wants that.
func (r *Runner) abort(ctx context.Context, op *Definition, j *Job, a *Action, cause string, log *slog.Logger) bool {
	run, who := Run{Job: *j}, hastyCut
	switch {
	case j.Attempt > 0 && a.Elsewhere:
		who = hastyOnce
	case j.Attempt > 0:
		who = hastyBMC
	}
	run.Note(hastyMemo, who)
	*j = run.Job
	return r.settle(ctx, op, j, a, Fail(problem.Conflictf("%s", cause)), log)
}

// watchAborts cancels the actions of jobs that somebody aborted.
func (r *Runner) watchAborts(ctx context.Context) {
	every(ctx, abortEvery, func() {
		r.mu.Lock()
		busy, owner := len(r.hand.jobs) > 0, r.me.Owner()
		r.mu.Unlock()
		if !busy {
			return
		}
		bounded, done := context.WithTimeout(ctx, lookTime)
		aborted, err := r.store.Aborted(bounded, owner)
		done()
		if err != nil {
			if ctx.Err() == nil {
				r.log.Error("look for jobs that are to be aborted", "error", err)
			}
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for id, cause := range aborted {
			if r.hand.jobs[id] == 0 || r.hand.aborts[id] == cause {
				continue
			}
			r.hand.aborts[id] = cause
			if a := r.hand.actions[id]; a != nil {
				a.cancel(errAborted)
			}
		}
	})
}

// giveUp takes back what needs nobody outside.
func (o *Definition) giveUp(ctx context.Context, tx Tx, j *Job) error {
	if o.GiveUp == nil {
		return nil
	}
	return o.GiveUp(ctx, tx, j)
}

// showFailure gives up and shows the failure before anything is undone.
func (o *Definition) showFailure(ctx context.Context, tx Tx, j *Job) error {
	if err := o.giveUp(ctx, tx, j); err != nil || o.Failed == nil {
		return err
	}
	return o.Failed(ctx, tx, j)
}
