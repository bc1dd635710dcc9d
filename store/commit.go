package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"salvor/problem"
)

const (
	// commitTime is how long a request waits for its commit. A commit hangs while a synchronous standby or the disk of SQLite hangs. A
	// request is a caller whose context has a deadline.
	commitTime = 10 * time.Second
	// lateTime is how long a commit keeps its connection after its caller has stopped waiting. Closing the connection would not end the
	// commit on the server, and the next transaction would open one more connection there.
	lateTime = 10 * time.Minute
	// leaseConns is the number of connections for leases: while the commit of one hangs, the other is free.
	leaseConns = 2
)

var (
	errHangs    = errors.New("the commit has not ended in its time")
	errNoCommit = errors.New("all transactions that may write at once wait, most likely for commits that hang")
)

// unconfirmed is the error of a commit that may or may not have been carried out.
func unconfirmed(err error) error {
	return problem.Unconfirmed(problem.Unavailablef("database: %w",
		problem.Hide("it has not confirmed the change, which may have been made or not; look before you repeat it (salvor why NODE)", err)))
}

// writersOf is how many connections of a pool may write at once. The rest stays free for readers, even while all commits hang.
func writersOf(conns int) int { return max(1, conns-max(1, conns/6)) }

// transaction is one transaction on PostgreSQL with all its tries.
type transaction struct {
	engine *postgresEngine
	db     *sql.DB
	// begin bounds the wait for a connection, run the work after that.
	begin, run context.Context
	cancel     context.CancelFunc
	ends       *time.Timer // calls cancel
	deadline   time.Time
	request    bool
	isLate     bool
	slots      chan struct{} // nil: it takes none
}

// transaction prepares a transaction and waits until it may begin.
func (e *postgresEngine) transaction(ctx context.Context) (*transaction, error) {
	asked := patienceOf(ctx)
	t := &transaction{engine: e, db: e.db, begin: ctx, deadline: time.Now().Add(asked.within), slots: e.slots}
	_, t.request = ctx.Deadline()
	if asked.lease {
		t.db, t.slots = e.leases, nil
	}
	if t.slots != nil {
		wait := asked.within
		if t.request {
			wait = min(wait, commitTime)
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case t.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, unavailable("it confirms no changes now; nothing was changed", errNoCommit)
		}
	}
	t.run, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.ends = time.AfterFunc(time.Until(t.deadline), t.cancel)
	return t, nil
}

// end releases the slot and the timer of the transaction, unless its commit still runs.
func (t *transaction) end() {
	if !t.isLate {
		t.release()
	}
}

func (t *transaction) release() {
	t.ends.Stop()
	t.cancel()
	if t.slots != nil {
		<-t.slots
	}
}

// once runs the transaction one time.
func (t *transaction) once(fn func(context.Context, runner) error) error {
	// database/sql rolls back when the context of BeginTx ends. Therefore the caller's context bounds only the wait for a connection.
	begin, stop := context.WithDeadline(t.begin, t.deadline)
	conn, err := t.db.Conn(begin)
	stop()
	if err != nil {
		return err
	}
	tx, err := conn.BeginTx(t.run, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return closeLine(conn, err)
	}
	ended := false
	defer func() {
		if !ended { // also when fn panics
			_ = tx.Rollback()
			_ = closeLine(conn, err)
		}
	}()
	if t.engine.local != "" {
		_, err = tx.ExecContext(t.run, t.engine.local)
	}
	if err == nil {
		err = fn(t.run, direct{tx})
	}
	if err != nil {
		_ = tx.Rollback()
		ended = true
		return closeLine(conn, err)
	}
	ended = true
	return t.commit(conn, tx)
}

// commit waits for the commit; a request waits at most commitTime.
func (t *transaction) commit(conn *sql.Conn, tx *sql.Tx) error {
	wait := time.Until(t.deadline)
	if t.request {
		wait = min(wait, commitTime)
	}
	if t.ends.Stop() {
		t.ends.Reset(lateTime)
	}
	done := make(chan error, 1)
	t.engine.tasks.Add(1)
	go func() {
		defer t.engine.tasks.Done()
		done <- commitError(closeLine(conn, tx.Commit()))
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	t.isLate = true
	stop := context.AfterFunc(t.engine.running, t.cancel)
	t.engine.tasks.Add(1)
	go func() {
		defer t.engine.tasks.Done()
		err := <-done
		stop()
		t.release()
		if err == nil {
			t.engine.wake() // the caller is gone, so wake all who may wait for its changes
		}
	}()
	return unconfirmed(errHangs)
}

// commitError separates two errors. If the server answered with an error, it committed nothing. If the connection ended during the
// commit, the change may have been made: that is unconfirmed.
func commitError(err error) error {
	if err == nil {
		return nil
	}
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || severe(pe) || strings.HasPrefix(pe.Code, "57") || strings.HasPrefix(pe.Code, "08") {
		return unconfirmed(err)
	}
	return err
}

// severe tells whether the error ended the session or the server. PgBouncer reports the loss of its server in this way; it sends no
// SeverityUnlocalized.
func severe(pe *pgconn.PgError) bool {
	severity := cmp.Or(pe.SeverityUnlocalized, pe.Severity)
	return severity == "FATAL" || severity == "PANIC"
}

// closeLine returns the connection to the pool, and reports whether the connection has ended.
func closeLine(conn *sql.Conn, err error) error {
	err = endedLine(conn, err)
	_ = conn.Close()
	return err
}
