package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"salvor/durable"
	"salvor/problem"
	"salvor/record"
)

// Copied is what a copy of one table came to.
type Copied struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
	// Digest is of all rows whatever their order, the same on both engines.
	Digest string `json:"digest"`
}

// Copy fills an empty database with all that this one holds: every row as it is, sealed secrets sealed, serial numbers and
// where they go on. It is one look at the source and one transaction of the destination, read back and compared before it is committed.
//
// problem.Conflict if a program serves the source, if the source's tables are not at this program's schema, or if the destination
// holds anything. tell hears of each table when it begins with its number of rows, and when it is done.
func (d *Database) Copy(ctx context.Context, to *Database, tell func(c Copied, done bool)) ([]Copied, error) {
	living, err := d.Living(ctx)
	if err != nil {
		return nil, err
	}
	if len(living) > 0 {
		return nil, problem.Conflictf("database: %s is served on: %s; stop every salvor serve of it first, or what they do meanwhile is lost", d.url, strings.Join(living, ", "))
	}
	s, err := d.releasedSchema(ctx)
	if err != nil {
		return nil, err
	}
	if s.Version != s.Program {
		return nil, problem.Conflictf("database: %s is at schema %d and this program copies schema %d; run: salvor db migrate", d.url, s.Version, s.Program)
	}
	if err := to.upTo(ctx, s.Version); err != nil {
		return nil, err
	}
	if err := d.makeWeeks(ctx, to); err != nil {
		return nil, err
	}
	held := record.Held{Since: time.Now(), Code: record.HeldCopied, Detail: "salvor db copy copied it to " + to.url + " at " + time.Now().UTC().Format(time.RFC3339)}
	return d.copyTables(ctx, to, tableCopy{noWriters: true, markSource: &held}, tell)
}

// Backup writes all that the database holds at one moment into a new SQLite file, which Copy takes back, while programs go on
// serving it. It takes a database of an older schema too. problem.Conflict if the file is there already.
func (d *Database) Backup(ctx context.Context, file string, tell func(c Copied, done bool)) (_ []Copied, err error) {
	s, err := d.releasedSchema(ctx)
	switch {
	case err != nil:
		return nil, err
	case s.Version == 0:
		return nil, problem.Conflictf("database: %s has no tables: there is nothing to back up", d.url)
	case s.Version > s.Program:
		return nil, problem.Conflictf("database: %s is at schema %d and this program knows %d; back it up with the newer salvor", d.url, s.Version, s.Program)
	}
	if _, err := os.Lstat(file); err == nil {
		return nil, problem.Conflictf("backup: %s is there already", file)
	}
	draft := file + ".partial"
	if _, err := os.Lstat(draft); err == nil {
		return nil, problem.Conflictf("backup: %s is there already, of a backup that runs or was cut off; remove it if none runs", draft)
	}
	to, err := OpenDatabase(ctx, "sqlite:"+draft, Make)
	if err != nil {
		return nil, err
	}
	var done []Copied
	defer func() {
		if err == nil {
			err = to.checkpoint(ctx)
		}
		if err = errors.Join(err, to.Close()); err == nil {
			err = readBack(ctx, draft, done)
		}
		for _, end := range []string{".lock", "-wal", "-shm"} {
			_ = os.Remove(draft + end)
		}
		if err != nil {
			_ = os.Remove(draft)
			return
		}
		err = publishBackupFile(draft, file)
	}()
	if err := to.upTo(ctx, s.Version); err != nil {
		return nil, err
	}
	if err := d.raise(ctx); err != nil {
		return nil, err
	}
	held := record.Held{Since: time.Now(), Code: record.HeldBackup, Detail: "salvor db backup made it of " + d.url + " at " + time.Now().UTC().Format(time.RFC3339)}
	done, err = d.copyTables(ctx, to, tableCopy{markCopy: &held}, tell)
	return done, err
}

// checkpoint brings what was committed from the journal beside a SQLite file into the file itself. A commit and the closing try that too,
// and keep the journal without a word where they cannot.
func (d *Database) checkpoint(ctx context.Context) error {
	var busy, pages, packed int64
	err := d.tables.db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &packed)
	if err == nil && (busy != 0 || pages != packed) {
		err = fmt.Errorf("%d of %d pages were brought from its journal into the file", packed, pages)
	}
	if err != nil {
		return d.classify(fmt.Errorf("backup: %s: %w", d.url, err))
	}
	return nil
}

