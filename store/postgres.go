package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"salvor/problem"
)

// postgresEngine serves several processes. Transactions are REPEATABLE READ, so a
// row that somebody changed between a closure's look and its write makes the closure
// run again; what snapshots cannot see is ruled by constraints.
type postgresEngine struct {
	db     *sql.DB
	leases *sql.DB // one connection for leases
	config *pgx.ConnConfig
	log    *slog.Logger
	wake   func()

	hint   chan struct{}
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

const (
	// tries bounds how often one transaction is run again after the server found it in another's way.
	tries = 40
	// transactionTime bounds a transaction and all its tries.
	transactionTime = 60 * time.Second
	channel         = "salvor_work"
)

// postgresConfig reads a URL. What it does not set itself is bounded, so that no statement, no lock and no connection is waited for without end.
func postgresConfig(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// The error of the parser quotes the URL, whose password it masks only where it could parse it.
		return nil, problem.Invalidf("database: not a usable PostgreSQL URL; want postgres://USER:PASSWORD@HOST:PORT/NAME")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 10 * time.Second
	}
	for name, value := range map[string]string{"application_name": "salvor", "statement_timeout": "30000", "lock_timeout": "15000",
		"idle_in_transaction_session_timeout": "60000"} {
		if config.RuntimeParams[name] == "" {
			config.RuntimeParams[name] = value
		}
	}
	heedful(config)
	return config, nil
}

// patient is a configuration for work that takes its time: steps of the tables, copies. Locks are waited for shortly all the
// same, because whoever waits for one holds up all who come after.
func patient(config *pgx.ConnConfig) *pgx.ConnConfig {
	config = config.Copy()
	config.RuntimeParams["statement_timeout"], config.RuntimeParams["idle_in_transaction_session_timeout"] = "0", "0"
	return config
}

// readyPostgres brings the tables up to date where it may; of several programs at once one does.
func readyPostgres(ctx context.Context, config *pgx.ConnConfig, auto AutoMigrate) error {
	db := stdlib.OpenDB(*patient(config))
	defer db.Close()
	t, err := postgresTables(db)
	if err != nil {
		return err
	}
	return t.ready(ctx, auto)
}

func postgresTables(db *sql.DB) (*tables, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
	if err != nil {
		return nil, err
	}
	return newTables(db, postgresDialect, goose.WithSessionLocker(locker))
}

func openPostgres(ctx context.Context, url string, opts Options, log *slog.Logger, wake func()) (*postgresEngine, error) {
	config, err := postgresConfig(url)
	if err != nil {
		return nil, err
	}
	n := opts.MaxConns
	if n <= 0 {
		n = 24
	}
	lines := &vigil{}
	e := &postgresEngine{db: lines.pool(config, n), leases: lines.pool(config, 1), config: config, log: log, wake: wake, hint: make(chan struct{}, 1)}
	if err := readyPostgres(ctx, config, opts.Migrate); err != nil {
		_ = errors.Join(e.db.Close(), e.leases.Close())
		return nil, e.classify(err)
	}
	run, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	e.tasks.Add(2)
	go func() { defer e.tasks.Done(); e.listen(run) }()
	go func() { defer e.tasks.Done(); e.notify(run) }()
	return e, nil
}

func (e *postgresEngine) close() error {
	e.cancel()
	e.tasks.Wait()
	return errors.Join(e.db.Close(), e.leases.Close())
}

func (e *postgresEngine) reader() runner { return direct{e.db} }

// seats leave a third of the connections to others than requests, and a third to others than steps. So claims and heartbeats
// wait for a few statements at most.
func (e *postgresEngine) seats() seats {
	third := max(e.db.Stats().MaxOpenConnections/3, 1)
	return seats{requestReads: third, requestWrites: third, stepReads: third, stepWrites: third}
}

// do runs the transaction, and again while the server finds it in another's way.
func (e *postgresEngine) do(ctx context.Context, fn func(context.Context, runner) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	begin, db := ctx, e.db
	asked := patienceOf(ctx)
	if asked.lease {
		db = e.leases
	}
	run, cancel := context.WithTimeout(context.WithoutCancel(ctx), asked.within)
	defer cancel()
	for n := 1; ; n++ {
		err := once(db, begin, run, fn)
		if err == nil || n == tries || !repeatable(err) {
			return err
		}
		// Once fn has begun the caller's end counts no more.
		begin = run
		pause := time.NewTimer(rand.N(time.Duration(min(n, 10)) * 3 * time.Millisecond))
		select {
		case <-pause.C:
		case <-run.Done():
			pause.Stop()
			return err
		}
	}
}

func once(db *sql.DB, begin, run context.Context, fn func(context.Context, runner) error) (err error) {
	// database/sql rolls back when the context of BeginTx ends, so the caller's only bounds the wait for a connection.
	conn, err := db.Conn(begin)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer func() { err = endedLine(conn, err) }()
	tx, err := conn.BeginTx(run, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			_ = tx.Rollback()
		}
	}()
	if err := fn(run, direct{tx}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

// repeatable tells the refusals of the server that a new run of the transaction can pass.
func repeatable(err error) bool {
	var again errAgain
	if errors.As(err, &again) {
		return true
	}
	switch code(err) {
	case "40001", "40P01":
		return true
	}
	return false
}

func code(err error) string {
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
	if repeatable(err) {
		return problem.Unavailablef("database: busy: %w", err)
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		switch pe.Code[:2] {
		case "08", "53", "57", "55", "58": // connection, resources, operator, not ready or lock time-out, system
			return problem.Unavailablef("database: %w", err)
		}
		return err
	}
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) || errors.Is(err, sql.ErrConnDone) || pgconn.Timeout(err) || brokenLine(err) {
		return problem.Unavailablef("database: %w", err)
	}
	return err
}

// direct sends statements as they are: the driver keeps prepared ones by itself.
type direct struct {
	to interface {
		ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	}
}

func (d direct) exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return d.to.ExecContext(ctx, text, args...)
}

func (d direct) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return d.to.QueryContext(ctx, text, args...)
}
