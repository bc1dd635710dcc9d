package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"salvor/access"
	"salvor/job"
	"salvor/problem"
)

// TestCommitErrors: a commit that was cut off may have been carried out, whoever reports the cut. A commit that the server refused
// was not.
func TestCommitErrors(t *testing.T) {
	for _, c := range []struct {
		err         error
		unconfirmed bool
	}{
		{&pgconn.PgError{Severity: "ERROR", Code: "40001"}, false},
		{&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "23505"}, false},
		{&pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01"}, true},
		{&pgconn.PgError{Severity: "FATAL", Code: "08P01", Message: "server conn crashed?"}, true}, // PgBouncer
		{&pgconn.PgError{Severity: "ERROR", Code: "08P01"}, true},
		{&pgconn.PgError{Severity: "PANIK", SeverityUnlocalized: "PANIC", Code: "58030"}, true},
		{errors.New("broken pipe"), true},
	} {
		if err := commitError(fmt.Errorf("commit: %w", c.err)); problem.IsUnconfirmed(err) != c.unconfirmed {
			t.Errorf("%v: %v", c.err, err)
		}
	}
	if err := commitError(nil); err != nil {
		t.Error(err)
	}
}

// TestChangesAreTold: a request learns that one of its own transactions was committed, and nothing of others.
func TestChangesAreTold(t *testing.T) {
	s := openHere(t)
	var changed atomic.Bool
	ctx := access.WithRequester(t.Context(), access.Requester{User: "ann", Changed: &changed})
	refused := errors.New("refused")
	if err := s.Do(ctx, func(job.Tx) error { return refused }); !errors.Is(err, refused) || changed.Load() {
		t.Errorf("rolled back: %v, changed %v", err, changed.Load())
	}
	if err := s.Do(ctx, insertsNode(s, "a")); err != nil || !changed.Load() {
		t.Errorf("committed: %v, changed %v", err, changed.Load())
	}
}
