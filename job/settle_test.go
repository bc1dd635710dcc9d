package job_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// refusing is a store that takes nothing for a while.
type refusing struct {
	job.Store
	on      atomic.Bool
	refused atomic.Int64
	deepest atomic.Int64
}

func (r *refusing) Do(ctx context.Context, fn func(job.Tx) error) error {
	if !r.on.Load() {
		return r.Store.Do(ctx, fn)
	}
	if depth := int64(runtime.Callers(0, make([]uintptr, 10000))); depth > r.deepest.Load() {
		r.deepest.Store(depth)
	}
	r.refused.Add(1)
	return problem.Unavailablef("the disk is full")
}

// TestOutcomesWaitFlat: an outcome that the store does not take for an hour is written afterwards, and the tries do not pile up.
func TestOutcomesWaitFlat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		s := &refusing{Store: h.Store}
		stop := h.runner("a", s, false, definition("work", job.Action{Name: "one", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome {
			s.on.Store(true)
			return job.Done()
		}}))
		defer stop()
		id := h.insert("work")
		time.Sleep(time.Hour)
		if s.refused.Load() < 1000 || s.deepest.Load() > 60 {
			t.Errorf("%d tries, the last of them %d calls deep", s.refused.Load(), s.deepest.Load())
		}
		s.on.Store(false)
		if j := h.await(id, time.Minute, func(j job.Job) bool { return j.State == job.Ended }); j.Problem != "" {
			t.Error(j.Problem)
		}
	})
}

// TestAdvanced: only an action that does more than look counts, also of a job that a former release brought so far without a mark.
func TestAdvanced(t *testing.T) {
	ok := func(context.Context, *job.Run) job.Outcome { return job.Done() }
	vain := func(context.Context, *job.Run) job.Outcome { return job.Retry(0, problem.Unavailablef("no answer")) }
	for name, c := range map[string]struct {
		checks bool
		from   string
		want   bool
	}{"looked": {true, "", false}, "did": {false, "", true}, "did before": {false, "two", true}, "looked before": {true, "two", false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				j := &job.Job{Kind: "work", Class: job.Operation, Subject: job.Node("n"), Action: c.from}
				must.OK(t, h.Do(context.Background(), func(tx job.Tx) error { return h.Insert(tx, j) }))
				defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "one", NoUndo: none, Checks: c.checks, Do: ok},
					job.Action{Name: "two", NoUndo: none, Deadline: time.Hour, Do: vain}))()
				got := h.await(j.ID, time.Minute, func(j job.Job) bool { return j.Action == "two" && j.Attempt > 1 })
				if got.Advanced() != c.want {
					t.Errorf("advanced %t", got.Advanced())
				}
			})
		})
	}
}

// TestAnOutcomeThatTheRowsRefuseFailsTheJob: it is not tried again and again, for the rows would refuse it as often.
func TestAnOutcomeThatTheRowsRefuseFailsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		var refused atomic.Int64
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "one", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome {
			return job.Done(func(job.Tx) error {
				if refused.Add(1) > 5 {
					return nil // so that a job that is tried for ever ends too
				}
				return problem.Conflictf("the name is taken")
			})
		}}))()
		j := h.await(h.insert("work"), time.Minute, ended)
		if j.ProblemKind != problem.Conflict.String() || refused.Load() != 1 {
			t.Errorf("refused %d times, problem %s %q", refused.Load(), j.ProblemKind, j.Problem)
		}
	})
}
