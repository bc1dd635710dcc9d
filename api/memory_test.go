package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
)

// TestMemoryIsBounded: bad credentials fill their own place, and never drive a good one out.
func TestMemoryIsBounded(t *testing.T) {
	m := NewMemory[int](MemoryLimits{Most: 50, Refuse: time.Hour, Question: time.Minute}, time.Now)
	hour := time.Now().Add(time.Hour)
	good := func(context.Context) (Verdict[int], error) { return Verdict[int]{7, hour, hour}, nil }
	bad := func(context.Context) (Verdict[int], error) {
		return Verdict[int]{}, &Error{Status: http.StatusUnauthorized}
	}
	if v, err := m.Find(t.Context(), "good", good); v != 7 || err != nil {
		t.Fatal(v, err)
	}
	for n := range 120 {
		if _, err := m.Find(t.Context(), strings.Repeat("t", n), bad); Status(err) != http.StatusUnauthorized {
			t.Fatal(err)
		}
	}
	if v, err := m.Find(t.Context(), "good", bad); v != 7 || err != nil || len(m.refused) > 50 || len(m.known) != 1 || len(m.asked) != 0 {
		t.Errorf("%d, %v: %d bad ones are remembered, %d good ones, %d are asked about", v, err, len(m.refused), len(m.known), len(m.asked))
	}
	m.Forget("good")
	if _, err := m.Find(t.Context(), "good", bad); Status(err) != http.StatusUnauthorized {
		t.Errorf("forgotten: %v", err)
	}
	for n := range 120 {
		must.Get(m.Find(t.Context(), "good"+strings.Repeat("t", n+1), good))(t)
	}
	if len(m.known) > 50 {
		t.Errorf("%d good ones are remembered", len(m.known))
	}
}

// TestMemoryAsksAFew: more different credentials than may be looked into at once are told to come again.
func TestMemoryAsksAFew(t *testing.T) {
	m := NewMemory[int](MemoryLimits{Most: 3, Refuse: time.Hour, Question: time.Minute}, time.Now)
	hold, began := make(chan struct{}), make(chan struct{})
	slow := func(context.Context) (Verdict[int], error) {
		began <- struct{}{}
		<-hold
		return Verdict[int]{Value: 1}, nil
	}
	done := make(chan error, 3)
	for _, name := range []string{"a", "b", "c"} {
		go func() {
			_, err := m.Find(t.Context(), name, slow)
			done <- err
		}()
		<-began
	}
	if _, err := m.Find(t.Context(), "d", slow); Status(err) != http.StatusServiceUnavailable {
		t.Errorf("the fourth: %v", err)
	}
	close(hold)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
