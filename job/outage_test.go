package job_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
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

// readUntilTheEnd waits for the end of the context of an action, as a request to a hung machine does, and reads the store then. The read fails with the
// mark of a database that is away, because a store marks each read that waiting may heal.
func readUntilTheEnd(ctx context.Context) job.Outcome {
	<-ctx.Done()
	job.NoteOutage(ctx, errAway)
	return job.Fail(problem.Unavailablef("read the node: %w", errAway))
}

// TestHungActionIsNoOutage: an action that hangs until its deadline and reads the store then has failed, because the read failed by the deadline.
func TestHungActionIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(job.Outcome) job.Outcome{
		"fails":   func(failed job.Outcome) job.Outcome { return failed },
		"retries": func(job.Outcome) job.Outcome { return job.From(errAway) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				tries := 0
				defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "ask", NoUndo: none, Deadline: time.Minute, Do: func(ctx context.Context, _ *job.Run) job.Outcome {
					tries++
					return end(readUntilTheEnd(ctx))
				}}))()
				began := time.Now()
				j := h.await(h.insert("work"), 3*time.Hour, ended)
				if took := time.Since(began); tries != 1 || !j.Failed() || took > 2*time.Minute {
					t.Errorf("the action ran %d times, and the job ended after %s with %q; want one run, and a failure after about 1 min", tries, took, j.Problem)
				}
			})
		})
	}
}

// TestHungHastyUndoIsNoOutage: after an abort, an undo whose BMC hangs runs once, also when the undo reads the store after its time is over.
func TestHungHastyUndoIsNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		undone := 0
		defer h.runner("a", h.Store, false, definition("work",
			job.Action{Name: "one", Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }, Undo: func(ctx context.Context, r *job.Run) job.Outcome {
				undone++
				<-ctx.Done()
				return job.From(r.Commit(ctx, func(job.Tx) error {
					job.NoteOutage(ctx, errAway)
					return errAway
				}))
			}},
			job.Action{Name: "two", NoUndo: none, Deadline: time.Hour, Do: func(context.Context, *job.Run) job.Outcome {
				return job.Retry(10*time.Minute, problem.Unavailablef("no answer"))
			}}))()
		id := h.insert("work")
		h.await(id, time.Minute, func(j job.Job) bool { return j.Action == "two" && j.Attempt > 0 && j.State == job.Ready })
		h.abort(id, "aborted by request")
		if j := h.await(id, 3*time.Hour, ended); j.Stuck() == "" || undone != 1 {
			t.Errorf("the undo ran %d times, stuck %q; want one run, and %q stuck", undone, j.Stuck(), "one")
		}
	})
}

// TestNothingIsCommittedAfterAnOutage: what an action decided on a read that failed does not become durable.
func TestNothingIsCommittedAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		runs := 0
		var refused error
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "read", NoUndo: none, Do: func(ctx context.Context, r *job.Run) job.Outcome {
			if runs++; runs > 1 {
				return job.Done()
			}
			job.NoteOutage(ctx, errAway)
			r.Note("decided", "without the read")
			refused = r.Commit(ctx, nil)
			return job.Done()
		}}))()
		j := h.await(h.insert("work"), time.Hour, ended)
		if j.Memo["decided"] != "" || !problem.IsDatabase(refused) || runs != 2 {
			t.Errorf("the action ran %d times, its Commit gave the error %v, and the job has the note %q; want 2 runs, the outage and no note", runs, refused, j.Memo["decided"])
		}
	})
}

// TestOutagesAreNoTries: an unknown name is looked up three times, however often the database was away before.
func TestOutagesAreNoTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		const outages = 3
		runs := 0
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "look up", NoUndo: none, Do: func(ctx context.Context, _ *job.Run) job.Outcome {
			if runs++; runs <= outages {
				job.NoteOutage(ctx, errAway)
			}
			return job.From(problem.Tries(3, problem.Unavailablef("no such host")))
		}}))()
		j := h.await(h.insert("work"), time.Hour, ended)
		if runs != outages+3 || j.Problem != "no such host" {
			t.Errorf("the action ran %d times, and the job ended with %q; want %d outages, 3 tries and %q", runs, j.Problem, outages, "no such host")
		}
	})
}

// TestOutageIsTriedAgainLater: the pauses grow while the database is away for one action only, and the timeline has one line for them.
func TestOutageIsTriedAgainLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		runs := 0
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "read", NoUndo: none, Do: func(ctx context.Context, _ *job.Run) job.Outcome {
			runs++
			job.NoteOutage(ctx, errAway)
			return job.Done()
		}}))()
		id := h.insert("work")
		time.Sleep(time.Hour)
		j := must.Get(h.Job(context.Background(), nil, id))(t)
		events := must.Get(h.Events(context.Background(), j.Subject, 0, 1000))(t)
		if runs < 60 || runs > 160 || j.Attempt != 0 || len(events) != 1 || !strings.Contains(j.WaitFor, "the database did not answer") {
			t.Errorf("in 1 h the action ran %d times, the job counts %d tries, has %d events and waits for %q; want about 130 runs, no try, 1 event, and the database named",
				runs, j.Attempt, len(events), j.WaitFor)
		}
	})
}

// TestOutageKeepsTheDeadlineOfAWait: a wait ends in time, also when the database is away whenever a signal wakes its job.
func TestOutageKeepsTheDeadlineOfAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		away := false
		defer h.runner("a", h.Store, false, definition("work", job.Action{Name: "await", NoUndo: none, Do: func(ctx context.Context, _ *job.Run) job.Outcome {
			if away = !away; !away {
				job.NoteOutage(ctx, errAway)
			}
			return job.Wait("the ramdisk", 10*time.Minute)
		}}))()
		began := time.Now()
		id := h.insert("work")
		for range 6 {
			time.Sleep(3 * time.Minute)
			if j := must.Get(h.Job(context.Background(), nil, id))(t); ended(j) {
				break
			}
			must.OK(t, h.Do(context.Background(), func(tx job.Tx) error { return h.Signal(tx, job.Subject{Kind: "thing", ID: "work"}) }))
		}
		j := h.await(id, time.Hour, ended)
		if took := time.Since(began); !j.TimedOut() || took > 13*time.Minute {
			t.Errorf("after %s the job ended with %q; want a time-out after about 10 min", took, j.Problem)
		}
	})
}