// readBack compares a file, alone and as it lies there, with what was to be in it.
func readBack(ctx context.Context, file string, want []Copied) (err error) {
	if left, err := os.Stat(file + "-wal"); err == nil && left.Size() > 0 {
		return fmt.Errorf("backup: %s holds %d bytes that are not in the file", left.Name(), left.Size())
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?mode=ro&immutable=1&_pragma=query_only(1)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("backup: read %s back: %w", file, err)
	}
	defer func() { _ = tx.Rollback() }()
	s := &databaseSnapshot{tx, sqliteDialect}
	for _, c := range want {
		codec, err := s.columnsOf(ctx, c.Table)
		var have Copied
		if err == nil {
			have, err = s.digestOf(ctx, c.Table, codec)
		}
		if have.Table = c.Table; err == nil && have != c {
			err = fmt.Errorf("%d rows with digest %s are there, and %d with %s were written", have.Rows, have.Digest, c.Rows, c.Digest)
		}
		if err != nil {
			return fmt.Errorf("backup: read %s of %s back: %w", c.Table, file, err)
		}
	}
	return nil
}

// upTo makes the tables of a destination as the source has them.
func (d *Database) upTo(ctx context.Context, version int64) error {
	s, err := d.releasedSchema(ctx)
	if err == nil && s.Version < version {
		if err = d.tables.up(ctx, version, nil); err == nil {
			s.Version = version
		}
	}
	if err != nil {
		return d.classify(err)
	}
	if s.Version > version {
		return problem.Conflictf("database: %s is at schema %d already, beyond %d of what is to be copied; copy into a database that nobody has used", d.url, s.Version, version)
	}
	return nil
}

// makeWeeks makes the parts of the timeline in a destination that has such, for what the source holds of the last year.
func (d *Database) makeWeeks(ctx context.Context, to *Database) error {
	if to.Engine() != postgresDialect.name {
		return nil
	}
	now := time.Now()
	first, err := queryNumber(ctx, d.tables.db, `SELECT COALESCE(MIN(at), 0) FROM event WHERE at >= $1`, now.AddDate(-1, 0, 0).UnixMicro())
	if err != nil {
		return d.classify(err)
	}
	from := now.Add(-week)
	if first > 0 && first < from.UnixMicro() {
		from = time.UnixMicro(first)
	}
	return to.classify(addWeeks(ctx, to.tables.db, from, now.Add(weeksAhead*week)))
}

// publishBackupFile gives a finished file its name, for good even if the power goes.
func publishBackupFile(draft, file string) error {
	if err := os.Link(draft, file); err != nil { // not Rename, which would replace what somebody put there meanwhile
		return fmt.Errorf("backup: %w", err)
	}
	if err := os.Remove(draft); err != nil {
		return err
	}
	return durable.Names(filepath.Dir(file))
}

// tableCopy is one copy of all tables.
type tableCopy struct {
	// noWriters: nobody may write to the source meanwhile.
	noWriters bool
	from, to  *databaseSnapshot
	report    func(c Copied, done bool)
	// markCopy holds the copy from its beginning, markSource holds the source from the end of the copying; nil: no mark.
	markCopy, markSource *record.Held
}

// databaseSnapshot is one transaction over the tables of a database.
type databaseSnapshot struct {
	tx *sql.Tx
	sqlDialect
}

func (d *Database) copyTables(ctx context.Context, to *Database, p tableCopy, tell func(c Copied, done bool)) ([]Copied, error) {
	p.report = tell
	if tell == nil {
		p.report = func(Copied, bool) {}
	}
	held, err := d.sourceTables(ctx, p)
	if err != nil {
		return nil, d.classify(fmt.Errorf("database: %w", err))
	}
	from, err := d.tables.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: d.Engine() == postgresDialect.name && !p.noWriters})
	if err != nil {
		return nil, d.classify(fmt.Errorf("database: %w", err))
	}
	defer func() { _ = from.Rollback() }()
	into, err := to.tables.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, to.classify(fmt.Errorf("database: %w", err))
	}
	defer func() { _ = into.Rollback() }()
	p.from, p.to = &databaseSnapshot{from, d.tables.dialect}, &databaseSnapshot{into, to.tables.dialect}
	// The first statement of the transaction: what is committed while the locks are waited for is in what is read afterwards.
	if err := p.lockSource(ctx, held); err != nil {
		return nil, d.classify(fmt.Errorf("database: keep writers away: %w", err))
	}
	out, err := p.all(ctx, to.url)
	if err != nil {
		return nil, to.classify(d.classify(err))
	}
	if err := errors.Join(p.from.insertHold(ctx, p.markSource), p.from.refuseFormer(ctx, p.markSource)); err != nil {
		return nil, d.classify(fmt.Errorf("database: note in the source that it was copied: %w", err))
	}
	if err := into.Commit(); err != nil {
		return nil, to.classify(fmt.Errorf("database: %w", err))
	}
	if p.markSource != nil {
		if err := from.Commit(); err != nil {
			return nil, d.classify(fmt.Errorf("database: all is copied, but the source %s does not say so: never serve it again: %w", d.url, err))
		}
	}
	if to.Engine() == postgresDialect.name {
		_, _ = to.tables.db.ExecContext(ctx, "ANALYZE") // plans for what came in; without it the server does that by itself in a while
	}
	return out, nil
}

