package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// The runner's promises that have to do with time, on a real store under a clock that jumps.

type runnerWorld struct {
	*store.Store
	t *testing.T
}

func newRunnerWorld(t *testing.T) *runnerWorld {
	key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
	s := must.Get(store.Open(context.Background(), "sqlite:"+filepath.Join(t.TempDir(), "s.db"), key, store.Options{NoSync: true, Logger: quiet}))(t)
	return &runnerWorld{s, t}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// runner starts a conductor; the returned function ends it.
func (h *runnerWorld) runner(id string, s job.Store, leased bool, defs ...job.Definition) (stop func()) {
	h.t.Helper()
	r := must.Get(job.NewRunner(job.Config{
		Store: s, Definitions: defs, Workers: 4, Leased: leased, Now: time.Now, Log: quiet, Die: func(why string) { panic(why) },
		Conductor: job.Conductor{ID: id, Incarnation: "1", Hostname: id, Groups: []string{""}, Description: json.RawMessage("{}")},
	}))(h.t)
	must.OK(h.t, r.Join(context.Background()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx, time.Second) }()
	return func() { cancel(); <-done }
}

func (h *runnerWorld) insert(kind job.Kind) string {
	h.t.Helper()
	j := &job.Job{Kind: kind, Class: job.Operation, Subject: job.Subject{Kind: "thing", ID: string(kind)}, Secret: secret.New("s3cret")}
	must.OK(h.t, h.Do(context.Background(), func(tx job.Tx) error { return h.Insert(tx, j) }))
	return j.ID
}

func (h *runnerWorld) await(id string, within time.Duration, ok func(job.Job) bool) job.Job {
	h.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		j := must.Get(h.Job(context.Background(), nil, id))(h.t)
		if ok(j) {
			return j
		}
		if time.Now().After(end) {
			h.t.Fatalf("after %s: state %s, owner %q, action %q, waits for %q, problem %q", within, j.State, j.Owner, j.Action, j.WaitFor, j.Problem)
		}
	}
}

func ended(j job.Job) bool { return j.State == job.Ended }

func definition(kind job.Kind, actions ...job.Action) job.Definition {
	return job.Definition{Kind: kind, Version: 1, Class: job.Operation, Actions: actions}
}

const none = "the test takes nothing back"

// frozen is a store that its conductor no longer reaches.
type frozen struct {
	job.Store
	cut atomic.Bool
}

var errCut = errors.New("cut off")

func (f *frozen) Do(ctx context.Context, fn func(job.Tx) error) error {
	if f.cut.Load() {
		return errCut
	}
	return f.Store.Do(ctx, fn)
}

func (f *frozen) RenewLease(ctx context.Context, c job.Conductor) error {
	if f.cut.Load() {
		return errCut
	}
	return f.Store.RenewLease(ctx, c)
}

func (f *frozen) Claim(ctx context.Context, owner string, now time.Time, groups []string, kinds map[job.Kind]int, limit int) ([]job.Job, error) {
	if f.cut.Load() {
		return nil, errCut
	}
	return f.Store.Claim(ctx, owner, now, groups, kinds, limit)
}

func (f *frozen) Claimed(ctx context.Context, owner string, limit int) ([]job.Job, error) {
	if f.cut.Load() {
		return nil, errCut
	}
	return f.Store.Claimed(ctx, owner, limit)
}

func (f *frozen) Register(ctx context.Context, c job.Conductor) error {
	if f.cut.Load() {
		return errCut
	}
	return f.Store.Register(ctx, c)
}

