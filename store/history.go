package store

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"salvor/problem"
	"salvor/record"
)

// history is the newest state of the database that this process saw committed.
type history struct {
	mu     sync.Mutex
	newest record.Incarnation
	// owner is the newest conductor of this process, beats its counter.
	owner string
	beats int64
	wrote bool
	// idleUntil is when claims begin though no host has told what it remembers.
	idleUntil time.Time
}

// seen is what a transaction knew of the history when it began. All of that is in what it reads, or the database went back.
type seen struct {
	id      string
	counter int64
	owner   string
	beats   int64
}

func (h *history) seen() seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	return seen{h.newest.ID, h.newest.Counter, h.owner, h.beats}
}

// read takes in an incarnation that was read or committed. It tells whether that is older than what was seen before.
func (h *history) read(i record.Incarnation, before seen) (wentBack bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.ID == before.id && i.Counter < before.counter {
		h.newest.Held = i.Held
		return true
	}
	if i.ID == h.newest.ID && i.Held == nil {
		i.Held = h.newest.Held // it was read before the hold: a release gives another id
	}
	if i.ID != h.newest.ID || i.Counter >= h.newest.Counter {
		h.newest = i
	}
	return false
}

func (h *history) beat(owner string, counter int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owner, h.beats = owner, counter
}

// changed notes that something was committed.
func (h *history) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote = true
}

// Wrote tells whether this process committed anything since the last call.
func (s *Store) Wrote() bool {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	wrote := s.history.wrote
	s.history.wrote = false
	return wrote
}

// Known is the incarnation as this process knows it, without a query.
func (s *Store) Known() record.Incarnation {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.newest
}

// Held tells why nothing may act on the database, as this process knows it, without a query; nil: it may.
func (s *Store) Held() *record.Held { return s.Known().Held }

// mayAct is the condition under which a conductor may claim a job or write a step of one: the database is not held, and it is not older
// than what this process has seen of it. The arguments are those of seen.acting, with the placeholders from the first number on.
func mayAct(first int) string {
	return fmt.Sprintf(`EXISTS (SELECT 1 FROM incarnation i WHERE i.held_at IS NULL AND (i.id <> $%d OR i.counter >= $%d))
		AND (CAST($%d AS TEXT) = '' OR NOT EXISTS (SELECT 1 FROM conductor c WHERE c.owner = $%d AND c.counter < $%d))`, first, first+1, first+2, first+2, first+3)
}

func (s seen) acting() []any { return []any{s.id, s.counter, s.owner, s.beats} }

// whyNotActing says why mayAct is false; nil: it is true.
func (s *Store) whyNotActing(tx *Tx) error {
	may := false
	if err := tx.each(func(*sql.Rows) error { may = true; return nil }, `SELECT 1 WHERE `+mayAct(1), tx.seen.acting()...); err != nil || may {
		return err
	}
	i, err := s.incarnation(tx.ctx, tx, `SELECT `+incarnationColumns+` FROM incarnation`)
	if err == nil {
		err = i.Held.Refusal()
	}
	if err == nil {
		err = problem.Unavailablef("Nothing is changed now: the database is older than this process has seen it; it will be held, see: %s", record.HeldNext)
	}
	return err
}

// readBeat looks at the counter that a beat has left. One that is not above the last one is of an older state of the database, which
// is held by the same transaction.
func (s *Store) readBeat(tx *Tx, owner string, counter int64) error {
	before := tx.seen
	if before.owner != owner || counter > before.beats {
		return nil
	}
	return s.holdIn(tx, record.HeldWentBack, fmt.Sprintf("conductor %s wrote its lease for the %dth time, and the database has it at %d", owner, before.beats, counter-1))
}

// holdIn is Hold inside of a transaction.
func (s *Store) holdIn(tx *Tx, code, detail string) error {
	_, err := tx.exec(`UPDATE incarnation SET held_at = $1, held_reason = $2, held_detail = $3 WHERE held_at IS NULL`, micros(s.stamp()), code, detail)
	return err
}

// StandBy has no job be claimed for so long; 0: from now on they are.
func (s *Store) StandBy(d time.Duration) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	switch {
	case d > 0:
		s.history.idleUntil = time.Now().Add(d)
	case !s.history.idleUntil.IsZero():
		s.history.idleUntil = time.Time{}
		s.wakeHere()
	}
}

// StandsBy tells whether no job is claimed now.
func (s *Store) StandsBy() bool {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.newest.Held != nil || time.Now().Before(s.history.idleUntil)
}

// Compare holds the database if a witness knows a later state of it, or another database. from names the witness. An empty database
// is not held: nothing can be lost by it.
func (s *Store) Compare(ctx context.Context, w record.Witness, from string) error {
	i, err := s.Incarnation(ctx)
	if err != nil {
		return err
	}
	former, err := s.FormerIncarnations(ctx)
	if err != nil {
		return err
	}
	code, detail := i.Judge(w, from, former)
	if code == "" || i.Held != nil {
		return nil
	}
	if empty, err := s.IsEmpty(ctx); err != nil || empty {
		return err
	}
	return s.Hold(ctx, code, detail)
}

// IsEmpty tells whether nothing is in the database that could be acted on.
func (s *Store) IsEmpty(ctx context.Context) (bool, error) {
	empty := true
	err := s.read(ctx, nil, func(*sql.Rows) error { empty = false; return nil }, `SELECT 1 WHERE EXISTS (SELECT 1 FROM node)
		OR EXISTS (SELECT 1 FROM server) OR EXISTS (SELECT 1 FROM host) OR EXISTS (SELECT 1 FROM job)`)
	return empty, err
}
