package store_test

import (
	"database/sql"
	"log/slog"
	"sync"
	"testing"
	"time"

	"salvor/job"
	"salvor/store"
	"salvor/store/storetest"
)

// TestClaimsPassEachOther: a job that another is about to claim is left to it, and is not waited for.
func TestClaimsPassEachOther(t *testing.T) {
	t.Parallel()
	d := storetest.OnPostgres(t)
	s := storetest.Open(t, d)
	first, second := add(t, s, "first"), add(t, s, "second")
	db, err := sql.Open("pgx", d.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := db.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = other.ExecContext(t.Context(), `UPDATE job SET owner = 'other/1', state = 'running' WHERE id = $1`, first.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	began := time.Now()
	jobs, err := s.Claim(t.Context(), "c/1", s.Now(), []string{""}, map[job.Kind]int{"work": 1}, 1)
	if err != nil || len(jobs) != 1 || jobs[0].ID != second.ID {
		t.Errorf("claimed %+v after %s: %v", jobs, time.Since(began), err)
	}
}

// TestManyBeginAtOnce: programs that start together on a database whose key has no row yet all serve.
func TestManyBeginAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.OnPostgres(t)
	if err := storetest.Open(t, d).Close(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		execRaw(t, d, `DELETE FROM seal_key`)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				s, err := store.Open(t.Context(), d.URL, d.Key, store.Options{Logger: slog.New(slog.DiscardHandler), MaxConns: 2})
				if err != nil {
					t.Errorf("one of many: %v", err)
					return
				}
				_ = s.Close()
			})
		}
		all.Wait()
	}
}
