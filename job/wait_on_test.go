package job_test

import (
	"context"
	"slices"
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
		if took := time.Since(began); !j.TimedOut() || took < 26*time.Minute || took > 27*time.Minute || asked != 5 {
			t.Errorf("after %s and %d questions the job ended with %q; want a time-out after 26 min and 5", took, asked, j.Problem)
		}
		var failures []string
		for _, e := range must.Get(h.Events(t.Context(), j.Subject, 0, 100))(t) {
			if e.Severity == "error" {
				failures = append(failures, e.Text)
			}
		}
		if want := []string{"await: failed: Timeout reached while waiting for the host: the host is silent", "await: failed: Timeout reached while waiting for the host"}; !slices.Equal(failures, want) {
			t.Errorf("the timeline says %q, want %q", failures, want)
		}
	})
}
