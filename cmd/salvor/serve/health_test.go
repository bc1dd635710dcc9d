package serve

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/test/must"
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

// TestHealthTellsOfALinkedDatabase: nobody asks for a change, and /healthz says within seconds that the file got a second name.
func TestHealthTellsOfALinkedDatabase(t *testing.T) {
	h := newHistory(t)
	h.serve(func(p *ControlPlane) {
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { _ = p.watchHistory(ctx) })
		defer watching.Wait()
		defer stop()
		health := func() (int, string) {
			w := httptest.NewRecorder()
			p.health(true)(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/healthz", nil))
			return w.Code, w.Body.String()
		}
		if code, text := health(); code != http.StatusOK {
			t.Fatalf("at first: want 200, got %d: %s", code, text)
		}
		must.OK(t, os.Link(h.file, h.file+".link"))
		code, text := health()
		for end := time.Now().Add(20 * time.Second); code == http.StatusOK && time.Now().Before(end); code, text = health() {
			time.Sleep(20 * time.Millisecond)
		}
		if code != http.StatusServiceUnavailable || !strings.Contains(text, "2 names (hard links)") {
			t.Errorf("with a second name: want 503 with the words of the hard link, got %d: %s", code, text)
		}
	})
}
