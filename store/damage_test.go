package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"salvor/job"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// TestUnreadableRows: a job whose row is spoiled is claimed with a word of what is wrong with it, beside those that are not.
func TestUnreadableRows(t *testing.T) {
	spoil := map[string]string{
		"memo":   `UPDATE job SET memo = '{"half' WHERE id = $1`,
		"secret": `UPDATE job SET secret = 'nobody sealed this' WHERE id = $1`,
		"number": `UPDATE job SET attempt = 'many' WHERE id = $1`, // PostgreSQL does not let it in
	}
	for name, fresh := range map[string]func(testing.TB) storetest.Database{"SQLite": storetest.CopiedSQLite, "PostgreSQL": storetest.CopiedPostgres} {
		t.Run(name, func(t *testing.T) {
			s := storetest.Open(t, fresh(t))
			want := map[string]string{}
			for what, text := range spoil {
				j := add(t, s, what)
				if what == "number" && name == "PostgreSQL" {
					continue
				}
				must.OK(t, s.Exec(t.Context(), text, j.ID))
				want[j.ID] = what
			}
			add(t, s, "whole")
			jobs, err := s.Claim(t.Context(), "c/1", s.Now(), []string{""}, map[job.Kind]int{"work": 1}, 10)
			if err != nil || len(jobs) != len(spoil)+1 {
				t.Fatalf("claimed %d: %v", len(jobs), err)
			}
			for _, j := range jobs {
				what := want[j.ID]
				if what == "number" {
					what = "attempt"
				}
				if (j.Damage != "") != (what != "") || !strings.Contains(j.Damage, what) || j.Owner != "c/1" || j.Fence != 1 {
					t.Errorf("job %s (%s): damage %q, owner %q, fence %d", j.ID, want[j.ID], j.Damage, j.Owner, j.Fence)
				}
				j.State = job.Ended
				if err := s.Do(t.Context(), func(tx job.Tx) error { return s.Save(tx, &j, false) }); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if got := claimable(t, s); len(got) != 0 {
				t.Errorf("%d are left", len(got))
			}
		})
	}
}

func add(t *testing.T, s *store.Store, subject string) *job.Job {
	t.Helper()
	j := &job.Job{Kind: "work", Version: 1, Subject: job.Node(subject), Memo: map[string]string{"a": "b"}, Secret: secret.New("s3cret")}
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.Insert(tx, j) }))
	return j
}

func claimable(t *testing.T, s *store.Store) []job.Job {
	t.Helper()
	jobs := must.Get(s.Claim(context.Background(), "c/2", s.Now(), []string{""}, map[job.Kind]int{"work": 1}, 10))(t)
	return jobs
}

// TestServersClock: two processes whose machines' clocks are apart go by the server's.
func TestServersClock(t *testing.T) {
	d := storetest.CopiedPostgres(t)
	a, b := storetest.Open(t, d), storetest.Open(t, d)
	if apart := a.Now().Sub(b.Now()).Abs(); apart > time.Second {
		t.Errorf("%s apart", apart)
	}
	if off := time.Since(a.Now()).Abs(); off > 5*time.Second {
		t.Errorf("%s off this machine's, which is the server's", off)
	}
}
