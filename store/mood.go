package store

import (
	"sync"
	"time"

	"salvor/problem"
)

// mood is whether the engine takes changes, by what became of the newest.
type mood struct {
	mu    sync.Mutex
	since time.Time
	why   string
}

func (m *mood) better() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.why = ""
}

// worse notes an error that the engine alone was to blame for, and gives it back.
func (m *mood) worse(now func() time.Time, raw, told error) error {
	if !problem.Is(told, problem.Unavailable) || problem.Is(raw, problem.Unavailable) {
		return told
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why == "" {
		m.since = now()
	}
	m.why = told.Error()
	return told
}

// Trouble tells since when the database takes no changes, and why; empty: it does.
func (s *Store) Trouble() (since time.Time, why string) {
	s.mood.mu.Lock()
	defer s.mood.mu.Unlock()
	return s.mood.since, s.mood.why
}
