package store

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"salvor/problem"
)

// postgresEngine serves several processes. Transactions are REPEATABLE READ, so a
// row that somebody changed between a closure's look and its write makes the closure
// run again; what snapshots cannot see is ruled by constraints.
type postgresEngine struct {
	db     *sql.DB
	leases *sql.DB       // connections for leases
	slots  chan struct{} // one element for each transaction that writes
	config *pgx.ConnConfig
	local  string          // begins each transaction; empty: nothing
	hints  *pgx.ConnConfig // for LISTEN
	lines  *livenessPinger
	log    *slog.Logger
	wake   func()

	hint    chan struct{}
	running context.Context // ends at close
	cancel  context.CancelFunc
	commits commitMonitor

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup // background work and transactions; see start
}

const (
	// maxTxAttempts bounds how often one transaction is run again after the server found it in another's way.
	maxTxAttempts = 40
	// transactionTime bounds a transaction and all its tries.
	transactionTime = 60 * time.Second
	notifyChannel   = "salvor_work"
)

// postgresConfig reads a URL. It sets time limits for statements, locks and connections unless the URL has its own. patient is for
// long work: migrations of the tables, copies. It still waits only shortly for a lock, because a waiter delays all who come after
// it. local is the statement that begins each transaction; empty: none.
func postgresConfig(url string, mode PoolMode, patient bool) (config *pgx.ConnConfig, local string, err error) {
	if config, err = pgx.ParseConfig(url); err != nil {
		// The error of the parser quotes the URL, whose password it masks only where it could parse it.
		return nil, "", problem.Invalidf("database: not a usable PostgreSQL URL; want postgres://USER:PASSWORD@HOST:PORT/NAME")
	}
	several := severalHosts(config)
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTime
		if several {
			config.ConnectTimeout = connectTimeOfSeveral
		}
	}
	if several && config.ValidateConnect == nil {
		// This is target_session_attrs=read-write: no write goes to a standby.
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "salvor"
	}
	local = mode.pool(config, patient)
	withTCPTimeouts(config)
	return config, local, nil
}

// readyPostgres brings the tables up to date where it may; of several programs at once one does.
func readyPostgres(ctx context.Context, url string, opts Options) error {
	mode, auto := opts.PoolMode, opts.Migrate
	switch {
	case opts.Direct != "":
		url, mode = opts.Direct, PoolNone
	case mode == PoolTransaction:
		auto = MigrateNever // the lock against two migrations at once belongs to a session
	}
	config, _, err := postgresConfig(url, mode, true)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connectorOf(config, new(atomic.Int32)))
	defer db.Close()
	t, err := postgresTables(db)
	if err != nil {
		return err
	}
	return t.ready(ctx, auto)
}

func postgresTables(db *sql.DB) (*databaseTables, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
	if err != nil {
		return nil, err
	}
	return newTables(db, postgresDialect, goose.WithSessionLocker(locker))
}

func openPostgres(ctx context.Context, url string, opts Options, log *slog.Logger, wake func()) (*postgresEngine, error) {
	config, local, err := postgresConfig(url, opts.PoolMode, false)
	if err != nil {
		return nil, err
	}
	hints := config // for LISTEN
	if opts.Direct != "" {
		if hints, _, err = postgresConfig(opts.Direct, PoolNone, false); err != nil {
			return nil, err
		}
	}
	n := opts.MaxConns
	if n <= 0 {
		n = 24
	}
	n = max(n, 2) // one stays free for readers while a commit hangs
	lines := &livenessPinger{}
	e := &postgresEngine{db: lines.pool(config, n), leases: lines.pool(config, leaseConns), slots: make(chan struct{}, writersOf(n)), config: config, local: local, hints: hints, lines: lines, log: log, wake: wake, hint: make(chan struct{}, 1)}
	if err = checkPooler(ctx, config, opts.PoolMode); err == nil {
		err = checkTimeLimits(ctx, config, opts.PoolMode)
	}
	if err == nil {
		err = readyPostgres(ctx, url, opts)
	}
	if err != nil {
		_ = errors.Join(e.db.Close(), e.leases.Close())
		return nil, e.classify(refusedByPooler(err))
	}
	e.running, e.cancel = context.WithCancel(context.Background())
	e.tasks.Add(2)
	go func() {
		defer e.tasks.Done()
		if opts.PoolMode == PoolTransaction && opts.Direct == "" {
			log.Info("database: LISTEN does not work through a pooler in transaction mode: work that other processes accept is found by polling; set [database]direct_connection to hear of it at once")
			return
		}
		e.listen(e.running)
	}()
	go func() { defer e.tasks.Done(); e.notify(e.running) }()
	return e, nil
}

