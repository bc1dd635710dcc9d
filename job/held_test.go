package job_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/test/must"
)

// TestAJobThatKillsConductorsIsHeld: a job whose owners ended four times during one action is not begun at once by the next one.
func TestAJobThatKillsConductorsIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		id := h.insert("deadly")
		for range 4 {
			dead := job.Conductor{ID: "dead", Incarnation: "1", Hostname: "dead", Groups: []string{""}}
			must.OK(t, h.Register(context.Background(), dead))
			if got, err := h.Claim(context.Background(), dead.Owner(), time.Now(), []string{""}, map[job.Kind]int{"deadly": 1}, 1); err != nil || len(got) != 1 {
				t.Fatalf("claimed %d jobs, %v", len(got), err)
			}
			must.OK(t, h.Retire(context.Background(), dead))
			time.Sleep(time.Second)
		}
		var runs atomic.Int64
		action := job.Action{Name: "kill", NoUndo: none, Do: func(context.Context, *job.Run) job.Outcome {
			runs.Add(1)
			return job.Done()
		}}
		defer h.runner("a", h.Store, false, definition("deadly", action))()
		time.Sleep(8 * time.Second)
		if n := runs.Load(); n != 0 {
			t.Errorf("the action began %d times within 8 s of the fourth crash", n)
		}
		h.await(id, 30*time.Second, ended)
		if n := runs.Load(); n != 1 {
			t.Errorf("the action was done %d times in the end", n)
		}
	})
}
