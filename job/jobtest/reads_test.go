package jobtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"salvor/job"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// readingWorld is a world whose operation reads the store a number of times.
func readingWorld(t *testing.T, reads int) *World {
	t.Helper()
	key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	st := must.Get(store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "s.db"), key, store.Options{NoSync: true, Logger: log}))(t)
	t.Cleanup(func() { _ = st.Close() })
	subject, done := job.Subject{Kind: "thing", ID: "a"}, 0
	read := func(ctx context.Context, r *job.Run) job.Outcome {
		for ; done < reads; done++ { // a read that failed is made again, as the next one
			if _, err := st.Job(ctx, nil, r.ID); err != nil {
				done++
				return job.From(err)
			}
		}
		return job.Done()
	}
	return &World{
		Store: st, Kind: "work", Subject: subject, Conductor: job.Conductor{ID: "c", Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
		Definitions: []job.Definition{{Kind: "work", Version: 1, Class: job.Operation, NoDeadline: "a test", Actions: []job.Action{{Name: "read", NoUndo: "a test", Do: read}}}},
		Start: func(t *testing.T) {
			must.OK(t, st.Do(context.Background(), func(tx job.Tx) error {
				return st.Insert(tx, &job.Job{Kind: "work", Class: job.Operation, Subject: subject})
			}))
		},
		Poke: func() {}, Picture: func(*testing.T) string { return "" },
	}
}

// TestReadsThatAreNotReached: a run that ends before its read was reached is made once more, and a read that is not reached then either is counted.
func TestReadsThatAreNotReached(t *testing.T) {
	for name, c := range map[string]struct {
		reads []int // of each run, the undisturbed one first
		want  string
	}{
		"all are reached":             {[]int{2, 2, 2}, "2 failed, 0 not reached in two runs"},
		"one at the second run":       {[]int{2, 2, 1, 2}, "2 failed, 0 not reached in two runs"},
		"one is reached by neither":   {[]int{2, 2, 1, 1}, "1 failed, 1 not reached in two runs"},
		"the first at the second run": {[]int{2, 0, 2, 2}, "2 failed, 0 not reached in two runs"},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			fresh := func(t *testing.T) *World {
				runs++
				return readingWorld(t, c.reads[min(runs, len(c.reads))-1])
			}
			clean := fresh(t)
			counted := &readFault{kind: clean.Kind}
			want := runWithReads(t, clean, clean.Store, counted)
			count := failReads(t, fresh, func() bool { return true }, counted, want)
			if got := fmt.Sprint(count); got != c.want || runs != len(c.reads) {
				t.Errorf("with %d reads in the runs, there were %d runs: %s; want %d runs: %s", c.reads, runs, got, len(c.reads), c.want)
			}
		})
	}
}
