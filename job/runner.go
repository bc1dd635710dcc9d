package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"salvor/problem"
)

// Config is what a Runner is made of.
type Config struct {
	Store       Store
	Definitions []Definition
	Conductor   Conductor
	// Workers bounds how many jobs run at once.
	Workers int
	// Leased tells that other conductors may share the store; false where a file lock makes that impossible.
	Leased bool
	// Now replaces the store's clock.
	Now func() time.Time
	Log *slog.Logger
	// Observer is told of actions and of the ends of jobs; nil: nobody is.
	Observer Observer
	// Die ends the process when an action will not end: crash only.
	Die func(why string)
}

// Runner claims jobs and works their actions off, one at a time each.
type Runner struct {
	store   Store
	ops     map[Kind]*Definition
	kinds   map[Kind]int
	me      Conductor
	leased  bool
	now     func() time.Time
	log     *slog.Logger
	die     func(string)
	watch   Observer
	slots   chan struct{}
	nudge   chan struct{}
	working sync.WaitGroup

	mu       sync.Mutex
	lastBeat time.Time // on the monotonic clock
	// lastClaim is when the claim loop last came round, on the monotonic clock.
	lastClaim time.Time
	ticks     map[string]int64
	abandon   context.CancelFunc // cancels every running action
	epoch     context.Context
	closing   bool // the end of the epoch is the end of the runner
	hand      inFlight
	draining  bool // actions come to their end, and no other begins
}

const (
	beatEvery  = time.Second
	selfStop   = 5 * time.Second // without a beat we stop ourselves
	peerDead   = 7 * time.Second // without a beat of theirs, peers free their jobs
	overrun    = 30 * time.Second
	lookTime   = 5 * time.Second // a look that the store did not answer by then was sent into a void, and is sent again
	maxBackOff = 30 * time.Second
	// MaxDelay is how far ahead a due time may lie; what lies further was written by a clock that was wrong.
	MaxDelay    = 15 * time.Minute
	crashLimit  = 4
	idlePoll    = time.Second
	takenPause  = 20 * time.Millisecond // after a look at work that others were about to take
	claimAtOnce = 64
)

// NewRunner checks the operations and makes a runner.
func NewRunner(c Config) (*Runner, error) {
	r := &Runner{
		store: c.Store, ops: map[Kind]*Definition{}, kinds: map[Kind]int{}, me: c.Conductor, leased: c.Leased,
		now: c.Now, log: c.Log, die: c.Die, slots: make(chan struct{}, c.Workers), nudge: make(chan struct{}, 1),
		ticks: map[string]int64{}, hand: inFlight{jobs: map[string]int{}, actions: map[string]*underWay{}, aborts: map[string]string{}},
	}
	if r.now == nil {
		r.now = c.Store.Now
	}
	if r.watch = c.Observer; r.watch == nil {
		r.watch = Unobserved{}
	}
	for i := range c.Definitions {
		op := &c.Definitions[i]
		if err := op.Check(); err != nil {
			return nil, err
		}
		if r.ops[op.Kind] != nil {
			return nil, fmt.Errorf("two operations are named %s", op.Kind)
		}
		r.ops[op.Kind], r.kinds[op.Kind] = op, op.Version
	}
	return r, nil
}

// Run works until ctx ends, then lets running actions come to an end within grace and
// hands over what is left. Join comes first.
func (r *Runner) Run(ctx context.Context, grace time.Duration) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){r.keepLease, r.keepTime, r.watchWaits, r.watchClock, r.watchAborts} {
		loops.Go(func() { loop(background) })
	}
	r.claimLoop(ctx)
	r.drain(grace)
	stop()
	loops.Wait()
	bounded, done := context.WithTimeout(context.WithoutCancel(ctx), selfStop)
	defer done()
	return r.store.Retire(bounded, r.me)
}

