package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"salvor/durable"
	"salvor/problem"
)

// Database is a database without its key: its tables are counted, changed and copied, and
// what is sealed in them stays sealed. It is for tools, beside the Store of a program that serves.
type Database struct {
	url     string
	tables  *databaseTables
	engine  sqlEngine // for its words about errors
	lock    *os.File
	release []func() error
}

// Use says what a Database is opened for.
type Use int

const (
	// Look reads beside whoever serves the database.
	Look Use = iota
	// Own keeps others away where the engine has a lock for that: problem.Conflict if somebody serves a SQLite file.
	Own
	// Make is Own and makes a SQLite file that is not there.
	Make
)

// OpenDatabase opens the database at url as Open reads it. It changes nothing. problem.NotFound if there is no such file.
func OpenDatabase(ctx context.Context, url string, use Use) (_ *Database, err error) {
	d := &Database{url: redactDatabaseURL(url)}
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	switch {
	case strings.HasPrefix(url, "sqlite:"):
		err = d.openFile(strings.TrimPrefix(url, "sqlite:"), use)
	case strings.HasPrefix(url, "postgres://"), strings.HasPrefix(url, "postgresql://"):
		err = d.openServer(ctx, url)
	default:
		err = problem.Invalidf("database: the URL must begin with sqlite: or postgres://")
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Database) openFile(path string, use Use) error {
	path, err := sqlitePath(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && use != Make {
		return problem.NotFoundf("database: there is no file %s", path)
	}
	more := "&_pragma=query_only(1)"
	if use != Look {
		more = ""
		if d.lock, err = lockFile(path + ".lock"); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("database: %w", err)
		}
		if err := f.Close(); err != nil {
			return err
		}
		if err := checkHardLinks(path); err != nil {
			return err
		}
	}
	db, err := sql.Open("sqlite", sqliteDSN(path, Options{}, more))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	d.release, d.engine = append(d.release, db.Close), &sqliteEngine{path: path}
	d.tables, err = newTables(db, sqliteDialect)
	return err
}

func (d *Database) openServer(ctx context.Context, url string) error {
	config, _, err := postgresConfig(url, PoolNone, true)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connectorOf(config, new(atomic.Int32)))
	d.release, d.engine = append(d.release, db.Close), &postgresEngine{}
	db.SetMaxOpenConns(2)
	if err := db.PingContext(ctx); err != nil {
		return d.classify(refusedByPooler(err))
	}
	if err := checkPooler(ctx, config, PoolNone); err != nil {
		return d.classify(err)
	}
	d.tables, err = postgresTables(db)
	return err
}

// Close lets the database go. A second call does nothing more.
func (d *Database) Close() error {
	var errs []error
	for _, release := range slices.Backward(d.release) {
		errs = append(errs, release())
	}
	if d.lock != nil {
		errs = append(errs, durable.Unlock(d.lock))
	}
	d.release, d.lock = nil, nil
	return errors.Join(errs...)
}

func (d *Database) classify(err error) error {
	if err == nil || d.engine == nil {
		return err
	}
	return d.engine.classify(err)
}

// URL names the database without its password.
func (d *Database) URL() string { return d.url }

// CheckFile says why salvor serve would refuse the file of a SQLite database that a look may still read: the file has a second name.
func (d *Database) CheckFile() error {
	if e, ok := d.engine.(*sqliteEngine); ok {
		return checkHardLinks(e.path)
	}
	return nil
}

// Engine is its kind: "sqlite" or "postgres".
func (d *Database) Engine() string { return d.tables.dialect.name }

