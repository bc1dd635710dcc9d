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

// databaseHistory is the newest committed state of the database that this process has seen.
type databaseHistory struct {
	mu     sync.Mutex
	newest record.Incarnation
	// owner is the newest conductor of this process, beats the counter of its lease.
	owner string
	beats int64
	wrote bool
	// idleUntil is the time at which claims begin even if no host has reported its witness.
	idleUntil time.Time
}

// knownHistory is the process's knowledge of the history at the begin of a transaction. If the database is older than that, it went back.
type knownHistory struct {
	id      string
	counter int64
	owner   string
	beats   int64
}

func (h *databaseHistory) seen() knownHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	return knownHistory{h.newest.ID, h.newest.Counter, h.owner, h.beats}
}

// read updates the history from an incarnation that was read or committed. wentBack: the incarnation is older than before.
func (h *databaseHistory) read(i record.Incarnation, before knownHistory) (wentBack bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.ID == before.id && i.Counter < before.counter {
		h.newest.Held = i.Held
		return true
	}
	if i.ID == h.newest.ID && i.Held == nil {
		i.Held = h.newest.Held // the read is older than the hold, because a release changes the id
	}
	if i.ID != h.newest.ID || i.Counter >= h.newest.Counter {
		h.newest = i
	}
	return false
}

// recordBeat remembers the owner of this process's lease and the counter of its last renewal.
func (h *databaseHistory) recordBeat(owner string, counter int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owner, h.beats = owner, counter
}

// changed records that this process committed something.
func (h *databaseHistory) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote = true
}

// Wrote tells whether this process committed anything since the last call.
func (s incarnationTables) Wrote() bool {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	wrote := s.history.wrote
	s.history.wrote = false
	return wrote
}

// Known gives the incarnation that this process has seen last, without a query.
func (s incarnationTables) Known() record.Incarnation {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.newest
}

// Held gives the cause of the hold that this process has seen last, without a query; nil: the database is not held.
func (s incarnationTables) Held() *record.Held { return s.Known().Held }

// mayAct is the SQL condition under which a conductor may claim a job or write a step of one. The database must not be held, and it
// must not be older than the state that this process has seen. seen.acting gives the arguments; first is the number of the first
// placeholder.
func mayAct(first int) string {
	return fmt.Sprintf(`EXISTS (SELECT 1 FROM incarnation i WHERE i.held_at IS NULL AND (i.id <> $%d OR i.counter >= $%d))
		AND (CAST($%d AS TEXT) = '' OR NOT EXISTS (SELECT 1 FROM conductor c WHERE c.owner = $%d AND c.counter < $%d))`, first, first+1, first+2, first+2, first+3)
}

func (s knownHistory) acting() []any { return []any{s.id, s.counter, s.owner, s.beats} }

// whyNotActing gives the reason why mayAct is false; nil: it is true.
func (s incarnationTables) whyNotActing(tx *Tx) error {
	may := false
	if err := tx.each(func(*sql.Rows) error { may = true; return nil }, `SELECT 1 WHERE `+mayAct(1), tx.seen.acting()...); err != nil || may {
		return err
	}
	i, err := s.incarnation(tx.ctx, tx, `SELECT `+incarnationColumns+` FROM incarnation`)
	if err == nil {
		err = i.Held.Refusal()
	}
	if err == nil {
		err = problem.Database(problem.Unavailablef("Nothing is changed now: the database is older than this process has seen it; it will be held, see: %s", record.HeldNext))
	}
	return err
}

// readBeat checks the counter of a conductor's lease after a heartbeat. If it is not above the last counter, the database is older:
// the same transaction holds it.
func (s incarnationTables) readBeat(tx *Tx, owner string, counter int64) error {
	before := tx.seen
	if before.owner != owner || counter > before.beats {
		return nil
	}
	return s.holdDatabase(tx, record.HeldWentBack, fmt.Sprintf("conductor %s wrote its lease for the %dth time, and the database has it at %d", owner, before.beats, counter-1))
}

// holdDatabase does the work of HoldDatabase inside of a transaction.
func (s incarnationTables) holdDatabase(tx *Tx, code, detail string) error {
	if _, err := tx.exec(refuseFormer); err != nil {
		return err
	}
	_, err := tx.exec(`UPDATE incarnation SET held_at = $1, held_reason = $2, held_detail = $3 WHERE held_at IS NULL`, toMicros(s.timestamp()), code, detail)
	return err
}

// StandBy stops all claims for the given time; 0: claims begin now.
func (s incarnationTables) StandBy(d time.Duration) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	switch {
	case d > 0:
		s.history.idleUntil = time.Now().Add(d)
	case !s.history.idleUntil.IsZero():
		s.history.idleUntil = time.Time{}
		s.notifyLocal()
	}
}

// StandsBy tells whether claims are stopped now.
func (s incarnationTables) StandsBy() bool {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.newest.Held != nil || time.Now().Before(s.history.idleUntil)
}

// Compare holds the database if a witness has a later state of it, or is of another database. from names the witness. An empty
// database is not held, because nothing of it can be lost.
func (s incarnationTables) Compare(ctx context.Context, w record.Witness, from string) error {
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
	return s.HoldDatabase(ctx, code, detail)
}

// IsEmpty tells whether the database has no nodes, servers, hosts and jobs.
func (s incarnationTables) IsEmpty(ctx context.Context) (bool, error) {
	empty := true
	err := s.read(ctx, nil, func(*sql.Rows) error { empty = false; return nil }, `SELECT 1 WHERE EXISTS (SELECT 1 FROM node)
		OR EXISTS (SELECT 1 FROM server) OR EXISTS (SELECT 1 FROM host) OR EXISTS (SELECT 1 FROM job)`)
	return empty, err
}