// Join registers this incarnation, which frees the jobs of the former ones, and opens a new epoch for actions.
func (r *Runner) Join(ctx context.Context) error {
	began := time.Now()
	if err := r.store.Register(ctx, r.me); err != nil {
		return fmt.Errorf("register conductor %s: %w", r.me.Hostname, err)
	}
	ticks, err := r.store.Ticks(ctx, r.me.Groups)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticks, r.lastBeat = ticks, began
	r.epoch, r.abandon = context.WithCancel(ForSteps(context.WithoutCancel(ctx)))
	return nil
}

func (r *Runner) stopActions() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandon()
}

// Alive tells whether this conductor may still act on the outside: its lease must
// hold a little longer than a request lasts. Transports ask it before each request.
func (r *Runner) Alive() error {
	if !r.leased {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.lastBeat) > selfStop-beatEvery || r.epoch.Err() != nil {
		return problem.Unavailablef("this conductor's lease is running out: nothing is sent")
	}
	return nil
}

// SinceClaim is how long ago the claim loop last came round; zero: Run has not begun to claim. Minutes mean that the loop hangs.
func (r *Runner) SinceClaim() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastClaim.IsZero() {
		return 0
	}
	return time.Since(r.lastClaim)
}

func (r *Runner) markClaim() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastClaim = time.Now()
}

// claimLoop hands claimed jobs to goroutines until ctx ends.
func (r *Runner) claimLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.store.Woken():
		case <-r.nudge:
		}
		wait := r.claim(ctx)
		timer.Reset(wait)
	}
}

// claim takes what it can and says how long to wait before the next look.
func (r *Runner) claim(ctx context.Context) time.Duration {
	var asked time.Time
	for {
		r.markClaim()
		free := min(cap(r.slots)-len(r.slots), claimAtOnce)
		if free <= 0 {
			return idlePoll
		}
		r.mu.Lock()
		epoch, me := r.epoch, r.me
		r.mu.Unlock()
		if epoch.Err() != nil {
			return idlePoll // the lease is lost: the next incarnation claims
		}
		asked = r.now()
		bounded, done := context.WithTimeout(ctx, lookTime)
		jobs, err := r.take(bounded, me, free)
		done()
		if err != nil {
			if ctx.Err() == nil {
				r.log.Error("claim jobs", "error", err)
			}
			return idlePoll
		}
		for _, j := range jobs {
			r.begin(epoch, j)
		}
		if len(jobs) < free {
			break
		}
	}
	bounded, done := context.WithTimeout(ctx, lookTime)
	due, err := r.store.NextDue(bounded, r.me.Groups, r.kinds)
	done()
	if err != nil || due.IsZero() {
		return idlePoll
	}
	if !due.After(asked) { // somebody's claim of it is not committed yet
		return takenPause
	}
	return min(max(due.Sub(r.now()), time.Millisecond), idlePoll)
}

// begin hands a claimed job to a goroutine, unless the lease was lost meanwhile: then
// the job waits for the next incarnation, which frees what this one still holds.
func (r *Runner) begin(epoch context.Context, j Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if epoch.Err() != nil {
		return
	}
	r.slots <- struct{}{}
	r.hand.add(j.ID)
	r.working.Go(func() {
		defer func() {
			r.mu.Lock()
			r.hand.remove(j.ID)
			r.mu.Unlock()
			<-r.slots
			select {
			case r.nudge <- struct{}{}:
			default:
			}
		}()
		r.work(epoch, j)
	})
}

// work goes on with a claimed job until it gives the claim up.
func (r *Runner) work(ctx context.Context, j Job) {
	log := r.log.With("job", j.ID, "kind", string(j.Kind), j.Subject.Kind, j.Subject.ID)
	if j.RequestID != "" {
		log = log.With("request_id", j.RequestID)
	}
	op := r.ops[j.Kind].of(j.Version)
	if j.Damage != "" {
		r.quarantineJob(ctx, op, j, log)
		return
	}
	if j.EndsWithoutUndo() {
		r.endMarked(ctx, op, j, log)
		return
	}
	if r.throttled(ctx, &j) {
		return
	}
	for ctx.Err() == nil && !r.drains() {
		var again bool
		if j.State == Undoing {
			again = r.undoOne(ctx, op, &j, log)
		} else {
			again = r.doOne(ctx, op, &j, log)
		}
		if !again {
			if j.State == Ended {
				r.watch.Ended(&j)
			}
			return
		}
	}
	// Stopped before or in the middle of an action: whoever claims it next begins that again.
	_ = r.save(context.WithoutCancel(ctx), &j, false)
}

