package store_test

import (
	"log/slog"
	"sync"
	"testing"

	"salvor/store"
	"salvor/store/storetest"
)

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