// redactDatabaseURL takes the password out of a URL.
func redactDatabaseURL(raw string) string {
	if strings.HasPrefix(raw, "sqlite:") {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "postgres://(unreadable)"
	}
	if q := u.Query(); q.Has("password") {
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

// Schema tells how far the tables have come.
func (d *Database) Schema(ctx context.Context) (Schema, error) {
	s, err := d.tables.schema(ctx)
	return s, d.classify(err)
}

// releasedSchema does the work of Schema. problem.Conflict if a build between releases made the tables.
func (d *Database) releasedSchema(ctx context.Context) (Schema, error) {
	s, err := d.Schema(ctx)
	if err == nil {
		err = s.checkReleased()
	}
	return s, err
}

// Migrate takes the steps that are missing, each in a transaction of its own, and tells of each that was taken. Programs
// that serve the database go on meanwhile, unless a step ends what theirs need: then it is problem.Conflict while one lives.
func (d *Database) Migrate(ctx context.Context, tell func(Step)) error {
	s, err := d.releasedSchema(ctx)
	if err != nil {
		return err
	}
	if s.State() == SchemaTooNew || s.State() == SchemaAhead {
		return problem.Conflictf("database: its tables are at schema %d already, and this program knows %d: nothing is to be done", s.Version, s.Program)
	}
	for _, step := range s.Pending {
		if step.Contracts <= s.Oldest || s.Version == 0 {
			continue
		}
		living, err := d.Living(ctx)
		if err != nil {
			return err
		}
		if len(living) > 0 {
			return problem.Conflictf("database: step %d (%s) ends what programs before schema %d need, and programs serve it on: %s; have every salvor run a release that knows schema %d, stop them, and run this again",
				step.Version, step.Name, step.Contracts, strings.Join(living, ", "), step.Contracts)
		}
	}
	return d.classify(d.tables.up(ctx, s.Program, tell))
}

// lifeSign is how long a program that can still act leaves its counter alone at most, and something more: a conductor that
// cannot beat stops itself after five seconds.
const lifeSign = 7500 * time.Millisecond

// Living names the hosts whose programs count in the database now: conductors as such, and whoever knows a key of the secrets. Where the database is locked for us nobody can.
func (d *Database) Living(ctx context.Context) ([]string, error) {
	if d.lock != nil {
		return nil, nil
	}
	before, err := d.beats(ctx)
	if err != nil || len(before) == 0 {
		return nil, err
	}
	if !sleepContext(ctx, lifeSign) {
		return nil, ctx.Err()
	}
	after, err := d.beats(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for owner, now := range after {
		if was, known := before[owner]; !known || was.counter != now.counter {
			out = append(out, now.host)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// keyHolderSchema is the step of the tables from which on every program that serves says which keys it knows.
const keyHolderSchema = 8

type conductorBeat struct {
	host    string
	counter int64
}

func (d *Database) beats(ctx context.Context) (map[string]conductorBeat, error) {
	out := map[string]conductorBeat{}
	s, err := d.releasedSchema(ctx)
	if err != nil {
		return nil, err
	}
	text := `SELECT owner, hostname, counter FROM conductor`
	if s.Version >= keyHolderSchema {
		text += ` UNION ALL SELECT 'key ' || id, host, beats FROM seal_holder`
	}
	rows, err := d.tables.db.QueryContext(ctx, text)
	if err != nil {
		return nil, d.classify(fmt.Errorf("database: look for programs that serve it: %w", err))
	}
	defer rows.Close()
	for rows.Next() {
		var owner string
		var b conductorBeat
		if err := rows.Scan(&owner, &b.host, &b.counter); err != nil {
			return nil, err
		}
		out[owner] = b
	}
	return out, d.classify(rows.Err())
}

// Size is that of the database in bytes.
func (d *Database) Size(ctx context.Context) (int64, error) {
	n, err := queryNumber(ctx, d.tables.db, d.tables.dialect.size)
	return n, d.classify(err)
}

// sqlitePath is the file that a URL names.
func sqlitePath(path string) (string, error) {
	if path == "" || strings.HasPrefix(path, ":") {
		return "", problem.Invalidf("database: sqlite: wants the path of a file, as in sqlite:/var/lib/salvor/salvor.db")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return resolveLink(path)
}
