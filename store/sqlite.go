package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"salvor/durable"
	"salvor/problem"
)

// sqliteEngine has one writer and a pool of readers on one file, and a lock
// beside the file that keeps every other process out.
type sqliteEngine struct {
	path    string
	lock    *os.File
	write   *sql.DB
	read    *sql.DB
	writer  *sqliteWriter
	readers pooledRunner
	files   *openedFiles
	// readersEach is the number of connections for reads of requests. Reads of steps have as many.
	readersEach int
}

const (
	// urgentReaders is the number of further read connections, for callers that are neither users' requests nor steps of jobs.
	urgentReaders = 2
	// writeSeats is how many users' requests may wait for the writer at once: enough to share a commit, and few enough not to fill it.
	writeSeats = 8
)

func openSQLite(ctx context.Context, path string, opts Options, log *slog.Logger, wake func()) (_ *sqliteEngine, err error) {
	if path, err = sqlitePath(path); err != nil {
		return nil, err
	}
	e := &sqliteEngine{path: path}
	defer func() {
		if err != nil {
			_ = e.close()
			if isCorruptionError(err) {
				err = corruptFile(path, "%w", err)
			}
			err = e.classify(err)
		}
	}()
	if e.lock, err = lockFile(path + ".lock"); err != nil {
		return nil, err
	}
	if err = checkFiles(path, e.lock); err != nil {
		return nil, err
	}
	// The file is made here so that nobody but its owner can read it; -wal and -shm inherit that.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err = f.Close(); err != nil {
		return nil, err
	}
	if err = checkHardLinks(path); err != nil {
		return nil, err
	}
	if e.write, err = sql.Open("sqlite", sqliteDSN(path, opts, "&_pragma=cache_size(-8000)")); err != nil {
		return nil, err
	}
	e.write.SetMaxOpenConns(1)
	if err = checkPages(ctx, e.write, path); err != nil {
		return nil, err
	}
	t, err := newTables(e.write, sqliteDialect)
	if err != nil {
		return nil, err
	}
	if err = t.ready(ctx, opts.Migrate); err != nil {
		return nil, err
	}
	writeMadeMark(e.lock)
	if e.files, err = recordOpenedFiles(path, e.lock); err != nil {
		return nil, err
	}
	if e.writer, err = startWriter(ctx, e.write, e.files.check, log, wake); err != nil {
		return nil, err
	}
	e.read = sql.OpenDB(checkedConnector{e.write.Driver(), sqliteDSN(path, opts, "&_pragma=query_only(1)&_pragma=cache_size(-4000)"), e.files})
	n := opts.MaxConns
	if n <= 0 {
		n = 4
	}
	e.readersEach = n
	e.read.SetMaxOpenConns(2*n + urgentReaders)
	e.read.SetMaxIdleConns(2*n + urgentReaders)
	e.readers = pooledRunner{statementCache{prepare: e.read.PrepareContext, once: e.read.QueryContext}}
	return e, nil
}

func sqliteDSN(path string, opts Options, more string) string {
	sync := "FULL"
	if opts.NoSync {
		sync = "OFF"
	}
	// secure_delete: a secret that is gone leaves no sealed copy in free pages either. temp_store: what a savepoint may
	// have to take back is kept in memory, not written to a file of its own.
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(" + sync +
		")&_pragma=foreign_keys(1)&_pragma=secure_delete(1)&_pragma=temp_store(2)" + more
}

// lockFile takes the lock that says: this process has the database. The kernel
// lets it go when the process ends, however it ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, problem.Conflictf("database: another salvor process uses it (lock %s is held); SQLite serves one process, PostgreSQL several", path)
		}
		return nil, fmt.Errorf("database: lock %s: %w", path, err)
	}
	return f, nil
}

func (e *sqliteEngine) do(ctx context.Context, fn func(context.Context, statementRunner) error) error {
	return e.writer.do(ctx, fn)
}

func (e *sqliteEngine) reader() statementRunner { return &e.readers }

// limits sets no bound for writes of steps, because the writer serves them by their class.
func (e *sqliteEngine) limits() concurrencyLimits {
	return concurrencyLimits{requestReads: e.readersEach, requestWrites: writeSeats, stepReads: e.readersEach}
}

func (e *sqliteEngine) notifyPeers() {}

func (e *sqliteEngine) close() error {
	var errs []error
	if e.writer != nil {
		e.writer.stop()
	}
	e.readers.close()
	for _, db := range []*sql.DB{e.read, e.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	// Last: whoever waits for the lock finds the files at rest.
	if e.lock != nil {
		errs = append(errs, durable.Unlock(e.lock))
	}
	return errors.Join(errs...)
}

func (e *sqliteEngine) classify(err error) error {
	if err == nil || problem.KindOf(err) != problem.Internal {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) { // on a busy machine: the runner repeats a step whose time ended here
		return unavailableError("it is busy", err)
	}
	var misplaced *misplacedError
	if errors.As(err, &misplaced) {
		return problem.Unavailablef("database: %w", problem.Database(misplaced))
	}
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return err
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return problem.Unavailablef("database: the disk of %s is full, so nothing can be changed; make room there, and all goes on by itself: %w", e.path, problem.Database(err))
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM:
		return unavailableError("its file cannot be read or written now", err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return problem.Unavailablef("database: %s is damaged: stop salvor serve and look at the file: %w", e.path, problem.Database(err))
	}
	return err
}

// ioError tells whether an error is one of the file system, and not a full disk. After a full disk no part of a commit is valid.
func ioError(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code()&0xff == sqlite3.SQLITE_IOERR
}

func (e *sqliteEngine) violated(err error) string {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return ""
	}
	switch se.Code() {
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return foreignKey
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		_, columns, _ := strings.Cut(se.Error(), "UNIQUE constraint failed: ")
		column, _, _ := strings.Cut(columns, ",")
		column, _, _ = strings.Cut(column, " ")
		return column
	}
	return ""
}

const foreignKey = "foreign key"

// pooledRunner runs statements on any connection of a pool.
type pooledRunner struct{ statementCache }

func (p *pooledRunner) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	st, err := p.get(ctx, text)
	if err != nil {
		return nil, err
	}
	if st == nil {
		return p.once(ctx, text, args...)
	}
	return st.QueryContext(ctx, args...)
}

func (p *pooledRunner) exec(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.New("store: write outside of a transaction")
}
