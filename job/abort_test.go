package job_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// abort asks for the end of a job.
func (h *runnerWorld) abort(id, cause string) {
	h.t.Helper()
	must.OK(h.t, h.Do(context.Background(), func(tx job.Tx) error {
		j, err := h.Job(context.Background(), tx, id)
		if err != nil {
			return err
		}
		return h.Abort(tx, j, cause)
	}))
}

// TestAbort: a job that waits, retries, rests between tries or hangs in an action is aborted within 5 s, and what it did is undone.
func TestAbort(t *testing.T) {
	dead := problem.Unavailablef("no answer")
	for name, do := range map[string]func(context.Context, *job.Run) job.Outcome{
		"waits":   func(context.Context, *job.Run) job.Outcome { return job.Wait("a word", time.Hour) },
		"rests":   func(context.Context, *job.Run) job.Outcome { return job.Rest("a word", time.Hour) },
		"pauses":  func(context.Context, *job.Run) job.Outcome { return job.Pause(10*time.Minute, "the outside") },
		"retries": func(context.Context, *job.Run) job.Outcome { return job.Retry(10*time.Minute, dead) },
		"hangs": func(ctx context.Context, _ *job.Run) job.Outcome {
			<-ctx.Done()
			return job.Retry(0, problem.Unavailablef("cut off: %w", ctx.Err()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				var undone, gaveUp, shown atomic.Int64
				d := definition("work",
					job.Action{Name: "one", Do: func(context.Context, *job.Run) job.Outcome { return job.Done() },
						Undo: func(context.Context, *job.Run) job.Outcome {
							if gaveUp.Load() == 0 || shown.Load() == 0 {
								t.Error("undone before it was given up and shown")
							}
							undone.Add(1)
							return job.Done()
						}},
					job.Action{Name: "two", NoUndo: none, Deadline: time.Hour, Do: do})
				d.GiveUp = func(context.Context, job.Tx, *job.Job) error { gaveUp.Add(1); return nil }
				d.Failed = func(context.Context, job.Tx, *job.Job) error { shown.Add(1); return nil }
				defer h.runner("a", h.Store, false, d)()
				id := h.insert("work")
				h.await(id, time.Minute, func(j job.Job) bool { return j.Action == "two" && (j.State != job.Running || name == "hangs") })
				time.Sleep(3 * time.Second)
				began := time.Now()
				h.abort(id, "aborted by request")
				j := h.await(id, time.Minute, ended)
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("aborted after %s", took)
				}
				if j.Problem != "aborted by request" || j.ProblemKind != problem.Conflict.String() || undone.Load() != 1 || !j.Secret.Empty() {
					t.Errorf("problem %q (%s), undone %d times", j.Problem, j.ProblemKind, undone.Load())
				}
			})
		})
	}
}

// TestAbortOfAnUndo: an undo that does not come about is given up at the next abort, and told.
func TestAbortOfAnUndo(t *testing.T) {
	for name, wait := range map[string]bool{"retries": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				stuck := make(chan string, 1)
				undo := func(ctx context.Context, _ *job.Run) job.Outcome {
					if wait {
						<-ctx.Done()
					}
					return job.Retry(0, problem.Unavailablef("no answer"))
				}
				ok := func(context.Context, *job.Run) job.Outcome { return job.Done() }
				d := definition("work",
					job.Action{Name: "one", Deadline: time.Hour, Do: ok, Undo: undo},
					job.Action{Name: "two", Deadline: time.Hour, Do: ok, Undo: undo},
					job.Action{Name: "three", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Fail(problem.Invalidf("no")) }})
				d.Stuck = func(_ context.Context, _ job.Tx, _ *job.Job, why string) error { stuck <- why; return nil }
				defer h.runner("a", h.Store, false, d)()
				id := h.insert("work")
				h.await(id, time.Minute, func(j job.Job) bool { return j.State == job.Undoing && (j.Attempt > 2 || wait) })
				began := time.Now()
				h.abort(id, "given up by request")
				j := h.await(id, time.Minute, ended)
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("given up after %s", took)
				}
				if why := <-stuck; !strings.Contains(why, `"one" could not be taken back: given up by request`) || !strings.Contains(why, `"two" could not`) || j.Problem != "no" {
					t.Errorf("stuck: %q, problem %q", why, j.Problem)
				}
			})
		})
	}
}

