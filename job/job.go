// Package job holds durable units of work: what a job is, how it goes forward,
// waits, fails, is undone and survives the death of whoever runs it. It knows no
// SQL, no machine and no HTTP; stores keep its rows, the conductor gives it
// operations, and subjects are only a kind and an id to it.
package job

import (
	"context"
	"encoding/json"
	"time"

	"salvor/problem"
	"salvor/secret"
)

// Kind names an operation: "rescue", "power". Class says how its jobs share a subject.
type (
	Kind  string
	Class string
	State string
)

const (
	// Operation changes what a subject is; at most one unended operation a subject.
	Operation Class = "operation"
	// Command is short and locks the subject, but may run beside a waiting operation.
	Command Class = "command"
	// Background takes no lock, so it runs beside operations and commands. A background job reads, as a question to a BMC does, asks for operations, as
	// a repair asks for a rescue, or does what needs no lock, as a readmission gives a host its volumes back. None of its actions has an undo, and its
	// failure ends it at once. It may have a record of its own, such as a diagnosis, which its definition's Failed must end. It writes no events of its
	// actions. Rows and the API call the class "ask".
	Background Class = "ask"
)

const (
	// Ready to be claimed (when its owner is empty and its time has come).
	Ready State = "ready"
	// Running: claimed by an owner. Ready, Running and Undoing of an operation or a command are the subject's lock.
	Running State = "running"
	// Waiting for a signal or its deadline; holds no lock.
	Waiting State = "waiting"
	// Undoing: takes back its actions from Action downwards; claimable like Ready when it has no owner.
	Undoing State = "undoing"
	// Ended: nothing more happens. Problem tells whether it failed.
	Ended State = "ended"
)

// Subject is what a job works on: a node, a host, a server.
type Subject struct{ Kind, ID string }

// Node is the subject of a node's jobs.
func Node(id string) Subject { return Subject{"node", id} }

// Job is one row of work.
type Job struct {
	ID      string
	Kind    Kind
	Version int // of the operation's list of actions
	Class   Class
	Subject Subject
	Group   string // conductor group whose conductors may claim it
	State   State

	// Action is the name of the action to do, or to undo, next. Empty at the start of an operation.
	Action string
	// Attempt counts failed tries of Action; Crashes counts owners that died during it.
	Attempt, Crashes int
	Args             json.RawMessage   // what was asked
	Memo             map[string]string // what earlier actions noted for later ones
	Secret           secret.Value      // sealed at rest; NULL by constraint in Undoing and Ended
	Result           json.RawMessage   // of an ended background job or command
	Problem          string            // why it failed; empty = no failure
	ProblemKind      string            // problem.Kind's name

	// Owner is the conductor's incarnation that holds the claim. Fence counts claims and what their owners wrote, so
	// that nothing takes effect twice, even where the answer to a commit was lost.
	Owner string
	Fence int64
	// Signals counts signals ever sent to this job; Seen is its value when the claim was made.
	// Parking compares them in the store, so a signal between look and park is not lost.
	Signals, Seen int64

	// Due is when it may be claimed. WaitFor says what a Waiting job waits for, in words.
	Due     time.Time
	WaitFor string
	// Deadline of the wait or of the action's tries, in alive ticks of the group; 0 = none.
	Deadline int64
	// OperationDeadline of the whole job in alive ticks; 0 = none.
	OperationDeadline                              int64
	RequestID, User                                string
	CreatedAt, UpdatedAt, ActionStartedAt, EndedAt time.Time

	// AbortCause is why somebody wants the job aborted, whoever works on it; empty: nobody does. It takes effect once: the job's
	// problem is the same text then.
	AbortCause string

	// Damage says what of the row could not be read; no action can be trusted with such a job. Empty: all was read.
	Damage string
}

// Locks reports whether the job holds its subject now.
func (j *Job) Locks() bool {
	return j.Class != Background && (j.State == Ready || j.State == Running || j.State == Undoing)
}

// Failed reports whether the job ended, or is being undone, because of a problem.
func (j *Job) Failed() bool { return j.Problem != "" }

// Tx is an open transaction of a store. Only the store that opened it can look
// inside, so rooms that must not know SQL can hand it from one to another.
type Tx interface{ OpaqueTx() }

// Transactor opens write transactions.
type Transactor interface {
	// Do runs fn in one transaction and commits it if fn returns nil. fn does
	// nothing but store calls and may be run again from the start. Once fn has
	// begun, a cancelled ctx no longer stops the commit.
	Do(ctx context.Context, fn func(Tx) error) error
}

