package job_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// TestUndoWaits: an undo may pause until the outside is done, for as long as its action's deadline is; then it is given up, and told.
func TestUndoWaits(t *testing.T) {
	for name, enough := range map[string]int64{"comes": 4, "never comes": 1 << 40} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				var looks atomic.Int64
				stuck := make(chan string, 1)
				d := definition("work",
					job.Action{Name: "one", Deadline: 20 * time.Second, Do: func(context.Context, *job.Run) job.Outcome { return job.Done() },
						Undo: func(context.Context, *job.Run) job.Outcome {
							if looks.Add(1) < enough {
								return job.Pause(time.Second, "the outside")
							}
							return job.Done()
						}},
					job.Action{Name: "two", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome { return job.Fail(problem.Invalidf("no")) }})
				d.Stuck = func(_ context.Context, _ job.Tx, _ *job.Job, why string) error { stuck <- why; return nil }
				defer h.runner("a", h.Store, false, d)()
				began := time.Now()
				j := h.await(h.insert("work"), time.Minute, ended)
				took := time.Since(began)
				var waits []string
				for _, e := range must.Get(h.Events(t.Context(), j.Subject, 0, 100))(t) {
					if strings.Contains(e.Text, "waits for") {
						waits = append(waits, e.Text)
					}
				}
				// Who reads the newest event for the outcome of the request must not take the wait of an undo for work of the request.
				if want := []string{"undo one: waits for the outside"}; !slices.Equal(waits, want) {
					t.Errorf("the timeline says %q, want %q", waits, want)
				}
				if j.Problem != "no" {
					t.Errorf("problem %q", j.Problem)
				}
				if enough == 4 && (looks.Load() != 4 || len(stuck) != 0 || took > 10*time.Second) {
					t.Errorf("%d looks, stuck %d, after %s", looks.Load(), len(stuck), took)
				}
				if enough != 4 && (len(stuck) != 1 || took < 15*time.Second) {
					t.Errorf("%d looks, stuck %d, after %s", looks.Load(), len(stuck), took)
				}
			})
		})
	}
}
