package store_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"salvor/job"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// TestNothingLeft: a closed store leaves no goroutine behind.
func TestNothingLeft(t *testing.T) {
	for _, fresh := range []func(testing.TB) storetest.Database{storetest.CopiedSQLite, storetest.CopiedPostgres} {
		d := fresh(t)
		before := goleak.IgnoreCurrent()
		s, err := store.Open(t.Context(), d.URL, d.Key, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Do(t.Context(), func(tx job.Tx) error {
			return s.Insert(tx, &job.Job{Kind: "work", Class: job.Background, Subject: job.Node("n")})
		})
		if _, readErr := s.NextDue(t.Context(), []string{""}, map[job.Kind]int{"work": 1}); err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		for range 2 {
			must.OK(t, s.Close())
		}
		// A call that was cancelled is drained beside; that ends by itself.
		for end := time.Now().Add(20 * time.Second); goleak.Find(before) != nil && time.Now().Before(end); {
		}
		goleak.VerifyNone(t, before)
	}
}