// start counts a transaction, and refuses it if the engine is closed. Its end is tasks.Done.
func (e *postgresEngine) start() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.tasks.Add(1)
	return true
}

func (e *postgresEngine) close() error {
	e.mu.Lock()
	e.closed = true // from here on nobody adds to tasks
	e.mu.Unlock()
	e.cancel()
	e.tasks.Wait()
	return errors.Join(e.db.Close(), e.leases.Close())
}

func (e *postgresEngine) reader() statementRunner { return directRunner{e.db} }

// limits gives requests a third of the connections and steps of jobs another third. Claims and heartbeats therefore wait for a few
// statements at most.
func (e *postgresEngine) limits() concurrencyLimits {
	third := max(e.db.Stats().MaxOpenConnections/3, 1)
	return concurrencyLimits{requestReads: third, requestWrites: third, stepReads: third, stepWrites: third}
}

// do runs the transaction, and again while the server finds it in another's way.
func (e *postgresEngine) do(ctx context.Context, fn func(context.Context, statementRunner) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t, err := e.transaction(ctx)
	if err != nil {
		return err
	}
	defer t.end()
	for n := 1; ; n++ {
		err := t.once(fn)
		if sqlStateOf(err) == readOnly {
			e.lines.forget(time.Now())
		}
		if err == nil || n == maxTxAttempts || !isRetryable(err) {
			return err
		}
		// Once fn has begun the caller's end counts no more.
		t.begin = t.run
		pause := time.NewTimer(rand.N(time.Duration(min(n, 10)) * 3 * time.Millisecond))
		select {
		case <-pause.C:
		case <-t.run.Done():
			pause.Stop()
			return err
		}
	}
}

// isRetryable tells the refusals of the server that a new run of the transaction can pass.
func isRetryable(err error) bool {
	var again errAgain
	if errors.As(err, &again) {
		return true
	}
	switch sqlStateOf(err) {
	case "40001", "40P01":
		return true
	}
	return false
}

func sqlStateOf(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

func (e *postgresEngine) violated(err error) string {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return ""
	}
	switch pe.Code {
	case "23503":
		return foreignKey
	case "23505":
		if pe.TableName == "job" && pe.ConstraintName != "job_pkey" {
			return lockRule
		}
		// Unique indexes are called after their table and first column, so that this is what SQLite's messages say.
		return pe.TableName + "." + strings.TrimPrefix(pe.ConstraintName, pe.TableName+"_")
	}
	return ""
}

func (e *postgresEngine) classify(err error) error {
	if err == nil || problem.KindOf(err) != problem.Internal {
		return err
	}
	if isRetryable(err) {
		return unavailableError("it is busy", err)
	}
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) { // this includes a refused login and a missing database
		return unavailableError("it cannot be reached", err)
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		switch pe.Code[:2] {
		case "08", "53", "57", "55", "58": // connection, resources, operator, not ready or lock time-out, system
			return unavailableError("it cannot serve the request now", err)
		}
		if pe.Code == readOnly {
			return unavailableError("it takes no changes, as a standby does", err)
		}
		return err
	}
	if errors.Is(err, sql.ErrConnDone) || pgconn.Timeout(err) || isConnectionError(err) {
		return unavailableError("it does not answer", err)
	}
	return err
}

// unavailableError is an error with two texts: clients see public, the log has the text of the driver.
func unavailableError(public string, err error) error {
	return problem.Unavailablef("database: %w", problem.Database(problem.Hide(public+"; ask again", err)))
}

// directRunner sends statements as they are: the driver keeps prepared ones by itself.
type directRunner struct {
	to interface {
		ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	}
}

func (d directRunner) exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return d.to.ExecContext(ctx, text, args...)
}

func (d directRunner) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return d.to.QueryContext(ctx, text, args...)
}
