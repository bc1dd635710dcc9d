package job

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"
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

// noted is the first outage that a store reported; nil: there was none.
func (o *outage) noted() error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// settle replaces the outcome of an action during which the database was away: the action runs again. The notes that the action made since
// its last Commit are dropped, because they may rest on what could not be read. For the action this is as if its conductor had ended there.
// An error with the mark problem.Database is not enough for that: a read has the mark also when the action's own time was over, as after a request to
// a hung machine.
func (o *outage) settle(run *Run, out Outcome) Outcome {
	if err := o.noted(); err != nil {
		run.rewind()
		return Outcome{verdict: verdictRetry, err: err, outage: true}
	}
	return out
}

// outagesMemo counts the outages in a row that an action met.
const outagesMemo = "outages"

// outages is how many outages in a row the job's action met.
func (j *Job) outages() int {
	n, _ := strconv.Atoi(j.Memo[outagesMemo])
	return n
}

// countOutages counts an outage, and begins anew at each other outcome.
func (j *Job) countOutages(out Outcome) {
	switch {
	case out.outage:
		j.addMemo(outagesMemo, strconv.Itoa(j.outages()+1))
	case j.Memo[outagesMemo] != "":
		j.Memo = maps.Clone(j.Memo)
		delete(j.Memo, outagesMemo)
	}
}

// scheduleOutage makes the job claimable again after an outage. An outage says nothing about the machine, so it is no try, and the deadline of the tries
// begins anew after it: no operation fails because the database was slow for long. A wait goes on: its words and its deadline stay.
func (r *Runner) scheduleOutage(j *Job) {
	if waits := j.State != Undoing && j.Attempt == 0 && j.Deadline > 0; !waits {
		j.Deadline, j.WaitFor = 0, fmt.Sprintf("another try of %q: the database did not answer", j.Action)
	}
	const first = 25 * time.Millisecond // most often one connection was cut, and the next one is good
	j.Due = r.now().Add(backOff(first, j.outages()))
}