// Queue is where other rooms put work and find it.
type Queue interface {
	// Insert adds a job (ID, times and Due are filled in where empty). A second lock or a
	// second unended operation on the subject is problem.Conflict, told by the store's unique indexes.
	Insert(tx Tx, j *Job) error
	// Unended lists the subject's jobs that have not ended: operations first, then commands, then background jobs.
	Unended(tx Tx, s Subject) ([]Job, error)
	// Signal tells the subject's waiting operation that a row it may wait for has changed: it becomes
	// Ready, or, while another job locks the subject, it only counts the signal and Revive makes it Ready later.
	Signal(tx Tx, s Subject) error
	// Interrupt swaps a Waiting job to Undoing or Ended with the problem, clearing its secret; problem.Conflict if it
	// is not Waiting any more or the subject is locked: who swaps first wins.
	Interrupt(tx Tx, id string, to State, cause error) error
	// Abort has the job fail with the cause, whether it waits, waits for its next try or is at work: whoever holds it stops its action.
	// Of a job that is being undone already, what is left of the undoing is given up. problem.Conflict if it has ended.
	Abort(tx Tx, j Job, cause string) error
	// RetryNow has the next try of the subject's job come at once, if the job tries again and again.
	RetryNow(tx Tx, s Subject) error
	// Place counts the jobs of the group that wait for a conductor before and beside this one; nil if this one does not wait for one.
	Place(ctx context.Context, j Job) (*Place, error)
	// Job reads one job; a nil tx reads outside of any transaction. problem.NotFound if there is none.
	Job(ctx context.Context, tx Tx, id string) (Job, error)
}

// Place is the position of a job in the queue of its group: the jobs that are due and that no conductor has claimed.
type Place struct {
	// Before counts the jobs in the queue that were due earlier; Waiting counts the whole queue with the job itself.
	Before, Waiting int
	// Running counts the jobs of the group that conductors have claimed.
	Running int
	// Limit is [conductor]backlog_limit: beyond it new operations are refused; 0: there is no bound.
	Limit int
	// Due is the time for which the job has been due.
	Due time.Duration
}

// Full tells whether all conductors of the group must be busy, because a free one would have claimed the job by now.
func (p *Place) Full() bool { return p.Running > 0 && p.Due > fullAfter }

// fullAfter is the time in which a free conductor surely claims a due job.
const fullAfter = 3 * time.Second

// Claims is what the runner needs of a store beside Queue.
type Claims interface {
	// Claim takes up to limit jobs for the owner: Ready or Undoing, unowned, due at now, of the groups and of the kinds
	// (name -> newest version known). Fence is raised, Seen becomes Signals, Ready becomes Running. Oldest due first.
	// A row that cannot be read is claimed too, with its Damage. After an error jobs may have been claimed all the same: see Claimed.
	Claim(ctx context.Context, owner string, now time.Time, groups []string, kinds map[Kind]int, limit int) ([]Job, error)
	// Aborted gives the causes of the owner's jobs that are to be aborted and do not show it yet, by their ids.
	Aborted(ctx context.Context, owner string) (map[string]string, error)
	// Claimed lists up to limit jobs that the owner holds, whether it knows that or not.
	Claimed(ctx context.Context, owner string, limit int) ([]Job, error)
	// Save writes the claimed job's state, action, attempt, memo, secret, problem, times and owner WHERE id, j.Owner's claim and
	// fence still hold, else ErrFenced. The row's fence is raised; once it is committed, j's is too low by one, and it is the
	// caller's to raise. keep=false gives the claim up (owner NULL). A job saved as Waiting becomes
	// Ready instead if a signal came since the claim. After a lock is given up it revives signalled waiters of the subject.
	Save(tx Tx, j *Job, keep bool) error
	// Expired lists up to limit Waiting jobs of the groups and kinds whose Deadline or OperationDeadline is at or before the
	// group's ticks: the first after a job of an earlier answer, or from the beginning where that is the zero Job.
	Expired(ctx context.Context, groups []string, kinds map[Kind]int, after Job, limit int) ([]Job, error)
	// WaitOn stores a new deadline, in ticks, and j's memo for a job whose wait goes on. problem.Conflict: the job is not as j was read any more: it does not wait,
	// or its fence or deadline is another one.
	WaitOn(tx Tx, j *Job, deadline int64) error
	// NextDue is the time of the earliest unowned claimable job of the groups and kinds; the zero time if there is none.
	NextDue(ctx context.Context, groups []string, kinds map[Kind]int) (time.Time, error)
	// RescheduleEarlier makes due at now what is free to be claimed and due later than after. Nothing is harmed by a try that comes early.
	RescheduleEarlier(ctx context.Context, now, after time.Time, groups []string) (int, error)
}

