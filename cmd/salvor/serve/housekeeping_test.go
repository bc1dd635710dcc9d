package serve

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"salvor/config"
	"salvor/job"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
)

// TestHistoryIsPrunedAsOftenAsTheConfigurationSays: also where that is more often than other housekeeping.
func TestHistoryIsPrunedAsOftenAsTheConfigurationSays(t *testing.T) {
	s, _ := storetest.SQLite(t)
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error {
		for range 5 {
			if err := s.Append(tx, job.Event{Subject: job.Node("a"), At: time.Now().Add(-time.Hour)}); err != nil {
				return err
			}
		}
		return nil
	}))
	cfg := &config.Config{}
	cfg.Conductor.NodeHistoryCleanupInterval, cfg.Conductor.NodeHistoryMaxEntries = 10*time.Millisecond, 2
	p := &ControlPlane{cfg: cfg, Store: s, log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.runJanitor(ctx) }()
	defer func() { stop(); <-done }()
	fixture.Poll(t, "two events are left", func() bool { return len(must.Get(s.Events(t.Context(), job.Node("a"), 0, 10))(t)) == 2 })
}
