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
	// commitTime is how long a request waits for its commit, which hangs while a synchronous standby or SQLite's disk does. A request is a
	// caller whose context has a deadline.
	commitTime = 10 * time.Second
	// lateTime is how long a commit that nobody waits for any more keeps its connection. To close the connection would end nothing
	// on the server, where the commit goes on to wait, and would let the next one take one more of its connections.
	lateTime = 10 * time.Minute
	// leaseConns is how many connections leases have: one whose commit hangs leaves another.
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

// writersOf is how many of a pool's connections writers may have at once: what is left is for readers, also while all commits hang.
func writersOf(conns int) int { return max(1, conns-max(1, conns/6)) }

// transaction is one transaction on PostgreSQL with all its tries.
type transaction struct {
	engine *postgresEngine
	db     *sql.DB
	// begin bounds the wait for a connection, run all that comes then.
	begin, run context.Context
	cancel     context.CancelFunc
	ends       *time.Timer // calls cancel
	deadline   time.Time
	request    bool
	isLate     bool
	slots      chan struct{} // nil: it takes none
}

// transaction prepares one, and waits until it may begin.
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

// end lets go what the transaction holds, unless its commit goes on.
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
	// database/sql rolls back when the context of BeginTx ends, so the caller's only bounds the wait for a connection.
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

// commit waits for the commit, for a request no longer than commitTime.
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
			t.engine.wake() // nobody here knows any more what it made ready
		}
	}()
	return unconfirmed(errHangs)
}

// commitError tells an answer of the server, by which nothing was committed, from an end of the connection in the middle of a commit.
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

// severe tells whether the session, or the server, ended by an error. PgBouncer tells by such a one that its server is gone; it knows
// no translations, and no SeverityUnlocalized.
func severe(pe *pgconn.PgError) bool {
	severity := cmp.Or(pe.SeverityUnlocalized, pe.Severity)
	return severity == "FATAL" || severity == "PANIC"
}

// closeLine gives the connection back, and tells whether it has ended.
func closeLine(conn *sql.Conn, err error) error {
	err = endedLine(conn, err)
	_ = conn.Close()
	return err
}
