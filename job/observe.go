package job

import "context"

// Observer is told of what a runner does, for those who watch. It must not take long and cannot fail.
type Observer interface {
	// Action is told of a run of an action right before it; ctx as it is returned goes to the action. ended is told of its outcome
	// in a word: done, wait, retry, fail, then or pause; undo of an action is told of by the job's state.
	Action(ctx context.Context, j *Job) (_ context.Context, ended func(outcome string))
	// Ended is told of a job that has ended here.
	Ended(j *Job)
}

// Unobserved is the Observer of nobody.
type Unobserved struct{}

// Action does nothing.
func (Unobserved) Action(ctx context.Context, _ *Job) (context.Context, func(string)) {
	return ctx, func(string) {}
}

// Ended does nothing.
func (Unobserved) Ended(*Job) {}

// verdictNames of outcomes, for observers.
var verdictNames = map[verdict]string{
	verdictDone: "done", verdictWait: "wait", verdictRetry: "retry", verdictFail: "fail", verdictThen: "then", verdictPause: "pause",
}

type workKey struct{}

// InWork marks a context as one of work on a job, which whoever logs finds in it.
func InWork(ctx context.Context, j *Job) context.Context {
	return context.WithValue(ctx, workKey{}, [3]string{j.ID, string(j.Kind), j.RequestID})
}

type stepKey struct{}

// ForSteps marks a context as work on claimed jobs.
func ForSteps(ctx context.Context) context.Context { return context.WithValue(ctx, stepKey{}, true) }

// IsStep tells whether a context is work on a claimed job. The store serves leases, claims and heartbeats before it.
func IsStep(ctx context.Context) bool { return ctx.Value(stepKey{}) != nil }

// WorkOf gives the id and the kind of the job of a context, and the id of the request that asked for it; empty: there is none.
func WorkOf(ctx context.Context) (id, kind, requestID string) {
	work, _ := ctx.Value(workKey{}).([3]string)
	return work[0], work[1], work[2]
}

type beforeReadKey struct{}

// WithBeforeRead has a store call before ahead of each read outside of a transaction with this context, and fail the read with the error that
// before returns. It is for tests: the contexts of a program never have it.
func WithBeforeRead(ctx context.Context, before func(context.Context) error) context.Context {
	return context.WithValue(ctx, beforeReadKey{}, before)
}

// BeforeRead is what a store calls before a read outside of a transaction.
func BeforeRead(ctx context.Context) error {
	if before, ok := ctx.Value(beforeReadKey{}).(func(context.Context) error); ok {
		return before(ctx)
	}
	return nil
}
