package store

import (
	"path/filepath"
	"testing"
	"time"

	"salvor/job"
	"salvor/secret"
	"salvor/test/must"
)

// TestNodeHistoryCanBeSwitchedOff: [conductor]node_history = false keeps the events of nodes out of the timeline, and of nothing else.
func TestNodeHistoryCanBeSwitchedOff(t *testing.T) {
	for _, off := range []bool{false, true} {
		s := openForHistory(t, Options{NoNodeHistory: off})
		tellOld(t, s, job.Node("n"), 1)
		tellOld(t, s, job.Subject{Kind: "server", ID: "s"}, 1)
		of := func(subject job.Subject) int {
			all := must.Get(s.Events(t.Context(), subject, 0, 10))(t)
			return len(all)
		}
		if nodes, servers := of(job.Node("n")), of(job.Subject{Kind: "server", ID: "s"}); nodes == 0 != off || servers != 1 {
			t.Errorf("switched off %v: %d events of the node, %d of the server", off, nodes, servers)
		}
	}
}

// TestPruneInSmallBatches: [conductor]node_history_cleanup_batch_count bounds a statement, and not what a clean-up deletes.
func TestPruneInSmallBatches(t *testing.T) {
	s := openForHistory(t, Options{PruneBatch: 2})
	tellOld(t, s, job.Node("n"), 7)
	now := time.Now()
	if n, err := s.Prune(t.Context(), now.AddDate(0, 0, -30), now, 2); err != nil || n != 5 {
		t.Errorf("%d events deleted, %v; want 5", n, err)
	}
}

func openForHistory(t *testing.T, o Options) *Store {
	t.Helper()
	key := must.Get(secret.NewKey(make([]byte, 32)))(t)
	o.NoSync = true
	s := must.Get(Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "s.db"), key, o))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// tellOld appends events of a day ago.
func tellOld(t *testing.T, s *Store, subject job.Subject, n int) {
	t.Helper()
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error {
		for range n {
			if err := s.Append(tx, job.Event{Subject: subject, At: time.Now().Add(-24 * time.Hour), Type: "state", Text: "active"}); err != nil {
				return err
			}
		}
		return nil
	}))
}
