package job_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// TestAJobEndsWithoutUndo: whether the job has not begun, waits, tries again or is being undone, none of its actions is done or undone
// once somebody ended it without undo. Its failure is shown with the cause, after the problem of a job that was being undone, and its subject as one that needs a human.
func TestAJobEndsWithoutUndo(t *testing.T) {
	const cause = "ended by a test"
	for name, c := range map[string]struct {
		do     func(context.Context, *job.Run) job.Outcome
		undo   job.Outcome
		stands func(job.Job) bool
	}{
		"waits":  {func(context.Context, *job.Run) job.Outcome { return job.Wait("a word", time.Hour) }, job.Done(), func(j job.Job) bool { return j.State == job.Waiting }},
		"pauses": {func(context.Context, *job.Run) job.Outcome { return job.Pause(10*time.Minute, "a while") }, job.Done(), func(j job.Job) bool { return j.WaitFor == "a while" }},
		"retries": {func(context.Context, *job.Run) job.Outcome {
			return job.Retry(10*time.Minute, problem.Unavailablef("no"))
		}, job.Done(), func(j job.Job) bool { return j.Attempt > 0 && j.Owner == "" }},
		"is undone": {func(context.Context, *job.Run) job.Outcome { return job.Fail(problem.Invalidf("no")) }, job.Retry(10*time.Minute, problem.Unavailablef("no")),
			func(j job.Job) bool { return j.State == job.Undoing && j.Attempt > 0 && j.Owner == "" }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				var acts atomic.Int64
				var shown, stuck job.Job
				d := definition("work",
					job.Action{Name: "one", Do: func(context.Context, *job.Run) job.Outcome { return job.Done() }, Deadline: time.Hour,
						Undo: func(context.Context, *job.Run) job.Outcome { acts.Add(1); return c.undo }},
					job.Action{Name: "two", NoUndo: none, Deadline: time.Hour, Do: func(ctx context.Context, r *job.Run) job.Outcome { acts.Add(1); return c.do(ctx, r) }})
				d.Failed = func(_ context.Context, _ job.Tx, j *job.Job) error { shown = *j; return nil }
				d.Stuck = func(_ context.Context, _ job.Tx, j *job.Job, why string) error { stuck = *j; return nil }
				stop := h.runner("a", h.Store, false, d)
				id := h.insert("work")
				h.await(id, time.Minute, c.stands)
				stop() // a release frees each job from its owner
				before := acts.Load()
				must.OK(t, h.Do(context.Background(), func(tx job.Tx) error {
					j, err := h.Job(context.Background(), tx, id)
					if err != nil {
						return err
					}
					return h.EndWithoutUndo(tx, j, cause)
				}))
				defer h.runner("b", h.Store, false, d)()
				j := h.await(id, time.Minute, ended)
				if got := acts.Load() - before; got != 0 {
					t.Errorf("%d actions were done or undone after the job was ended without undo, want none", got)
				}
				want := cause
				if name == "is undone" {
					want = "no; " + cause
				}
				if j.Problem != want || !j.EndsWithoutUndo() || !j.Secret.Empty() || j.Stuck() != "nothing was taken back" {
					t.Errorf("the job ended as %+v, want the problem %q, and nothing taken back", j, want)
				}
				if shown.ID != id || shown.State != job.Ended || shown.Problem != want || stuck.ID != id {
					t.Errorf("shown as failed: %+v; shown as stuck: %+v; want both with the problem %q", shown, stuck, want)
				}
			})
		})
	}
}