// TestPeerTakesOver: a conductor that is cut off stops acting before a peer goes on with its job.
func TestPeerTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		cut := &frozen{Store: h.Store}
		var stopped, resumed atomic.Int64
		start := time.Now()
		first := definition("work", job.Action{Name: "hold", NoUndo: none, Deadline: time.Hour, Do: func(ctx context.Context, r *job.Run) job.Outcome {
			<-ctx.Done()
			stopped.Store(int64(time.Since(start)))
			return job.From(ctx.Err())
		}})
		second := definition("work", job.Action{Name: "hold", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome {
			resumed.Store(int64(time.Since(start)))
			return job.Done()
		}})
		stopFirst := h.runner("a", cut, true, first)
		id := h.insert("work")
		h.await(id, 5*time.Second, func(j job.Job) bool { return j.Owner == "a/1" })
		stopSecond := h.runner("b", h.Store, true, second)
		time.Sleep(3 * time.Second)
		cut.cut.Store(true)
		j := h.await(id, 15*time.Second, ended)
		if j.Crashes != 0 && j.Problem != "" {
			t.Errorf("taken over with a problem: %s", j.Problem)
		}
		if stopped.Load() == 0 || stopped.Load() >= resumed.Load() {
			t.Errorf("the first stopped after %s, the second began after %s", time.Duration(stopped.Load()), time.Duration(resumed.Load()))
		}
		stopSecond()
		stopFirst()
	})
}

func TestRetryGrowsAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		var tries atomic.Int64
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "ask", NoUndo: none, Deadline: 20 * time.Second, Do: func(context.Context, *job.Run) job.Outcome {
			tries.Add(1)
			return job.From(problem.Unavailablef("the BMC does not answer"))
		}}))()
		j := h.await(h.insert("work"), time.Minute, ended)
		if j.ProblemKind != problem.Unavailable.String() || tries.Load() < 4 || tries.Load() > 12 {
			t.Errorf("%d tries, problem %s %q", tries.Load(), j.ProblemKind, j.Problem)
		}
		if !j.Secret.Empty() {
			t.Error("the failed job still holds its secret")
		}
	})
}

// A machine that lets every try hang does not get the deadline once for each try.
func TestTriesShareTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		var undone time.Duration
		hang := func(ctx context.Context, _ *job.Run) job.Outcome {
			select {
			case <-ctx.Done():
			case <-time.After(15 * time.Second):
			}
			return job.From(problem.Unavailablef("no answer in time"))
		}
		began := time.Now()
		defer h.runner("a", h.Store, false, definition("work",
			job.Action{Name: "first", Deadline: 20 * time.Second, Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }, Undo: hang},
			job.Action{Name: "second", NoUndo: none, Deadline: 20 * time.Second, Do: hang},
		))()
		h.await(h.insert("work"), time.Minute, func(j job.Job) bool {
			if undone == 0 && j.State == job.Undoing {
				undone = time.Since(began)
			}
			return j.State == job.Ended
		})
		if all := time.Since(began); undone < 19*time.Second || undone > 23*time.Second || all > 46*time.Second {
			t.Errorf("failed after %s, ended after %s; want 20 s and 40 s", undone, all)
		}
	})
}

// TestSlowDatabaseFailsNoJob: tries that fail by salvor's own database do not use up the deadline, neither of an action nor of its undo.
func TestSlowDatabaseFailsNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		slow := func() func(context.Context, *job.Run) job.Outcome {
			tries := 0
			return func(ctx context.Context, _ *job.Run) job.Outcome {
				if tries++; tries > 8 {
					return job.Done()
				}
				time.Sleep(15 * time.Second) // the time that the store gives a read
				err := problem.Database(problem.Unavailablef("list conductors: it took too long"))
				job.NoteOutage(ctx, err)
				return job.From(err)
			}
		}
		broken := func(context.Context, *job.Run) job.Outcome { return job.Fail(problem.Invalidf("broken")) }
		defer h.runner("a", h.Store, false,
			definition("work", job.Action{Name: "first", NoUndo: none, Deadline: 20 * time.Second, Do: slow()}),
			definition("work back", job.Action{Name: "first", Deadline: 20 * time.Second, Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }, Undo: slow()},
				job.Action{Name: "second", NoUndo: none, Do: broken}),
		)()
		ended := func(j job.Job) bool { return j.State == job.Ended }
		if j := h.await(h.insert("work"), time.Hour, ended); j.Failed() {
			t.Errorf("the job failed: %s", j.Problem)
		}
		if j := h.await(h.insert("work back"), time.Hour, ended); j.Problem != "broken" || j.Stuck() != "" {
			t.Errorf("the undo: %q, stuck: %q", j.Problem, j.Stuck())
		}
	})
}

func TestWaitEndsByItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		var undone atomic.Bool
		d := definition("work", job.Action{Name: "wait", Do: func(context.Context, *job.Run) job.Outcome { return job.Wait("a word", 10*time.Second) },
			Undo: func(context.Context, *job.Run) job.Outcome { undone.Store(true); return job.Done() }})
		defer h.runner("a", h.Store, false, d)()
		id := h.insert("work")
		h.await(id, 5*time.Second, func(j job.Job) bool { return j.State == job.Waiting })
		// A signal that changes nothing does not prolong the wait.
		time.Sleep(5 * time.Second)
		must.OK(t, h.Do(context.Background(), func(tx job.Tx) error { return h.Signal(tx, job.Subject{Kind: "thing", ID: "work"}) }))
		began := time.Now()
		j := h.await(id, 30*time.Second, ended)
		if took := time.Since(began); took > 8*time.Second || !undone.Load() || j.Problem == "" {
			t.Errorf("ended after %s more, undone %v, problem %q", took, undone.Load(), j.Problem)
		}
	})
}

// TestRestGoesOn: the end of a rest is no failure, a signal before it changes nothing, and the subject is free meanwhile.
func TestRestGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		began := time.Now()
		d := definition("work", job.Action{Name: "rest", NoUndo: "none", Do: func(context.Context, *job.Run) job.Outcome {
			if left := 10*time.Second - time.Since(began); left > 0 {
				return job.Rest("a time", left)
			}
			return job.Done()
		}}, job.Action{Name: "wait", NoUndo: "none", Do: func(context.Context, *job.Run) job.Outcome { return job.Wait("a word", 5*time.Second) }})
		defer h.runner("a", h.Store, false, d)()
		id := h.insert("work")
		h.await(id, 5*time.Second, func(j job.Job) bool { return j.State == job.Waiting && !j.Locks() })
		time.Sleep(5 * time.Second)
		must.OK(t, h.Do(context.Background(), func(tx job.Tx) error { return h.Signal(tx, job.Subject{Kind: "thing", ID: "work"}) }))
		h.await(id, 10*time.Second, func(j job.Job) bool { return j.Action == "wait" && j.State == job.Waiting })
		if took := time.Since(began); took < 10*time.Second || took > 13*time.Second {
			t.Errorf("the rest ended after %s", took)
		}
		// A wait after it is one whose end is a failure again.
		if j := h.await(id, 20*time.Second, ended); !strings.Contains(j.Problem, "waiting for a word") {
			t.Errorf("problem %q", j.Problem)
		}
	})
}

func TestPanicIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "fall", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { panic("with a secret inside") }}))()
		j := h.await(h.insert("work"), 5*time.Second, ended)
		if j.ProblemKind != "internal" || j.Problem == "" || len(j.Problem) > 200 {
			t.Errorf("problem %s %q", j.ProblemKind, j.Problem)
		}
	})
}

func TestStuckUndoIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		var stuck atomic.Value
		var firstUndone atomic.Bool
		d := definition("work",
			job.Action{Name: "one", Do: func(context.Context, *job.Run) job.Outcome { return job.Done() },
				Undo: func(context.Context, *job.Run) job.Outcome { firstUndone.Store(true); return job.Done() }},
			job.Action{Name: "two", Do: func(context.Context, *job.Run) job.Outcome { return job.Fail(problem.Invalidf("no")) },
				Undo: func(context.Context, *job.Run) job.Outcome { return job.Fail(problem.Invalidf("cannot")) }})
		d.Stuck = func(_ context.Context, _ job.Tx, _ *job.Job, why string) error { stuck.Store(why); return nil }
		defer h.runner("a", h.Store, false, d)()
		h.await(h.insert("work"), 5*time.Second, ended)
		if why, _ := stuck.Load().(string); why == "" || !firstUndone.Load() {
			t.Errorf("stuck %q, the rest undone %v", why, firstUndone.Load())
		}
	})
}

// TestUnknownKindIsLeftAlone: a newer conductor's job is not touched.
func TestUnknownKindIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		defer h.runner("a", h.Store, false, definition("known", job.Action{Name: "x", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }}))()
		id := h.insert("unknown")
		time.Sleep(10 * time.Second)
		h.await(id, time.Second, func(j job.Job) bool { return j.State == job.Ready && j.Owner == "" })
	})
}

