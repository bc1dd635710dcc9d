package job

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"
)

// Action is one step of an operation. It may run twice, also after its successor
// has begun elsewhere: it asks before it acts and repeats harmlessly.
type Action struct {
	Name string
	Do   func(ctx context.Context, r *Run) Outcome
	// Undo takes it back when a later action fails; it may find nothing to take back. nil: NoUndo says why.
	Undo   func(ctx context.Context, r *Run) Outcome
	NoUndo string
	// Deadline bounds all tries together, in alive time; 0 means DefaultDeadline.
	Deadline time.Duration
	// Checks: it only looks, so nothing is changed when it has succeeded.
	Checks bool
	// Elsewhere: what it asks is not the BMC, so its tries in vain say nothing of the BMC.
	Elsewhere bool
	// Since is the first version of the list that has the action, Until the last; 0: no bound. An action that is taken out
	// of a list stays in it with Until for one release, so that jobs of the release before are worked off as they began.
	Since, Until int
}

// DefaultDeadline bounds an action that names no deadline of its own.
const DefaultDeadline = 2 * time.Minute

func (a *Action) deadline() time.Duration {
	if a.Deadline > 0 {
		return a.Deadline
	}
	return DefaultDeadline
}

// Definition is the list of actions of a kind of job: an operation as data.
type Definition struct {
	Kind Kind
	// Version of the list, raised with every change of it. A conductor claims jobs of versions up to its own, and works each off
	// by the list of the job's version.
	Version int
	Class   Class
	Actions []Action
	// WaitsOn is asked in the transaction that would fail a job whose wait took too long. It returns for how much longer the job waits, in alive time,
	// and what the timeline says of that, once for each action and as an error. 0, or no WaitsOn: the job fails.
	WaitsOn func(ctx context.Context, tx Tx, j *Job) (more time.Duration, text string, err error)
	// Deadline bounds the whole of a job in alive time; 0 means no bound but those of its actions.
	Deadline time.Duration
	// NoDeadline is the reason why only its actions are bounded.
	NoDeadline string
	// GiveUp takes back what needs nobody outside, in the transaction in which a job leaves the successful course: before anything is undone.
	// It may be called again for the same job. nil: there is nothing.
	GiveUp func(ctx context.Context, tx Tx, j *Job) error
	// Failed shows the failure on the subject, in the transaction that ends the failed job, or in
	// the one that interrupts a wait that took too long. It may be called again for the same job.
	Failed func(ctx context.Context, tx Tx, j *Job) error
	// Stuck tells that undoing could not be finished: the subject needs a human.
	Stuck func(ctx context.Context, tx Tx, j *Job, why string) error
}

// Check tells what is wrong with the list itself.
func (o *Definition) Check() error {
	for _, a := range o.Actions {
		if err := o.checkVersions(a); err != nil {
			return err
		}
	}
	for version := max(o.Version-1, 1); version <= max(o.Version, 1); version++ {
		if err := o.of(version).check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Definition) check() error {
	seen := map[string]bool{}
	for _, a := range o.Actions {
		switch {
		case a.Name == "" || a.Do == nil:
			return fmt.Errorf("operation %s: an action lacks its name or its deed", o.Kind)
		case seen[a.Name]:
			return fmt.Errorf("operation %s: two actions are named %q", o.Kind, a.Name)
		case a.Undo != nil && o.Class == Background:
			return fmt.Errorf("operation %s, action %q: a background job is not undone: say why not", o.Kind, a.Name)
		case (a.Undo == nil) == (a.NoUndo == ""):
			return fmt.Errorf("operation %s, action %q: say either how it is undone or why not", o.Kind, a.Name)
		}
		seen[a.Name] = true
	}
	if len(o.Actions) == 0 {
		return fmt.Errorf("operation %s has no actions", o.Kind)
	}
	return nil
}

// index finds an action by name; the empty name is the first. -1 if there is none of that name.
func (o *Definition) index(name string) int {
	if name == "" {
		return 0
	}
	for i := range o.Actions {
		if o.Actions[i].Name == name {
			return i
		}
	}
	return -1
}

// Run is what an action sees of its job. Notes that it makes are saved with its outcome.
type Run struct {
	Job
	Log    *slog.Logger
	runner *Runner
	// stored is the job as the store has it: at the begin of the action, or after its last Commit.
	stored Job
	outage *outage
}

// rewind drops what the action has changed of the job since its last Commit.
func (r *Run) rewind() { r.Job = r.stored }

// Note keeps a fact for later actions; it is durable once the action has ended, or with Commit.
func (r *Run) Note(key, value string) { r.addMemo(key, value) }

// addMemo sets a memo. The map is not changed, because a copy of the job may share it.
func (j *Job) addMemo(key, value string) {
	memo := make(map[string]string, len(j.Memo)+1)
	maps.Copy(memo, j.Memo)
	memo[key] = value
	j.Memo = memo
}

// Commit makes the notes and fn's writes durable in the middle of an action: an
// intent that must be known before an action that cannot be repeated. After an outage of the database it writes nothing and returns the outage,
// because the action may have decided on what could not be read.
func (r *Run) Commit(ctx context.Context, fn func(Tx) error) error {
	if err := r.outage.noted(); err != nil {
		return err
	}
	err := r.runner.store.Do(ctx, func(tx Tx) error {
		if err := r.runner.store.Save(tx, &r.Job, true); err != nil {
			return err
		}
		if fn == nil {
			return nil
		}
		return fn(tx)
	})
	if err == nil {
		r.Fence++
		r.stored = r.Job
	}
	return err
}

// operationDeadline ends an operation that its actions' own deadlines do not, such as one during which conductors keep dying.
const operationDeadline = 2 * time.Hour

// WithDeadline gives each definition that names no reason for none the deadline of an operation: two hours, and longer by the longest soft
// shutdown. It changes and returns all.
func WithDeadline(all []Definition, softOff time.Duration) []Definition {
	for i := range all {
		if all[i].NoDeadline == "" {
			all[i].Deadline = operationDeadline + softOff
		}
	}
	return all
}
