package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"salvor/job"
	"salvor/record"
)

const incarnationColumns = `id, counter, held_at, held_reason, held_detail`

// proveIncarnation gives a database its id when it is opened for the first time.
func (s *Store) proveIncarnation(tx *Tx) error {
	_, err := tx.exec(`INSERT INTO incarnation (num, id, counter) VALUES (1, $1, 1) ON CONFLICT DO NOTHING`, newIncarnationID())
	return err
}

func newIncarnationID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

func scanIncarnation(r interface{ Scan(...any) error }) (record.Incarnation, error) {
	var i record.Incarnation
	var at sql.NullInt64
	var code, detail string
	err := r.Scan(&i.ID, &i.Counter, &at, &code, &detail)
	if at.Valid {
		i.Held = &record.Held{Since: moment(at.Int64), Code: code, Detail: detail}
	}
	return i, err
}

// Incarnation reads which history the database has, how far it has come, and whether it is held. A database that is older than this
// process has seen it is held by that.
func (s *Store) Incarnation(ctx context.Context) (record.Incarnation, error) {
	before := s.history.seen()
	i, err := s.incarnation(ctx, nil, `SELECT `+incarnationColumns+` FROM incarnation`)
	if err == nil && s.history.read(i, before) && i.Held == nil {
		if err = s.Hold(ctx, record.HeldWentBack, fmt.Sprintf("this process saw state %d of the database, and the database is at state %d", before.counter, i.Counter)); err == nil {
			i, err = s.incarnation(ctx, nil, `SELECT `+incarnationColumns+` FROM incarnation`)
		}
	}
	if err != nil {
		return i, fmt.Errorf("read the database's incarnation: %w", err)
	}
	return i, nil
}

// IncarnationIn reads the incarnation as a transaction sees it.
func (s *Store) IncarnationIn(ctx context.Context, t job.Tx) (record.Incarnation, error) {
	i, err := s.incarnation(ctx, t, `SELECT `+incarnationColumns+` FROM incarnation`)
	if err != nil {
		return i, fmt.Errorf("read the database's incarnation: %w", err)
	}
	return i, nil
}

func (s *Store) incarnation(ctx context.Context, t job.Tx, text string, args ...any) (i record.Incarnation, err error) {
	err = s.read(ctx, t, func(r *sql.Rows) (err error) {
		i, err = scanIncarnation(r)
		return err
	}, text, args...)
	return i, err
}

// Raise counts one further, and gives the incarnation as it is committed.
func (s *Store) Raise(ctx context.Context) (record.Incarnation, error) {
	return s.changeIncarnation(ctx, "raise the database's counter", `UPDATE incarnation SET counter = counter + 1 RETURNING `+incarnationColumns)
}

// Hold has everything that acts on the database stop until an operator releases it. What is held already stays as it is, with its first reason.
func (s *Store) Hold(ctx context.Context, code, detail string) error {
	_, err := s.changeIncarnation(ctx, "hold the database", `UPDATE incarnation SET held_at = COALESCE(held_at, $1),
		held_reason = CASE WHEN held_at IS NULL THEN CAST($2 AS TEXT) ELSE held_reason END,
		held_detail = CASE WHEN held_at IS NULL THEN CAST($3 AS TEXT) ELSE held_detail END RETURNING `+incarnationColumns,
		micros(s.stamp()), code, detail)
	return err
}

func (s *Store) changeIncarnation(ctx context.Context, what, text string, args ...any) (i record.Incarnation, err error) {
	var before seen
	err = s.Do(forLease(ctx, advanceTime), func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		before = tx.seen
		i, err = s.incarnation(ctx, t, text, args...)
		return err
	})
	if err != nil {
		s.history.changed() // whoever raises asks again whether anything was written
		return i, fmt.Errorf("%s: %w", what, err)
	}
	if s.history.read(i, before) && i.Held == nil {
		return s.Incarnation(ctx)
	}
	return i, nil
}

// incarnated is the step of the tables from which on a database has an incarnation.
const incarnated = 15

// Incarnation is Store.Incarnation of a database without its key; empty where it was never served by a release that has them.
func (d *Database) Incarnation(ctx context.Context) (i record.Incarnation, err error) {
	s, err := d.Schema(ctx)
	if err != nil || s.Version < incarnated {
		return i, err
	}
	i, err = scanIncarnation(d.tables.db.QueryRowContext(ctx, `SELECT `+incarnationColumns+` FROM incarnation`))
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return i, d.classify(err)
}

// raise is Store.Raise: a witness that is written afterwards is ahead of the backup.
func (d *Database) raise(ctx context.Context) error {
	i, err := d.Incarnation(ctx)
	if err != nil || i.ID == "" || i.Held != nil {
		return err
	}
	db := d.tables.db
	if e, file := d.engine.(*sqliteEngine); file { // whose connection for looking writes nothing
		if db, err = sql.Open("sqlite", sqliteDSN(e.path, Options{}, "")); err != nil {
			return err
		}
		defer db.Close()
	}
	if _, err = db.ExecContext(ctx, `UPDATE incarnation SET counter = counter + 1`); err != nil {
		return d.classify(fmt.Errorf("backup: raise the counter of %s: %w", d.url, err))
	}
	return nil
}

// FormerIncarnations gives the incarnations that the database had before, with the last counter that is known of each.
func (s *Store) FormerIncarnations(ctx context.Context) (map[string]int64, error) {
	out := map[string]int64{}
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var id string
		var counter int64
		err := r.Scan(&id, &counter)
		out[id] = counter
		return err
	}, `SELECT id, counter FROM former_incarnation`)
	if err != nil {
		return nil, fmt.Errorf("read the database's former incarnations: %w", err)
	}
	return out, nil
}