// Clock is the group's count of alive seconds, for deadlines, and the time of day that all who share the store go by.
type Clock interface {
	// Now is what due times are told and compared by.
	Now() time.Time
	// Ticks reads the groups' counters (0 where none yet).
	Ticks(ctx context.Context, groups []string) (map[string]int64, error)
	// Advance adds one to each group's counter if it still is what the caller saw.
	Advance(ctx context.Context, seen map[string]int64) error
}

// Conductor is a process that runs jobs, as its row tells.
type Conductor struct {
	ID                   string // of its state directory, for good
	Incarnation          string // of this start
	Hostname             string
	Groups               []string
	Counter              int64           // bumped every second while it lives
	Description          json.RawMessage // metal.Catalog of its hardware types
	StartedAt, UpdatedAt time.Time
}

// Owner is what a conductor writes into the jobs that it claims.
func (c *Conductor) Owner() string { return c.ID + "/" + c.Incarnation }

// Leases keeps the conductors' rows.
type Leases interface {
	// Register inserts or replaces the conductor's row and frees the jobs of its former incarnations
	// (the caller holds the state directory's lock, so they are dead).
	Register(ctx context.Context, c Conductor) error
	// RenewLease raises the counter of this incarnation; ErrFenced if the row belongs to another one or is gone.
	RenewLease(ctx context.Context, c Conductor) error
	// Conductors lists all rows, by host name.
	Conductors(ctx context.Context) ([]Conductor, error)
	// Retire removes the row if it still is of this incarnation, and frees its jobs: a crash is counted on each, and what was Running is Ready.
	// With a counter it is Conflict if the conductor has beaten beyond it: it lives.
	Retire(ctx context.Context, c Conductor) error
	// ReleaseOrphans frees, as Retire does, the jobs whose owner has no row: a claim may be committed after the end of the incarnation
	// in whose name it was begun. It returns how many.
	ReleaseOrphans(ctx context.Context) (int, error)
}

// Event is one row of a subject's timeline.
type Event struct {
	Subject   Subject
	Seq       int64 // the subject's own counter, from 1; the store gives it
	Num       int64 // its place among the events of all subjects; given by Feed alone
	At        time.Time
	Type      string // "state", "action", "contact", "request"
	Text      string // for people, no secret in it
	Severity  string // "info", "warning" or "error"
	JobID     string
	Action    string
	Duration  time.Duration // of an ended action
	RequestID string
	User      string
}

// Timeline keeps events.
type Timeline interface {
	// Append adds an event; Seq and an empty At are given by the store.
	Append(tx Tx, e Event) error
	// Events lists a subject's events with Seq > after, oldest first.
	Events(ctx context.Context, s Subject, after int64, limit int) ([]Event, error)
	// Latest lists a subject's newest events, at most limit, oldest first.
	Latest(ctx context.Context, s Subject, limit int) ([]Event, error)
	// Prune removes events older than before, and of each subject all but the newest keep (0: no bound), of which those younger than
	// spare stay. It returns how many. A store may let those that
	// lie in one week with younger ones stay for that week.
	Prune(ctx context.Context, before, spare time.Time, keep int) (int, error)
}

// Waker tells when new work may be there: a hint over polling.
type Waker interface {
	// Woken gives a channel that gets a value (coalesced) after a commit that made a job claimable.
	Woken() <-chan struct{}
}

// Store is all that a store must do for jobs.
type Store interface {
	Transactor
	Queue
	Claims
	Clock
	Leases
	Timeline
	Waker
}

// Cause turns the stored problem back into an error of its kind; nil if there is none.
func (j *Job) Cause() error {
	if j.Problem == "" {
		return nil
	}
	return problem.New(problem.ParseKind(j.ProblemKind), "%s", j.Problem)
}

// SetCause stores why the job failed, in words for the user.
func (j *Job) SetCause(err error) {
	j.Problem, j.ProblemKind = problem.Public(err), problem.KindOf(err).String()
}
