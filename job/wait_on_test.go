package job_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/test/must"
)

// TestWaitsOn: a job whose definition has it wait on does so until the definition lets it fail. The timeline says once that the time of the wait is over, as an
// error, and that the job failed in the end.
func TestWaitsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		asked := 0
		d := definition("work", job.Action{Name: "await", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Wait("the host", 10*time.Minute) }})
		d.WaitsOn = func(context.Context, job.Tx, *job.Job) (time.Duration, string, error) {
			switch asked++; {
			case asked == 1:
				return time.Minute, "", nil // nothing is known yet
			case asked < 5:
				return 5 * time.Minute, "the host is silent", nil
			}
			return 0, "", nil
		}
		defer h.runner("a", h.Store, false, d)()
		began := time.Now()
		j := h.await(h.insert("work"), time.Hour, ended)
		if took := time.Since(began); !j.TimedOut() || took < 28*time.Minute || took > 29*time.Minute || asked != 6 {
			t.Errorf("after %s and %d questions the job ended with %q; want a time-out after 28 min and 6, because what answers again gets the time of the action once more", took, asked, j.Problem)
		}
		failures := h.errorsOf(t, j.Subject)
		if want := []string{"await: failed: Timeout reached while waiting for the host: the host is silent", "await: failed: Timeout reached while waiting for the host"}; !slices.Equal(failures, want) {
			t.Errorf("the timeline says %q, want %q", failures, want)
		}
	})
}

// TestWaitsOnWithinItsBounds: a job that waits on ends at the deadline of the whole job. It neither ends nor tells anything while nobody can say whether it
// waits on, or when its answer comes at the same time.
func TestWaitsOnWithinItsBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deadline time.Duration
		answer   func(asked int, signal func()) (time.Duration, string, error)
		least    time.Duration // before this the job does not end
		most     time.Duration
		events   []string
	}{
		"the deadline of the whole job": {deadline: 17 * time.Minute, answer: func(int, func()) (time.Duration, string, error) { return 5 * time.Minute, "the host is silent", nil },
			least: 17 * time.Minute, most: 18 * time.Minute,
			events: []string{"await: failed: Timeout reached while waiting for the host: the host is silent", "await: failed: Timeout reached while waiting for the host"}},
		"nobody can say": {answer: func(asked int, _ func()) (time.Duration, string, error) {
			if asked < 5 {
				return 0, "", errors.New("the database is away")
			}
			return 0, "", nil
		}, least: 10*time.Minute + 3*time.Second, most: 11 * time.Minute, events: []string{"await: failed: Timeout reached while waiting for the host"}},
		"the answer comes": {answer: func(asked int, signal func()) (time.Duration, string, error) {
			if asked == 1 {
				signal()
				return 5 * time.Minute, "the host is silent", nil
			}
			return 0, "", nil
		}, least: 10 * time.Minute, most: 11 * time.Minute, events: []string{"await: failed: Timeout reached while waiting for the host"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				d := definition("work", job.Action{Name: "await", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Wait("the host", 10*time.Minute) }})
				d.Deadline = c.deadline
				asked := 0
				d.WaitsOn = func(_ context.Context, tx job.Tx, j *job.Job) (time.Duration, string, error) {
					asked++
					return c.answer(asked, func() { must.OK(t, h.Signal(tx, j.Subject)) })
				}
				defer h.runner("a", h.Store, false, d)()
				began := time.Now()
				j := h.await(h.insert("work"), time.Hour, ended)
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("after %s and %d questions the job ended with %q; want an end after %s to %s", took, asked, j.Problem, c.least, c.most)
				}
				if got := h.errorsOf(t, j.Subject); !slices.Equal(got, c.events) {
					t.Errorf("the timeline says %q, want %q", got, c.events)
				}
			})
		})
	}
}

// TestEachActionTellsThatItWaitsOn: the timeline says of each action of a job, once, that its wait goes on.
func TestEachActionTellsThatItWaitsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		var come atomic.Int32 // how many actions have what they wait for
		await := func(name string, number int32) job.Action {
			return job.Action{Name: name, NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome {
				if come.Load() >= number {
					return job.Done()
				}
				return job.Wait("the host", time.Minute)
			}}
		}
		d := definition("work", await("one", 1), await("two", 2))
		d.WaitsOn = func(context.Context, job.Tx, *job.Job) (time.Duration, string, error) {
			return time.Minute, "the host is silent", nil
		}
		defer h.runner("a", h.Store, false, d)()
		id := h.insert("work")
		for number := range int32(2) {
			time.Sleep(10 * time.Minute)
			come.Store(number + 1)
			must.OK(t, h.Do(t.Context(), func(tx job.Tx) error { return h.Signal(tx, job.Subject{Kind: "thing", ID: "work"}) }))
		}
		j := h.await(id, time.Hour, ended)
		want := []string{"one: failed: Timeout reached while waiting for the host: the host is silent", "two: failed: Timeout reached while waiting for the host: the host is silent"}
		if got := h.errorsOf(t, j.Subject); !slices.Equal(got, want) || j.Problem != "" {
			t.Errorf("the job ended with %q, and the timeline says %q; want no problem, and %q", j.Problem, got, want)
		}
	})
}

// TestBackgroundTimeOutsAreNotTold: the time-out of a job in the background is no event of its subject.
func TestBackgroundTimeOutsAreNotTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		d := definition("work", job.Action{Name: "await", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Wait("the host", time.Minute) }})
		d.Class = job.Background
		defer h.runner("a", h.Store, false, d)()
		j := &job.Job{Kind: "work", Class: job.Background, Subject: job.Subject{Kind: "thing", ID: "work"}}
		must.OK(t, h.Do(t.Context(), func(tx job.Tx) error { return h.Insert(tx, j) }))
		if done := h.await(j.ID, time.Hour, ended); !done.TimedOut() {
			t.Errorf("the job ended with %q, want a time-out", done.Problem)
		}
		if got := h.errorsOf(t, j.Subject); len(got) != 0 {
			t.Errorf("the timeline says %q, want nothing", got)
		}
	})
}

// errorsOf are the texts of the error events of a subject.
func (h *runnerWorld) errorsOf(t *testing.T, s job.Subject) (texts []string) {
	t.Helper()
	for _, e := range must.Get(h.Events(t.Context(), s, 0, 100))(t) {
		if e.Severity == "error" {
			texts = append(texts, e.Text)
		}
	}
	return texts
}
