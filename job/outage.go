package job

import (
	"context"
	"sync"

	"salvor/problem"
)

// outage is what the store reports to an action: that the database did not answer one of the action's reads or transactions.
type outage struct {
	mu  sync.Mutex
	err error
}

type outageKey struct{}

// NoteOutage is called by a store when the database did not answer a read or a transaction with this context. The action that the context
// belongs to runs again later, whatever it makes of the error, so no action has to tell a database that is away from a machine that is.
// A context that has ended says nothing about the database.
func NoteOutage(ctx context.Context, err error) {
	o, ok := ctx.Value(outageKey{}).(*outage)
	if !ok || ctx.Err() != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
}

// withOutage makes a context whose outage a store notes.
func withOutage(ctx context.Context) (context.Context, *outage) {
	o := &outage{}
	return context.WithValue(ctx, outageKey{}, o), o
}

// settle replaces the outcome of an action during which the database was away: the action runs again. The notes that the action made since
// its last Commit are dropped, because they may rest on what could not be read. For the action this is as if its conductor had ended there.
func (o *outage) settle(run *Run, out Outcome) Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		run.rewind()
		return Retry(0, o.err)
	case out.verdict == verdictFail && problem.IsDatabase(out.err):
		run.rewind()
		return Retry(0, out.err)
	}
	return out
}
