package store

import (
	"context"
	"errors"
	"testing"

	"salvor/job"
	"salvor/problem"
)

// TestOutagesAreMarked: whoever gets an error of a database that is away can tell it from one of a machine that is.
func TestOutagesAreMarked(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"a commit that was not confirmed": wrapUnconfirmedCommit(errors.New("closed")),
		"a batch that was lost":           errBatchLost,
		"a store that is closed":          errWriterClosed,
		"a busy engine":                   unavailableError("it is busy", errors.New("locked")),
		"a file that was linked":          (&sqliteEngine{}).classify(&misplacedError{"it has two names", false}),
		"a read that failed":              noteOutage(context.Background(), problem.Unavailablef("database: it is away")),
	} {
		if !problem.IsDatabase(err) || !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: %v is of kind %s, marked as the database's: %v; want %s, marked", name, err, problem.KindOf(err), problem.IsDatabase(err), problem.Unavailable)
		}
	}
	if err := noteOutage(context.Background(), problem.NotFoundf("no such node")); problem.IsDatabase(err) || !problem.Is(err, problem.NotFound) {
		t.Errorf("a row that is missing: %v is marked as an outage of the database", err)
	}
}

// TestReadsMayBeMadeToFail: the error of job.BeforeRead is that of a read outside of a transaction, and of no other.
func TestReadsMayBeMadeToFail(t *testing.T) {
	t.Parallel()
	s := openForHistory(t, Options{})
	calls := 0
	ctx := job.WithBeforeRead(t.Context(), func(context.Context) error { calls++; return problem.Unavailablef("made to fail") })
	if _, err := s.Node(ctx, nil, "a"); !problem.IsDatabase(err) || calls != 1 {
		t.Errorf("a read: %v after %d calls; want an outage of the database after 1", err, calls)
	}
	err := s.Do(ctx, func(tx job.Tx) error {
		_, err := s.Node(ctx, tx, "a")
		return err
	})
	if !problem.Is(err, problem.NotFound) || calls != 1 {
		t.Errorf("a read in a transaction: %v after %d calls; want not found, and no further call", err, calls)
	}
}
