package store

import (
	"sync"
	"time"

	"salvor/problem"
)

// writeHealth tells whether the engine accepts changes, by the result of the newest one.
type writeHealth struct {
	mu    sync.Mutex
	since time.Time
	why   string
}

// markHealthy records a success. It tells whether the last change before had failed.
func (m *writeHealth) markHealthy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	worse := m.why != ""
	m.why = ""
	return worse
}

// markUnhealthy records an error that only the engine caused, and tells whether it is the first one since a success.
func (m *writeHealth) markUnhealthy(now func() time.Time, raw, told error) bool {
	if !problem.Is(told, problem.Unavailable) || problem.Is(raw, problem.Unavailable) && !problem.IsUnconfirmed(raw) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.why == ""
	if first {
		m.since = now()
	}
	m.why = problem.Public(told)
	return first
}

// WriteFailure tells since when the database takes no changes, and why; empty: it does.
func (s *Store) WriteFailure() (since time.Time, why string) {
	s.mood.mu.Lock()
	defer s.mood.mu.Unlock()
	return s.mood.since, s.mood.why
}