// TestAbortWhileNobodyWorks: whoever claims an aborted job next does none of it.
func TestAbortWhileNobodyWorks(t *testing.T) {
	h := newRunnerWorld(t)
	defer h.Close()
	var did atomic.Int64
	d := definition("work", job.Action{Name: "one", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { did.Add(1); return job.Done() }})
	id := h.insert("work")
	h.abort(id, "aborted by request")
	defer h.runner("a", h.Store, false, d)()
	if j := h.await(id, 30*time.Second, ended); j.Problem != "aborted by request" || did.Load() != 0 {
		t.Errorf("problem %q, done %d times", j.Problem, did.Load())
	}
}

// TestUndoTellsItsOwnCause: the timeline and the fault tell of each undo that failed why it did, not why the job had failed.
func TestUndoTellsItsOwnCause(t *testing.T) {
	h := newRunnerWorld(t)
	defer h.Close()
	stuck := make(chan string, 1)
	ok := func(context.Context, *job.Run) job.Outcome { return job.Done() }
	no := func(text string) func(context.Context, *job.Run) job.Outcome {
		return func(context.Context, *job.Run) job.Outcome { return job.Fail(problem.Invalidf("%s", text)) }
	}
	d := definition("work", job.Action{Name: "one", Do: ok, Undo: no("first cause")}, job.Action{Name: "two", Do: ok, Undo: no("second cause")},
		job.Action{Name: "three", NoUndo: none, Do: no("the old cause")})
	d.Stuck = func(_ context.Context, _ job.Tx, _ *job.Job, why string) error { stuck <- why; return nil }
	defer h.runner("a", h.Store, false, d)()
	j := h.await(h.insert("work"), 30*time.Second, ended)
	if why, want := <-stuck, `"two" could not be taken back: second cause; "one" could not be taken back: first cause`; why != want {
		t.Errorf("stuck %q, want %q", why, want)
	}
	events := must.Get(h.Events(context.Background(), j.Subject, 0, 100))(t)
	var texts []string
	for _, e := range events {
		texts = append(texts, e.Text)
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"three: failed: the old cause", "undo two: failed: second cause", "undo one: failed: first cause"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// TestFewTries: what some tries may heal is not tried for minutes.
func TestFewTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		var tries atomic.Int64
		d := definition("work", job.Action{Name: "one", NoUndo: none, Deadline: time.Hour, Do: func(context.Context, *job.Run) job.Outcome {
			tries.Add(1)
			return job.From(problem.Tries(3, problem.Unavailablef("no such host")))
		}})
		defer h.runner("a", h.Store, false, d)()
		j := h.await(h.insert("work"), time.Minute, ended)
		if tries.Load() != 3 || j.Problem != "no such host" || j.ProblemKind != problem.Unavailable.String() {
			t.Errorf("%d tries, problem %q (%s)", tries.Load(), j.Problem, j.ProblemKind)
		}
	})
}

// TestAbortOfARetryElsewhere: an abort while somebody other than the BMC does not answer leaves the undos the time that a BMC takes, for one try each.
func TestAbortOfARetryElsewhere(t *testing.T) {
	for name, elsewhere := range map[string]bool{"the BMC": false, "elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				var undone, tries atomic.Int64
				ok := func(context.Context, *job.Run) job.Outcome { return job.Done() }
				dead := func(context.Context, *job.Run) job.Outcome {
					return job.Retry(time.Minute, problem.Unavailablef("no answer"))
				}
				defer h.runner("a", h.Store, false, definition("work",
					job.Action{Name: "one", Do: ok, Undo: func(ctx context.Context, _ *job.Run) job.Outcome {
						select {
						case <-ctx.Done():
							return job.Retry(0, problem.Unavailablef("cut off"))
						case <-time.After(10 * time.Second):
							undone.Add(1)
							return job.Done()
						}
					}},
					job.Action{Name: "two", Deadline: time.Hour, Do: ok, Undo: func(ctx context.Context, r *job.Run) job.Outcome { tries.Add(1); return dead(ctx, r) }},
					job.Action{Name: "three", NoUndo: none, Deadline: time.Hour, Elsewhere: elsewhere, Do: dead}))()
				id := h.insert("work")
				h.await(id, time.Minute, func(j job.Job) bool { return j.Action == "three" && j.Attempt > 0 })
				h.abort(id, "aborted by request")
				j := h.await(id, time.Minute, ended)
				if tries.Load() != 1 || (undone.Load() == 1) != elsewhere || strings.Contains(j.Stuck(), `"one"`) == elsewhere {
					t.Errorf("undone %d, tried %d times, stuck %q", undone.Load(), tries.Load(), j.Stuck())
				}
			})
		})
	}
}
