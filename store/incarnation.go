package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"salvor/job"
	"salvor/record"
)

const incarnationColumns = `id, counter, held_at, held_reason, held_detail`

// proveIncarnation gives a database its id when a process opens it for the first time.
func (s incarnationTables) proveIncarnation(tx *Tx) error {
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
		i.Held = &record.Held{Since: fromMicros(at.Int64), Code: code, Detail: detail}
	}
	return i, err
}

// Incarnation reads the id, the counter and the hold of the database. If the database is older than the state that this process has
// seen, Incarnation holds it. problem.Unavailable if a file of SQLite is not the file that was opened. `salvor serve`
// calls Incarnation each second.
func (s incarnationTables) Incarnation(ctx context.Context) (record.Incarnation, error) {
	if e, ok := s.engine.(*sqliteEngine); ok && e.files.check() != nil {
		s.history.changed()                                                  // so that the next Wrote is true, and a change shows that the files are back
		if err := s.Do(ctx, func(job.Tx) error { return nil }); err != nil { // the writer refuses it, with the words of check
			return record.Incarnation{}, err
		}
	}
	before := s.history.seen()
	i, err := s.IncarnationIn(ctx, nil)
	if err == nil && s.history.read(i, before) && i.Held == nil {
		if err = s.HoldDatabase(ctx, record.HeldWentBack, fmt.Sprintf("this process saw state %d of the database, and the database is at state %d", before.counter, i.Counter)); err == nil {
			i, err = s.IncarnationIn(ctx, nil)
		}
	}
	return i, err
}

// IncarnationIn reads the incarnation inside of a transaction.
func (s incarnationTables) IncarnationIn(ctx context.Context, t job.Tx) (record.Incarnation, error) {
	i, err := s.incarnation(ctx, t, `SELECT `+incarnationColumns+` FROM incarnation`)
	if err != nil {
		return i, fmt.Errorf("read the database's incarnation: %w", err)
	}
	return i, nil
}

func (s incarnationTables) incarnation(ctx context.Context, t job.Tx, text string, args ...any) (i record.Incarnation, err error) {
	err = s.read(ctx, t, func(r *sql.Rows) (err error) {
		i, err = scanIncarnation(r)
		return err
	}, text, args...)
	return i, err
}

// Raise increments the counter, and gives the committed incarnation.
func (s incarnationTables) Raise(ctx context.Context) (record.Incarnation, error) {
	return s.changeIncarnation(ctx, "raise the database's counter", "", `UPDATE incarnation SET counter = counter + 1 RETURNING `+incarnationColumns)
}

// Programs of releases without incarnations do not know a hold and act on a held database. While it is held, the oldest program that
// may serve is one that knows the hold, so an older one does not start. No step names this one as its oldest program, so the release
// of the database can tell this row from that of a step.
var (
	refuseFormer = `INSERT INTO setting (name, value) VALUES ('` + oldestSetting + `', '` + strconv.Itoa(incarnationSchema) + `')
		ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE CAST(setting.value AS BIGINT) < ` + strconv.Itoa(incarnationSchema)
	allowFormer = `DELETE FROM setting WHERE name = '` + oldestSetting + `' AND value = '` + strconv.Itoa(incarnationSchema) + `'`
)

// HoldDatabase stops everything that acts on the database until an operator releases it. If the database is held already, it keeps its first
// cause.
func (s incarnationTables) HoldDatabase(ctx context.Context, code, detail string) error {
	_, err := s.changeIncarnation(ctx, "hold the database", refuseFormer, `UPDATE incarnation SET held_at = COALESCE(held_at, $1),
		held_reason = CASE WHEN held_at IS NULL THEN CAST($2 AS TEXT) ELSE held_reason END,
		held_detail = CASE WHEN held_at IS NULL THEN CAST($3 AS TEXT) ELSE held_detail END RETURNING `+incarnationColumns,
		toMicros(s.timestamp()), code, detail)
	return err
}

// changeIncarnation runs first, if it is not empty, and text, which returns the row.
func (s incarnationTables) changeIncarnation(ctx context.Context, what, first, text string, args ...any) (i record.Incarnation, err error) {
	var before knownHistory
	err = s.Do(forCounter(ctx, advanceTime), func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		before = tx.seen
		if first != "" {
			if _, err := tx.exec(first); err != nil {
				return err
			}
		}
		i, err = s.incarnation(ctx, t, text, args...)
		return err
	})
	if err != nil {
		s.history.changed() // so that the next Wrote is true and the caller tries again
		return i, fmt.Errorf("%s: %w", what, err)
	}
	if s.history.read(i, before) && i.Held == nil {
		return s.Incarnation(ctx)
	}
	return i, nil
}

// incarnationSchema is the first step of the tables with an incarnation.
const incarnationSchema = 15

// Incarnation does the work of Store.Incarnation in a database that is open without its key. It is empty if no release with
// incarnations has served the database.
func (d *Database) Incarnation(ctx context.Context) (i record.Incarnation, err error) {
	s, err := d.releasedSchema(ctx)
	if err != nil || s.Version < incarnationSchema {
		return i, err
	}
	i, err = scanIncarnation(d.tables.db.QueryRowContext(ctx, `SELECT `+incarnationColumns+` FROM incarnation`))
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return i, d.classify(err)
}

// Hold does the work of Store.Hold in a database that is open without its key, and gives the hold that counts: the first one.
// problem.Conflict if this program cannot serve the tables.
func (d *Database) Hold(ctx context.Context, detail string) (*record.Held, error) {
	s, err := d.releasedSchema(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Serveable(); err != nil {
		return nil, err
	}
	tx, err := d.tables.db.BeginTx(ctx, nil)
	if err == nil {
		defer func() { _ = tx.Rollback() }()
		held, at := &record.Held{Since: time.Now(), Code: record.HeldAsked, Detail: detail}, &databaseSnapshot{tx, d.tables.dialect}
		if err = at.insertHold(ctx, held); err == nil {
			err = at.refuseFormer(ctx, held)
		}
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return nil, d.classify(fmt.Errorf("hold %s: %w", d.url, err))
	}
	i, err := d.Incarnation(ctx)
	return i.Held, err
}

// raise does the work of Store.Raise before a backup. A witness that is written after that is ahead of the backup.
func (d *Database) raise(ctx context.Context) error {
	i, err := d.Incarnation(ctx)
	if err != nil || i.ID == "" || i.Held != nil {
		return err
	}
	db := d.tables.db
	if e, file := d.engine.(*sqliteEngine); file { // the connection for looking is read-only
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

// FormerIncarnations gives the earlier incarnations of the database, each with its last known counter, and those of lost witnesses.
func (s incarnationTables) FormerIncarnations(ctx context.Context) (map[string]int64, error) {
	return s.FormerIncarnationsIn(ctx, nil)
}

// FormerIncarnationsIn does the work of FormerIncarnations inside of a transaction.
func (s incarnationTables) FormerIncarnationsIn(ctx context.Context, t job.Tx) (map[string]int64, error) {
	out := map[string]int64{}
	err := s.read(ctx, t, func(r *sql.Rows) error {
		var id string
		var counter int64
		err := r.Scan(&id, &counter)
		out[id] = counter
		return err
	}, `SELECT incarnation, counter FROM lost_witness UNION ALL SELECT id, counter FROM former_incarnation`)
	if err != nil {
		return nil, fmt.Errorf("read the database's former incarnations: %w", err)
	}
	return out, nil
}
