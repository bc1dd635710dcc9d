package job_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
)

// errAway is the error of a store whose database is away.
var errAway = problem.Database(problem.Unavailablef("database: it is busy; ask again"))

// TestActionRunsAgainAfterAnOutage: an action during which the database was away runs again, whatever the action made of the error. Notes of the
// first run do not count, unless the action committed them.
func TestActionRunsAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]func() job.Outcome{
		"done":              func() job.Outcome { return job.Done() },
		"failed":            func() job.Outcome { return job.Fail(problem.Conflictf("the agent is silent")) },
		"failed with its":   func() job.Outcome { return job.Fail(problem.Unavailablef("read the node: %w", errAway)) },
		"waits":             func() job.Outcome { return job.Wait("a word", time.Minute) },
		"rests":             func() job.Outcome { return job.Rest("a word", time.Minute) },
		"pauses":            func() job.Outcome { return job.Pause(time.Minute, "a word") },
		"asks for the next": func() job.Outcome { return job.Then(&job.Job{Kind: "next"}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "read", NoUndo: none, Do: func(ctx context.Context, r *job.Run) job.Outcome {
					if r.Memo["committed"] == "" {
						r.Note("committed", "yes")
						if err := r.Commit(ctx, nil); err != nil {
							return job.Fail(err)
						}
						r.Note("noted", "yes")
						job.NoteOutage(ctx, errAway)
						return outcome()
					}
					if r.Memo["noted"] != "" {
						return job.Fail(problem.Conflictf("the note of the first run is kept"))
					}
					return job.Done()
				}}))()
				began := time.Now()
				j := h.await(h.insert("work"), time.Hour, ended)
				if took := time.Since(began); j.Failed() || took > 5*time.Second {
					t.Errorf("after %s the job ended with %q; want no failure within 5 s", took, j.Problem)
				}
			})
		})
	}
}

// TestOutageOfAnEndedContextIsNone: a read fails when its context ends, and that says nothing about the database.
func TestOutageOfAnEndedContextIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "read", NoUndo: none, Do: func(ctx context.Context, _ *job.Run) job.Outcome {
			bounded, cancel := context.WithCancel(ctx)
			cancel()
			job.NoteOutage(bounded, errAway)
			return job.Fail(problem.Conflictf("as it is"))
		}}))()
		if j := h.await(h.insert("work"), time.Hour, ended); j.Problem != "as it is" {
			t.Errorf("the job ended with %q; want the problem of its action, %q", j.Problem, "as it is")
		}
	})
}

// TestUndoRunsAgainAfterAnOutage: what is taken back is taken back again when the database was away meanwhile.
func TestUndoRunsAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		undone := 0
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "first", Do: func(context.Context, *job.Run) job.Outcome { return job.Done() },
			Undo: func(ctx context.Context, _ *job.Run) job.Outcome {
				if undone++; undone == 1 {
					job.NoteOutage(ctx, errAway)
					return job.Fail(problem.Conflictf("it is unknown what to take back"))
				}
				return job.Done()
			}},
			job.Action{Name: "second", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Fail(problem.Invalidf("broken")) }}))()
		if j := h.await(h.insert("work"), time.Hour, ended); j.Problem != "broken" || j.Stuck() != "" || undone != 2 {
			t.Errorf("the undo ran %d times, and the job ended with %q, stuck %q; want 2 times, %q and nothing stuck", undone, j.Problem, j.Stuck(), "broken")
		}
	})
}

// TestHastyUndoRunsAgainAfterAnOutage: after an abort, each undo asks whom it needs once only. An outage of the database does not count as that.
func TestHastyUndoRunsAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		undone := 0
		defer h.runner("a", h.Store, false, definition("work",
			job.Action{Name: "one", Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }, Undo: func(ctx context.Context, _ *job.Run) job.Outcome {
				if undone++; undone == 1 {
					job.NoteOutage(ctx, errAway)
				}
				return job.Done()
			}},
			job.Action{Name: "two", NoUndo: none, Deadline: time.Hour, Do: func(context.Context, *job.Run) job.Outcome {
				return job.Retry(10*time.Minute, problem.Unavailablef("no answer"))
			}}))()
		id := h.insert("work")
		h.await(id, time.Minute, func(j job.Job) bool { return j.Action == "two" && j.Attempt > 0 && j.State == job.Ready })
		h.abort(id, "aborted by request")
		if j := h.await(id, time.Minute, ended); j.Stuck() != "" || undone != 2 {
			t.Errorf("the undo ran %d times, stuck %q; want 2 times, and nothing stuck", undone, j.Stuck())
		}
	})
}
