package serve

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPulse: however many strangers ask for our health, the database is asked once a second; a failure is not remembered.
func TestPulse(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	u := databaseProbe{now: func() time.Time { return at }}
	var asked atomic.Int32
	var fault error
	crowd := func(n int, want int32, err error) {
		t.Helper()
		asked.Store(0)
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				got := u.feel(t.Context(), func(context.Context) error {
					asked.Add(1)
					return fault
				})
				if !errors.Is(got, err) {
					t.Errorf("%v, want %v", got, err)
				}
			})
		}
		all.Wait()
		if asked.Load() != want {
			t.Errorf("the database was asked %d times, want %d", asked.Load(), want)
		}
	}
	crowd(100, 1, nil)
	at = at.Add(pulseAge - 1)
	crowd(100, 0, nil)
	at = at.Add(1)
	fault = errors.New("away")
	crowd(1, 1, fault)
	fault = nil
	crowd(100, 1, nil)
}