func (p tableCopy) all(ctx context.Context, name string) ([]Copied, error) {
	names, err := p.from.inOrder(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.claimDestination(ctx, names, name); err != nil {
		return nil, err
	}
	var out []Copied
	for _, table := range names {
		c, err := p.table(ctx, table)
		if err != nil {
			return nil, fmt.Errorf("database: copy %s: %w", table, err)
		}
		if slices.Contains(markedTables, table) && p.markCopy != nil {
			if c, err = p.markedCopy(ctx, c); err != nil {
				return nil, fmt.Errorf("database: mark the copy: %w", err)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// markedTables are those that the mark of a held copy changes.
var markedTables = []string{"incarnation", "setting"}

// markedCopy holds the copy, once each of the marked tables is there, and gives the new digest of its table.
func (p tableCopy) markedCopy(ctx context.Context, c Copied) (Copied, error) {
	mark := p.to.insertHold
	if c.Table == "setting" {
		mark = p.to.refuseFormer
	}
	if err := mark(ctx, p.markCopy); err != nil {
		return c, err
	}
	codec, err := p.to.columnsOf(ctx, c.Table)
	if err != nil {
		return c, err
	}
	return p.to.digestOf(ctx, c.Table, codec)
}

// refuseFormer keeps former releases from a database with a hold.
func (s *databaseSnapshot) refuseFormer(ctx context.Context, h *record.Held) error {
	if h == nil {
		return nil
	}
	_, err := s.tx.ExecContext(ctx, refuseFormer)
	return err
}

// insertHold writes the row of a hold in a database that is open without its key. refuseFormer goes with it.
func (s *databaseSnapshot) insertHold(ctx context.Context, h *record.Held) error {
	if h == nil {
		return nil
	}
	// A database that no release with incarnations has served has no row yet.
	_, err := s.tx.ExecContext(ctx, `INSERT INTO incarnation (num, id, counter, held_at, held_reason, held_detail) VALUES (1, $1, 1, $2, $3, $4)
		ON CONFLICT (num) DO UPDATE SET held_at = excluded.held_at, held_reason = excluded.held_reason, held_detail = excluded.held_detail
		WHERE incarnation.held_at IS NULL`, newIncarnationID(), toMicros(h.Since), h.Code, h.Detail)
	return err
}

// sourceTables names the tables of the source to which nobody may write, if there are such.
func (d *Database) sourceTables(ctx context.Context, p tableCopy) ([]string, error) {
	if !p.noWriters || d.Engine() != postgresDialect.name {
		return nil, nil
	}
	tx, err := d.tables.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	return (&databaseSnapshot{tx, d.tables.dialect}).textRows(ctx, d.tables.dialect.list, 1)
}

func (p tableCopy) lockSource(ctx context.Context, tables []string) error {
	if len(tables) == 0 {
		return nil
	}
	_, err := p.from.tx.ExecContext(ctx, "LOCK TABLE "+quoteIdentifiers(tables)+" IN SHARE MODE")
	return err
}

// claimDestination keeps others away from the destination, and refuses a destination that is not empty.
func (p tableCopy) claimDestination(ctx context.Context, names []string, url string) error {
	if p.to.name == postgresDialect.name {
		if _, err := p.to.tx.ExecContext(ctx, "LOCK TABLE "+quoteIdentifiers(names)+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
	}
	for _, table := range names {
		n, err := queryNumber(ctx, p.to.tx, "SELECT COUNT(*) FROM "+quoteIdentifier(table))
		if err == nil && n > 0 && table != ownTable {
			err = problem.Conflictf("database: %s is not empty: %s has %d rows; copy into a database that nobody has used", url, table, n)
		}
		if err != nil {
			return err
		}
	}
	_, err := p.to.tx.ExecContext(ctx, "DELETE FROM "+ownTable)
	return err
}

// ownTable is filled by every program that begins to serve, everywhere with the same.
const ownTable = "provision_state"

func quoteIdentifiers(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quoteIdentifier(n)
	}
	return strings.Join(quoted, ", ")
}

func quoteIdentifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
