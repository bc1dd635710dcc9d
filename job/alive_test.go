package job_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// TestNothingIsSentWhileTheLeaseRunsOut: a conductor that cannot renew its lease sends no request in the last second of it, for a
// request may last that long; its actions end with the lease.
func TestNothingIsSentWhileTheLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunnerWorld(t)
		defer h.Close()
		m := &mute{Store: h.Store}
		var ends atomic.Int64
		began := time.Now()
		act := job.Action{Name: "wait", NoUndo: none, Deadline: time.Hour, Do: func(ctx context.Context, _ *job.Run) job.Outcome {
			if ends.Load() > 0 {
				return job.Done()
			}
			<-ctx.Done()
			ends.Store(int64(time.Since(began)))
			return job.From(ctx.Err())
		}}
		r := must.Get(job.NewRunner(job.Config{
			Store: m, Definitions: []job.Definition{definition("work", act)}, Workers: 1, Leased: true, Now: time.Now, Log: quiet, Die: func(why string) { panic(why) },
			Conductor: job.Conductor{ID: "a", Incarnation: "1", Hostname: "a", Groups: []string{""}, Description: json.RawMessage("{}")},
		}))(t)
		must.OK(t, r.Join(t.Context()))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = r.Run(ctx, time.Second) }()
		defer func() { cancel(); <-done }()
		id := h.insert("work")
		h.await(id, 5*time.Second, func(j job.Job) bool { return j.Owner == "a/1" })
		time.Sleep(10 * time.Second)
		if err := r.Alive(); err != nil {
			t.Errorf("while its beats are taken: %v", err)
		}
		m.on.Store(true)
		for r.Alive() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		if err := r.Alive(); !problem.Is(err, problem.Unavailable) {
			t.Error(err)
		}
		refused := time.Since(began)
		time.Sleep(2 * time.Second)
		if left := time.Duration(ends.Load()) - refused; left < 900*time.Millisecond || left > 1100*time.Millisecond {
			t.Errorf("requests are refused %s before the actions end, want 1s", left)
		}
		m.on.Store(false)
		h.await(id, time.Minute, ended)
		if err := r.Alive(); err != nil {
			t.Errorf("with a lease again: %v", err)
		}
	})
}
