package api

import (
	"context"
	"net/http"
	"net/netip"
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

// from is a context of a request of this source.
func from(t *testing.T, source string) context.Context {
	return context.WithValue(t.Context(), requestStateKey, &requestState{source: netip.MustParseAddr(source)})
}

// TestMemoryAsksAFewOfASource: one source has an eighth of the questions under way, and gets its places back.
func TestMemoryAsksAFewOfASource(t *testing.T) {
	m := NewMemory[int](MemoryLimits{Most: 16, Refuse: time.Hour, Question: time.Minute}, time.Now)
	hold, began := make(chan struct{}), make(chan struct{}, 16)
	slow := func(context.Context) (Verdict[int], error) {
		began <- struct{}{}
		<-hold
		return Verdict[int]{Value: 1}, nil
	}
	done := make(chan error, 16)
	ask := func(ctx context.Context, name string) { _, err := m.Find(ctx, name, slow); done <- err }
	for _, name := range []string{"a", "b"} {
		go ask(from(t, "192.0.2.1"), name)
		<-began
	}
	if _, err := m.Find(from(t, "192.0.2.1"), "c", slow); Status(err) != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "your address") {
		t.Errorf("the third of one source: %v", err)
	}
	go ask(from(t, "192.0.2.1"), "a") // is no question of its own
	go ask(from(t, "192.0.2.2"), "c")
	<-began
	go ask(t.Context(), "d")
	<-began
	close(hold)
	for range 5 {
		must.OK(t, <-done)
	}
	if len(m.sources) != 0 || len(m.asked) != 0 {
		t.Errorf("after all: sources %v, %d questions", m.sources, len(m.asked))
	}
	must.Get(m.Find(from(t, "192.0.2.1"), "e", slow))(t)
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