// mute is a store that takes no beats, and counts claims.
type mute struct {
	job.Store
	on     atomic.Bool
	claims atomic.Int64
}

func (m *mute) RenewLease(ctx context.Context, c job.Conductor) error {
	if m.on.Load() {
		<-ctx.Done()
		time.Sleep(10 * time.Second) // longer than it was allowed to
		return errCut
	}
	return m.Store.RenewLease(ctx, c)
}

func (m *mute) Claim(ctx context.Context, owner string, now time.Time, groups []string, kinds map[job.Kind]int, limit int) ([]job.Job, error) {
	m.claims.Add(1)
	return m.Store.Claim(ctx, owner, now, groups, kinds, limit)
}

// TestLostLease: actions stop after five seconds even where the store hangs, nothing is claimed until the
// last of them has ended, and a new incarnation goes on.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		m := &mute{Store: h.Store}
		var stopped atomic.Int64
		var runs [2]atomic.Int64
		var cut time.Time
		slow := job.Action{Name: "slow to stop", NoUndo: none, Deadline: time.Hour, Do: func(ctx context.Context, r *job.Run) job.Outcome {
			if runs[0].Add(1) > 1 {
				return job.Done()
			}
			<-ctx.Done()
			stopped.Store(int64(time.Since(cut)))
			time.Sleep(10 * time.Second)
			return job.From(ctx.Err())
		}}
		quick := job.Action{Name: "quick to stop", NoUndo: none, Deadline: time.Hour, Do: func(ctx context.Context, r *job.Run) job.Outcome {
			if runs[1].Add(1) > 1 && ctx.Err() == nil {
				return job.Done()
			}
			<-ctx.Done()
			return job.From(ctx.Err())
		}}
		defer h.runner("a", m, true, definition("slow", slow), definition("quick", quick))()
		ids := []string{h.insert("slow"), h.insert("quick")}
		for _, id := range ids {
			h.await(id, 5*time.Second, func(j job.Job) bool { return j.Owner == "a/1" })
		}
		time.Sleep(1500 * time.Millisecond)
		cut = time.Now()
		m.on.Store(true)
		time.Sleep(6 * time.Second)
		m.on.Store(false)
		if s := time.Duration(stopped.Load()); s == 0 || s > 5*time.Second {
			t.Errorf("actions were stopped after %s", s)
		}
		before := m.claims.Load()
		for _, id := range ids {
			if j := h.await(id, 40*time.Second, ended); j.Problem != "" {
				t.Errorf("problem %q", j.Problem)
			}
		}
		if n := m.claims.Load() - before; n > 200 {
			t.Errorf("%d claims in the meantime", n)
		}
		if runs[0].Load() != 2 || runs[1].Load() != 2 {
			t.Errorf("runs %d and %d; want 2 each", runs[0].Load(), runs[1].Load())
		}
	})
}

// late is a store in which the claim that finds something comes through only when its conductor has joined again.
type late struct {
	job.Store
	on     atomic.Bool
	joined chan struct{}
	former atomic.Int64 // how often a job was saved in the name of the incarnation that had ended
}

func (l *late) Save(tx job.Tx, j *job.Job, keep bool) error {
	if j.Owner == "a/1" {
		l.former.Add(1)
	}
	return l.Store.Save(tx, j, keep)
}

func (l *late) RenewLease(ctx context.Context, c job.Conductor) error {
	if l.on.Load() {
		return job.ErrFenced
	}
	return l.Store.RenewLease(ctx, c)
}

func (l *late) Register(ctx context.Context, c job.Conductor) error {
	err := l.Store.Register(ctx, c)
	if err == nil && l.on.CompareAndSwap(true, false) {
		close(l.joined)
	}
	return err
}

func (l *late) Claim(ctx context.Context, owner string, now time.Time, groups []string, kinds map[job.Kind]int, limit int) ([]job.Job, error) {
	if due, err := l.NextDue(ctx, groups, kinds); err == nil && !due.IsZero() && l.on.Load() {
		<-l.joined
	}
	return l.Store.Claim(ctx, owner, now, groups, kinds, limit)
}