// throttled delays a job whose owners keep dying, once more for each crash beyond the limit.
func (r *Runner) throttled(ctx context.Context, j *Job) bool {
	mark := fmt.Sprint(j.Action, " ", j.Crashes)
	if j.Crashes < crashLimit || j.AbortCause != "" || j.Memo["held"] == mark {
		return false
	}
	run := Run{Job: *j, runner: r}
	run.Note("held", mark)
	*j = run.Job
	if j.State == Running {
		j.State = Ready
	}
	j.Due = r.now().Add(time.Duration(1<<min(j.Crashes-crashLimit, 6)) * 10 * time.Second)
	j.WaitFor = fmt.Sprintf("a pause: %d conductors ended during %q", j.Crashes, j.Action)
	// Held or not ours any more: a claim that is void must not act.
	err := r.save(ctx, j, false)
	return err == nil || errors.Is(err, ErrFenced)
}

func (r *Runner) doOne(ctx context.Context, op *Definition, j *Job, log *slog.Logger) bool {
	i := op.index(j.Action)
	if i < 0 {
		return r.settle(ctx, op, j, nil, Fail(problem.Unsupportedf("this version of salvor knows no action %q of %s", j.Action, j.Kind)), log)
	}
	a := &op.Actions[i]
	if j.Action == "" || j.ActionStartedAt.IsZero() {
		j.Action, j.ActionStartedAt = a.Name, r.now()
	}
	j.State = Running
	if op.Deadline > 0 && j.OperationDeadline == 0 {
		j.OperationDeadline = r.tick(j.Group) + seconds(op.Deadline)
	}
	if j.OperationDeadline > 0 && r.tick(j.Group) >= j.OperationDeadline {
		return r.settle(ctx, op, j, a, Fail(problem.Unavailablef("%s did not end within %s; it stood at %q", j.Kind, op.Deadline, a.Name)), log)
	}
	if cause := r.abortOf(j); cause != "" {
		return r.abort(ctx, op, j, a, cause, log)
	}
	run := &Run{Job: *j, Log: log.With("action", a.Name), runner: r}
	began := time.Now()
	within, end := r.abortable(ctx, j.ID)
	out := r.call(within, a, a.Do, run)
	end()
	*j = run.Job
	if cause := r.abortOf(j); cause != "" && out.verdict != verdictDone && out.verdict != verdictThen {
		return r.abort(ctx, op, j, a, cause, log)
	}
	if out.verdict == verdictRetry {
		r.startDeadline(j, a, time.Since(began), out)
	}
	return r.settle(ctx, op, j, a, out, log)
}

// call runs an action within its deadline. A panic is a failure, and an action that outlives its context ends the process.
func (r *Runner) call(ctx context.Context, a *Action, do func(context.Context, *Run) Outcome, run *Run) (out Outcome) {
	left := a.deadline()
	if run.Deadline > 0 {
		// The last try gets time enough to find out more than that there was none.
		left = min(left, max(time.Duration(run.Deadline-r.tick(run.Group))*time.Second, left/4))
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	run.stored = run.Job
	ctx, run.outage = withOutage(ctx)
	ctx, told := r.watch.Action(InWork(ctx, &run.Job), &run.Job)
	defer func() { told(verdictNames[out.verdict]) }()
	ended := make(chan struct{})
	defer close(ended)
	unwatched := context.AfterFunc(ctx, func() {
		select {
		case <-ended:
		case <-time.After(overrun):
			r.die(fmt.Sprintf("action %q of job %s did not end within %s after it had to", a.Name, run.ID, overrun))
		}
	})
	defer unwatched()
	defer func() {
		if p := recover(); p != nil {
			run.Log.Error("action panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			out = Fail(fmt.Errorf("action %q panicked", a.Name))
		}
	}()
	return run.outage.settle(run, do(ctx, run))
}
