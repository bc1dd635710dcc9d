package store_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// busy fills a store with a job and a turn for each of some nodes.
func busy(t *testing.T, s *store.Store, nodes int) {
	t.Helper()
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error {
		for i := range nodes {
			id := fmt.Sprint("node-", i)
			if err := s.InsertNode(tx, &metal.Node{ID: id, Driver: "fake-hardware", ProvisionState: metal.Active}); err != nil {
				return err
			}
			if err := s.Insert(tx, &job.Job{ID: fmt.Sprint("job-", i), Kind: "work", Version: 1, Class: job.Background, Subject: job.Node(id)}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// claims takes some jobs and some turns, and gives their ids.
func claims(t *testing.T, s *store.Store, limit int) (jobs, turns []string) {
	t.Helper()
	now := s.Now().Add(time.Second)
	claimed := must.Get(s.Claim(t.Context(), "c/1", now, []string{""}, map[job.Kind]int{"work": 1}, limit))(t)
	for _, j := range claimed {
		jobs = append(jobs, j.ID)
	}
	nodes := must.Get(s.ClaimPower(t.Context(), metal.PowerTurn{Groups: []string{""}, Now: now, Soon: now, Next: now.Add(time.Hour)}, limit))(t)
	for _, n := range nodes {
		turns = append(turns, n.ID)
	}
	return jobs, turns
}

// TestClaimsPassEachOther: what another is about to claim is left to it, and is not waited for.
func TestClaimsPassEachOther(t *testing.T) {
	t.Parallel()
	d := storetest.CopiedPostgres(t)
	s := storetest.Open(t, d)
	busy(t, s, 2)
	db := must.Get(sql.Open("pgx", d.URL))(t)
	defer db.Close()
	other, err := db.BeginTx(t.Context(), nil)
	for _, text := range []string{`UPDATE job SET owner = 'other/1', state = 'running' WHERE id = 'job-0'`, `UPDATE power_turn SET due = due + 1 WHERE node_id = 'node-0'`} {
		if err == nil {
			_, err = other.ExecContext(t.Context(), text)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	if jobs, turns := claims(t, s, 1); fmt.Sprint(jobs, turns) != "[job-1] [node-1]" {
		t.Errorf("claimed %v and %v", jobs, turns)
	}
}

// TestClaimsKeepTheirLimit: however the server carries a claim out, it takes no more than was asked for.
func TestClaimsKeepTheirLimit(t *testing.T) {
	t.Parallel()
	d := storetest.CopiedPostgres(t)
	for _, off := range []string{"", "hashjoin mergejoin", "hashjoin mergejoin hashagg sort material", "nestloop mergejoin", "nestloop hashjoin", "indexscan bitmapscan"} {
		at := d
		for _, way := range strings.Fields(off) {
			at.URL += "&enable_" + way + "=off"
		}
		s := storetest.Open(t, at)
		execRaw(t, d, `DELETE FROM job`)
		execRaw(t, d, `DELETE FROM node`)
		busy(t, s, 40)
		if jobs, turns := claims(t, s, 3); len(jobs) != 3 || len(turns) != 3 {
			t.Errorf("without %q: %d jobs and %d turns were claimed", off, len(jobs), len(turns))
		}
	}
}

// TestManyBeginAtOnce: programs that start together on a database whose key has no row yet all serve.
func TestManyBeginAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.CopiedPostgres(t)
	must.OK(t, storetest.Open(t, d).Close())
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

// TestClaimsPassByDeadGroups: jobs of a group in which nobody lives are not in the way of those who look for work.
func TestClaimsPassByDeadGroups(t *testing.T) {
	t.Parallel()
	d := storetest.CopiedPostgres(t)
	s := storetest.Open(t, d)
	busy(t, s, 3)
	columns := strings.Join(queryColumn(t, d, `SELECT attname FROM pg_attribute WHERE attrelid = 'job'::regclass AND attnum > 0 AND attname NOT IN ('id', 'group_name')`), ", ")
	execRaw(t, d, `INSERT INTO job (id, group_name, `+columns+`) SELECT 'dead-' || i, 'dead', `+columns+` FROM job, generate_series(1, 10000) i WHERE id = 'job-0'`)
	execRaw(t, d, `UPDATE job SET due = due - 1 WHERE group_name = 'dead'`)
	execRaw(t, d, `ANALYZE job`)
	plan := strings.Join(queryColumn(t, d, `EXPLAIN (ANALYZE, BUFFERS) SELECT id FROM job WHERE owner = '' AND state IN ('ready', 'undoing') AND due > 0 AND group_name IN ('')
		AND (kind = 'work' AND version <= 1) ORDER BY due LIMIT 9`), "\n")
	if strings.Contains(plan, "Rows Removed by Filter") || !strings.Contains(plan, "job_claim") {
		t.Errorf("others are looked at:\n%s", plan)
	}
	if jobs, _ := claims(t, s, 9); len(jobs) != 3 {
		t.Errorf("claimed %v", jobs)
	}
}