// TestClaimOfAFormerIncarnation: what was claimed in the name of an incarnation that had ended by then is not begun, and not locked for
// good.
func TestClaimOfAFormerIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		l := &late{Store: h.Store, joined: make(chan struct{})}
		defer h.runner("a", l, true, definition("work", job.Action{Name: "do", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }}))()
		synctest.Wait() // or a claim that is under way finds the job while its incarnation still lives
		l.on.Store(true)
		id := h.insert("work")
		h.await(id, 10*time.Second, ended)
		if n := l.former.Load(); n > 0 {
			t.Errorf("it was saved %d times in the name of the incarnation that had ended", n)
		}
	})
}

// TestARefusedBeatStopsActionsAtOnce: a store that refuses the heartbeat may have given the jobs to another conductor already.
func TestARefusedBeatStopsActionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		l := &late{Store: h.Store, joined: make(chan struct{})}
		var stopped atomic.Int64
		var refused time.Time
		defer h.runner("a", l, true, definition("work", job.Action{Name: "hold", NoUndo: none, Deadline: time.Hour, Do: func(ctx context.Context, r *job.Run) job.Outcome {
			if stopped.Load() > 0 {
				return job.Done()
			}
			<-ctx.Done()
			stopped.Store(int64(time.Since(refused)))
			return job.From(ctx.Err())
		}}))()
		id := h.insert("work")
		h.await(id, 5*time.Second, func(j job.Job) bool { return j.Owner == "a/1" })
		refused = time.Now()
		l.on.Store(true)
		h.await(id, time.Minute, ended)
		if took := time.Duration(stopped.Load()); took > 2*time.Second { // it beats once a second
			t.Errorf("the action was stopped %s later", took)
		}
	})
}

// TestDeafActionEndsTheProcess: one that outlives its context, whatever ended that, is not waited for.
func TestDeafActionEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		died := make(chan string, 1)
		begun, release := make(chan struct{}), make(chan struct{})
		r := must.Get(job.NewRunner(job.Config{
			Store: h.Store, Workers: 1, Now: time.Now, Log: quiet, Die: func(why string) { died <- why; close(release) },
			Definitions: []job.Definition{definition("work", job.Action{Name: "deaf", NoUndo: none, Deadline: time.Hour,
				Do: func(context.Context, *job.Run) job.Outcome { close(begun); <-release; return job.Done() }})},
			Conductor: job.Conductor{ID: "a", Incarnation: "1", Hostname: "a", Groups: []string{""}, Description: json.RawMessage("{}")},
		}))(t)
		must.OK(t, r.Join(context.Background()))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx, time.Second) }()
		h.insert("work")
		<-begun // a job that is claimed and has not begun is given back
		began := time.Now()
		cancel()
		<-done
		if took := time.Since(began); len(died) != 1 || took > time.Minute {
			t.Errorf("the runner ended after %s and told its process to die %d times, want once within a minute", took, len(died))
		}
	})
}

// TestUnboundedWait: what an earlier try left of its deadline does not end it.
func TestUnboundedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		var tries atomic.Int64
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "wait", NoUndo: none, Deadline: 10 * time.Second, Do: func(context.Context, *job.Run) job.Outcome {
			if tries.Add(1) == 1 {
				return job.From(problem.Unavailablef("the store was away"))
			}
			return job.Wait("a word", 0)
		}}))()
		id := h.insert("work")
		time.Sleep(time.Minute)
		h.await(id, time.Second, func(j job.Job) bool { return j.State == job.Waiting && j.Deadline == 0 })
	})
}

// TestOperationHasAnEnd: an operation that its actions' deadlines do not end is ended by its own.
func TestOperationHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		d := definition("work",
			job.Action{Name: "one", NoUndo: none, Do: func(ctx context.Context, _ *job.Run) job.Outcome {
				time.Sleep(90 * time.Second)
				return job.Done()
			}},
			job.Action{Name: "two", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }})
		d.Deadline = time.Minute
		defer h.runner("a", h.Store, false, d)()
		j := h.await(h.insert("work"), 3*time.Minute, ended)
		if j.ProblemKind != problem.Unavailable.String() || j.Action != "two" {
			t.Errorf("ended at %q with %s %q", j.Action, j.ProblemKind, j.Problem)
		}
	})
}
