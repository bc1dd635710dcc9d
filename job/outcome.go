package job

import (
	"encoding/json"
	"errors"
	"time"

	"salvor/problem"
)

// ErrFenced: the job belongs to somebody else by now; nothing of this owner counts any more.
var ErrFenced = errors.New("job: claim is void")

type verdict int

const (
	verdictDone verdict = iota
	verdictWait
	verdictRetry
	verdictFail
	verdictThen
	verdictPause
)

// Outcome is how an action ended. The set is closed: Done, Wait, Rest, Pause, Retry, Fail, Then.
type Outcome struct {
	verdict verdict
	commit  func(Tx) error
	waitFor string
	rest    bool // the end of within is what is waited for
	within  time.Duration
	after   time.Duration
	err     error
	outage  bool // the database was away, so the outcome says nothing of the machine
	next    *Job
	result  json.RawMessage
}

// Done goes on to the next action; after the last the job ends well. The commits
// run in the same transaction.
func Done(commits ...func(Tx) error) Outcome {
	return Outcome{verdict: verdictDone, commit: all(commits)}
}

// Answer ends an ask or a command with a result; an operation it moves on like Done.
func Answer(v any, commits ...func(Tx) error) Outcome {
	b, err := json.Marshal(v)
	if err != nil {
		return Fail(err)
	}
	return Outcome{verdict: verdictDone, commit: all(commits), result: b}
}

// Wait parks the job until a signal, then runs the same action again. within counts
// alive time from the first parking of this action; 0 = no bound. what ends the
// sentence "waits for ...".
func Wait(what string, within time.Duration, commits ...func(Tx) error) Outcome {
	return Outcome{verdict: verdictWait, commit: all(commits), waitFor: what, within: within}
}

// Rest is a Wait whose end is no failure: the same action runs again when within is over, or at a signal before that.
// The subject is free meanwhile.
func Rest(what string, within time.Duration, commits ...func(Tx) error) Outcome {
	return Outcome{verdict: verdictWait, commit: all(commits), waitFor: what, within: within, rest: true}
}

// Pause runs the same action again after a time, with the subject locked meanwhile: for what
// goes on outside and tells nobody of its end. It counts as no try and has no deadline, except in an undo, which has its
// action's. what ends the sentence "waits for ...".
func Pause(after time.Duration, what string, commits ...func(Tx) error) Outcome {
	return Outcome{verdict: verdictPause, after: after, waitFor: what, commit: all(commits)}
}

// Retry runs the same action again later; err is shown meanwhile. The action's
// deadline bounds all of its tries together.
func Retry(after time.Duration, err error) Outcome {
	return Outcome{verdict: verdictRetry, after: after, err: err}
}

// Fail ends the successful course: the job's actions are undone from this one back.
func Fail(err error) Outcome { return Outcome{verdict: verdictFail, err: err} }

// From turns an error into an outcome: none is Done, Unavailable is tried again
// with growing delay until the action's deadline, all else fails.
func From(err error, commits ...func(Tx) error) Outcome {
	switch {
	case err == nil:
		return Done(commits...)
	case problem.Is(err, problem.Unavailable):
		return Retry(0, err)
	}
	return Fail(err)
}

// Then ends this job well and inserts the next in the same transaction.
func Then(next *Job, commits ...func(Tx) error) Outcome {
	return Outcome{verdict: verdictThen, next: next, commit: all(commits)}
}

// With adds commits to an outcome. They run after its own, and not where the action failed or is tried again.
func (o Outcome) With(commits ...func(Tx) error) Outcome {
	if o.verdict != verdictFail && o.verdict != verdictRetry {
		o.commit = all(append([]func(Tx) error{o.commit}, commits...))
	}
	return o
}

func all(fns []func(Tx) error) func(Tx) error {
	return func(tx Tx) error {
		for _, fn := range fns {
			if fn == nil {
				continue
			}
			if err := fn(tx); err != nil {
				return err
			}
		}
		return nil
	}
}
