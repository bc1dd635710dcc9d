package job_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/test/must"
)

// silentStore answers no claim: it waits for the end of the request, or for its own release if the request is ignored.
type silentStore struct {
	job.Store
	ignores bool
	release chan struct{}
}

func (s *silentStore) Claim(ctx context.Context, _ string, _ time.Time, _ []string, _ map[job.Kind]int, _ int) ([]job.Job, error) {
	if s.ignores {
		<-s.release
		return nil, context.Canceled
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSinceClaim tells a store that is slow from a claim loop that hangs.
func TestSinceClaim(t *testing.T) {
	for name, ignores := range map[string]bool{"slow": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRunnerWorld(t)
				defer h.Close()
				s := &silentStore{Store: h.Store, ignores: ignores, release: make(chan struct{})}
				r := must.Get(job.NewRunner(job.Config{
					Store: s, Workers: 1, Now: time.Now, Log: quiet, Die: func(why string) { panic(why) },
					Conductor: job.Conductor{ID: "a", Incarnation: "1", Hostname: "a", Groups: []string{""}, Description: json.RawMessage("{}")},
				}))(t)
				must.OK(t, r.Join(t.Context()))
				if got := r.SinceClaim(); got != 0 {
					t.Errorf("before the first claim: %s", got)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); _ = r.Run(ctx, time.Second) }()
				defer func() { cancel(); close(s.release); <-done }()
				time.Sleep(2 * time.Minute)
				if got := r.SinceClaim(); ignores != (got > time.Minute) {
					t.Errorf("the claim loop came round %s ago", got)
				}
			})
		})
	}
}
