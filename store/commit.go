package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
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

// wrapUnconfirmedCommit is the error of a commit that may or may not have been carried out.
func wrapUnconfirmedCommit(err error) error {
	return problem.Unconfirmed(problem.Unavailablef("database: %w",
		problem.Database(problem.Hide("it has not confirmed the change, which may have been made or not; look before you repeat it (salvor why NODE)", err))))
}

// writersOf is how many connections of a pool may write at once. The rest stays free for readers, even while all commits hang.
func writersOf(conns int) int { return max(1, conns-max(1, conns/6)) }

// postgresTransaction is one transaction on PostgreSQL with all its tries.
type postgresTransaction struct {
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

// commitMonitor watches the commits that run. The zero value is ready.
type commitMonitor struct {
	mu      sync.Mutex
	began   map[*postgresTransaction]time.Time // of each commit that runs
	success time.Time                          // when a commit ended well last
	tried   time.Time                          // when the newest request was let through although commits hang; zero: they do not hang
}

func (c *commitMonitor) begin(t *postgresTransaction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began == nil {
		c.began = map[*postgresTransaction]time.Time{}
	}
	c.began[t] = time.Now()
}

func (c *commitMonitor) end(t *postgresTransaction, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.began, t)
	if err == nil {
		c.success = time.Now()
	}
}

// hangs tells whether a commit has run for commitTime, and none has ended well since it began.
func (c *commitMonitor) hangs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hangsLocked()
}

func (c *commitMonitor) hangsLocked() bool {
	for _, began := range c.began {
		if time.Since(began) >= commitTime && began.After(c.success) {
			return true
		}
	}
	return false
}

// refuse tells whether a new request is to be refused because commits hang. One request in commitTime is let through, to find out
// whether they still do.
func (c *commitMonitor) refuse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.hangsLocked():
		c.tried = time.Time{}
		return false
	case c.tried.IsZero(): // it has just begun: those who wait already have waited long enough
		c.tried = time.Now()
	case time.Since(c.tried) >= commitTime:
		c.tried = time.Now()
		return false
	}
	return true
}

// transaction prepares a transaction and waits until it may begin.
func (e *postgresEngine) transaction(ctx context.Context) (*postgresTransaction, error) {
	asked := txTimeoutOf(ctx)
	t := &postgresTransaction{engine: e, db: e.db, begin: ctx, deadline: time.Now().Add(asked.within), slots: e.slots}
	_, t.request = ctx.Deadline()
	if asked.lease {
		t.db, t.slots = e.leases, nil
	}
	if t.request && !asked.lease && e.commits.refuse() {
		return nil, unavailableError("it confirms no changes now; nothing was changed", errHangs)
	}
	if err := t.acquireSlot(ctx, asked.within); err != nil {
		return nil, err
	}
	if !e.start() {
		t.releaseSlot()
		return nil, errWriterClosed
	}
	t.run, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.ends = time.AfterFunc(time.Until(t.deadline), t.cancel)
	return t, nil
}

// acquireSlot waits for a slot. A request stops waiting when commits hang.
func (t *postgresTransaction) acquireSlot(ctx context.Context, within time.Duration) error {
	if t.slots == nil {
		return nil
	}
	if t.request {
		within = min(within, commitTime)
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case t.slots <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-t.engine.running.Done():
			return errWriterClosed
		case <-timer.C:
			return unavailableError("it confirms no changes now; nothing was changed", errNoCommit)
		case <-look.C:
			if t.request && t.engine.commits.hangs() {
				return unavailableError("it confirms no changes now; nothing was changed", errHangs)
			}
		}
	}
}

func (t *postgresTransaction) releaseSlot() {
	if t.slots != nil {
		<-t.slots
	}
}

// end releases the slot and the timer of the transaction, unless its commit still runs.
func (t *postgresTransaction) end() {
	if !t.isLate {
		t.release()
	}
}

func (t *postgresTransaction) release() {
	t.ends.Stop()
	t.cancel()
	t.releaseSlot()
	t.engine.tasks.Done()
}

// once runs the transaction one time.
func (t *postgresTransaction) once(fn func(context.Context, statementRunner) error) error {
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
		err = fn(t.run, directRunner{tx})
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
func (t *postgresTransaction) commit(conn *sql.Conn, tx *sql.Tx) error {
	wait := time.Until(t.deadline)
	if t.request {
		wait = min(wait, commitTime)
	}
	if t.ends.Stop() {
		t.ends.Reset(lateTime)
	}
	done := make(chan error, 1)
	t.engine.commits.begin(t)
	go func() {
		err := commitError(closeLine(conn, tx.Commit()))
		t.engine.commits.end(t, err)
		done <- err
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
	go func() {
		err := <-done
		stop()
		if err == nil { // the caller is gone, so wake all who may wait for its changes
			t.engine.wake()
			t.engine.notifyPeers()
		}
		t.release()
	}()
	return wrapUnconfirmedCommit(errHangs)
}

// commitError separates two errors. If the server answered with an error, it committed nothing. If the connection ended during the
// commit, the change may have been made: that is unconfirmed.
func commitError(err error) error {
	if err == nil {
		return nil
	}
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || isFatalError(pe) || strings.HasPrefix(pe.Code, "57") || strings.HasPrefix(pe.Code, "08") {
		return wrapUnconfirmedCommit(err)
	}
	return err
}

// isFatalError tells whether the error ended the session or the server. PgBouncer reports the loss of its server in this way; it sends no
// SeverityUnlocalized.
func isFatalError(pe *pgconn.PgError) bool {
	severity := cmp.Or(pe.SeverityUnlocalized, pe.Severity)
	return severity == "FATAL" || severity == "PANIC"
}

// closeLine returns the connection to the pool, and reports whether the connection has ended.
func closeLine(conn *sql.Conn, err error) error {
	err = asConnectionError(conn, err)
	_ = conn.Close()
	return err
}
