package store

import (
	"sync"
	"time"

	"salvor/problem"
)

// failureMemory is how long one success does not make up for a failure: a disk that is nearly full takes a small change between large
// ones that it refuses.
const failureMemory = 3 * time.Second

// writeHealth tells whether the engine accepts changes, by the results of the newest ones.
type writeHealth struct {
	mu            sync.Mutex
	since, newest time.Time // the first failure and the newest one
	why           string
}

// markHealthy records a success. It tells whether that ends a time of failures.
func (m *writeHealth) markHealthy(now func() time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why == "" || now().Sub(m.newest) < failureMemory {
		return false
	}
	m.why = ""
	return true
}

// markUnhealthy records an error that only the engine caused, and tells whether a time of failures begins with it.
func (m *writeHealth) markUnhealthy(now func() time.Time, raw, classified error) bool {
	if !problem.Is(classified, problem.Unavailable) || problem.Is(raw, problem.Unavailable) && !problem.IsUnconfirmed(raw) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.why == ""
	m.newest = now()
	if first {
		m.since = m.newest
	}
	m.why = problem.Public(classified)
	return first
}

// WriteFailure tells since when the database takes no changes, and why; empty: it does.
func (s *storeCore) WriteFailure() (since time.Time, why string) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.since, s.health.why
}
