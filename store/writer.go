package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"salvor/access"
	"salvor/job"
	"salvor/problem"
)

// sqliteWriter is the one writer of a SQLite file. It gathers callers into one BEGIN
// IMMEDIATE ... COMMIT, with a SAVEPOINT each, because the sync of a commit costs
// more than all statements before it. Closures run in their callers' goroutines,
// one at a time, so that a panic unwinds where it belongs.
type sqliteWriter struct {
	log   *slog.Logger
	wake  func() // called when a commit ends well whose caller has stopped waiting
	conn  *sql.Conn
	run   *writerConnRunner
	queue [classCount]chan *batchEntry
	turns int // number of served entries, which selects the order of the classes
	quit  chan struct{}
	once  sync.Once
	ended chan struct{}
	// began is the start of the BEGIN or COMMIT that runs now, in microseconds; 0: none runs.
	began atomic.Int64
	// check tells whether the files are still those that were opened.
	check func() error
	// testHook is called before BEGIN and COMMIT, in tests only; nil otherwise.
	testHook func(text string)
}

// batchEntry is one caller of a batch.
type batchEntry struct {
	state  atomic.Int32 // entryWaiting, entryBegun or entryAbandoned
	turn   chan struct{}
	over   chan bool  // the closure's part is over; true: the whole batch is lost
	result chan error // what became of the commit
}

const (
	entryWaiting int32 = iota
	entryBegun
	entryAbandoned
)

// maxBatch bounds how many callers share a commit, so that the first does not wait long for the last.
const maxBatch = 32

// priorityClass is the priority of a caller of the writer.
type priorityClass int

const (
	// urgentClass: leases, claims, heartbeats, and all other work outside of users' requests and claimed jobs.
	urgentClass priorityClass = iota
	// stepClass: the work on claimed jobs.
	stepClass
	// requestClass: the requests of users.
	requestClass
	classCount
)

func classOf(ctx context.Context) priorityClass {
	if _, ok := access.RequesterOf(ctx); ok {
		return requestClass
	}
	if job.IsStep(ctx) {
		return stepClass
	}
	return urgentClass
}

// classOrders are the orders in which the writer looks at the classes, one order per turn. So no class waits for ever.
var classOrders = [...][classCount]priorityClass{
	{urgentClass, stepClass, requestClass}, {stepClass, urgentClass, requestClass}, {urgentClass, stepClass, requestClass}, {requestClass, urgentClass, stepClass},
}

var errWriterClosed = problem.Database(problem.Unavailablef("database: closed"))

// errBatchLost is told to all of a batch that SQLite took back as a whole, as it does where the disk is full.
var errBatchLost = problem.Database(problem.Unavailablef("database: the transaction was lost with those that it shared a commit with; ask again"))

// stuckWriterTime is how long a batch may hold the writer before the log says who does.
const stuckWriterTime = 15 * time.Second

func startWriter(ctx context.Context, db *sql.DB, check func() error, log *slog.Logger, wake func()) (*sqliteWriter, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	w := &sqliteWriter{check: check, log: log, wake: wake, conn: conn, quit: make(chan struct{}), ended: make(chan struct{})}
	for c := range w.queue {
		w.queue[c] = make(chan *batchEntry, maxBatch)
	}
	w.run = &writerConnRunner{statementCache{prepare: conn.PrepareContext, once: conn.QueryContext}, conn}
	go w.loop()
	return w, nil
}

// stop lets the running batch end and refuses all others.
func (w *sqliteWriter) stop() {
	w.once.Do(func() { close(w.quit) })
	<-w.ended
	w.run.close()
	_ = w.conn.Close()
}

func (w *sqliteWriter) loop() {
	defer close(w.ended)
	for {
		select {
		case <-w.quit:
			return
		default:
		}
		e := w.next(0)
		if e == nil {
			select {
			case <-w.quit:
				return
			case e = <-w.queue[urgentClass]:
			case e = <-w.queue[stepClass]:
			case e = <-w.queue[requestClass]:
			}
		}
		w.batch(e)
	}
}

// batch serves first and all who queue up meanwhile, and tells each what became of the commit.
func (w *sqliteWriter) batch(first *batchEntry) {
	ctx := context.Background()
	watch := time.AfterFunc(stuckWriterTime, w.logStuck)
	defer watch.Stop()
	var served []*batchEntry
	err := w.checkFiles(ctx)
	if err == nil {
		err = w.execBoundary(ctx, "BEGIN IMMEDIATE")
	}
	open := err == nil
	for e := first; e != nil; e = w.next(len(served)) {
		if !e.state.CompareAndSwap(entryWaiting, entryBegun) {
			continue
		}
		served = append(served, e)
		if !open {
			break
		}
		e.turn <- struct{}{}
		if lost := <-e.over; lost {
			err, open = errBatchLost, false
			break
		}
	}
	switch {
	case open:
		if err = w.execBoundary(ctx, "COMMIT"); err != nil {
			_ = w.statement(ctx, "ROLLBACK")
			if err = fmt.Errorf("commit: %w", err); ioError(err) {
				err = wrapUnconfirmedCommit(err) // the end of the transaction may have reached the disk
			}
		}
	case len(served) > 0:
		_ = w.statement(ctx, "ROLLBACK")
	}
	for _, e := range served {
		e.result <- err
	}
}

// checkFiles refuses a batch whose changes would be lost with files that have no name any more. What was committed to a log without a name goes into
// the database at once, so that it survives even if the process is killed.
func (w *sqliteWriter) checkFiles(ctx context.Context) error {
	err := w.check()
	var misplaced *misplacedError
	if errors.As(err, &misplaced) && misplaced.lacksLog {
		_ = w.statement(ctx, "PRAGMA wal_checkpoint(PASSIVE)") // the end of the process does the same
	}
	return err
}

// logStuck tells of a closure that waits for something else than the store, most
// likely for a transaction of its own inside of this one.
func (w *sqliteWriter) logStuck() {
	stacks := make([]byte, 1<<18)
	stacks = stacks[:runtime.Stack(stacks, true)]
	w.log.Error("database: a transaction holds the only writer and does not end", "after", stuckWriterTime, "goroutines", string(stacks))
}

// next returns the caller whose turn it is; nil: no caller waits, or the batch is full.
func (w *sqliteWriter) next(served int) *batchEntry {
	if served >= maxBatch {
		return nil
	}
	for _, c := range classOrders[w.turns%len(classOrders)] {
		select {
		case e := <-w.queue[c]:
			w.turns++
			return e
		default:
		}
	}
	return nil
}

func (w *sqliteWriter) statement(ctx context.Context, text string) error {
	_, err := w.run.exec(ctx, text)
	return err
}

// do queues the closure and waits for the commit. ctx counts only until the closure's turn. A request waits at most commitTime for a
// hung commit: its own, or one before it.
func (w *sqliteWriter) do(ctx context.Context, fn func(context.Context, statementRunner) error) error {
	e := &batchEntry{turn: make(chan struct{}, 1), over: make(chan bool, 1), result: make(chan error, 1)}
	if err := ctx.Err(); err != nil {
		return err
	}
	var late *time.Timer
	var isLate <-chan time.Time // nil: no time limit
	if _, request := ctx.Deadline(); request {
		if w.hangs() { // a new request does not wait for a hung commit
			return unavailableError("it confirms no changes now; nothing was changed", errHangs)
		}
		late = time.NewTimer(commitTime)
		defer late.Stop()
		isLate = late.C
	}
	queue, ended := w.queue[classOf(ctx)], ctx.Done()
	for {
		select {
		case queue <- e:
			queue = nil
		case <-e.turn:
			err := w.runInSavepoint(e, fn)
			if late != nil {
				late.Reset(commitTime)
			}
			select {
			case result := <-e.result:
				return cmp.Or(err, result)
			case <-isLate:
				if err != nil {
					return err
				}
				go func() { // it ends with the batch
					if <-e.result == nil {
						w.wake()
					}
				}()
				return wrapUnconfirmedCommit(errHangs)
			}
		case err := <-e.result: // BEGIN failed
			return err
		case <-isLate:
			if w.hangs() && (queue != nil || e.state.CompareAndSwap(entryWaiting, entryAbandoned)) {
				return unavailableError("it confirms no changes now; nothing was changed", errHangs)
			}
			late.Reset(time.Second)
		case <-ended:
			if queue != nil || e.state.CompareAndSwap(entryWaiting, entryAbandoned) {
				return ctx.Err()
			}
			ended = nil
		case <-w.ended:
			return errWriterClosed
		}
	}
}

// hangs tells whether a BEGIN or COMMIT has run for commitTime or longer.
func (w *sqliteWriter) hangs() bool {
	began := w.began.Load()
	return began != 0 && time.Since(time.UnixMicro(began)) >= commitTime
}

// execBoundary runs the statement that begins or ends a batch.
func (w *sqliteWriter) execBoundary(ctx context.Context, text string) error {
	w.began.Store(time.Now().UnixMicro())
	defer w.began.Store(0)
	if w.testHook != nil {
		w.testHook(text)
	}
	return w.statement(ctx, text)
}

// runInSavepoint runs fn between SAVEPOINT and RELEASE and passes the turn on in every
// case, a panic and the end of the goroutine included.
func (w *sqliteWriter) runInSavepoint(e *batchEntry, fn func(context.Context, statementRunner) error) (err error) {
	ctx := context.Background()
	keep, lost := false, true
	defer func() {
		if !keep && !lost {
			// Whatever became of fn, nothing of it stays.
			lost = w.statement(ctx, "ROLLBACK TO caller") != nil || w.statement(ctx, "RELEASE caller") != nil
		}
		e.over <- lost
	}()
	if err := w.statement(ctx, "SAVEPOINT caller"); err != nil {
		return err
	}
	lost = false
	if err := fn(ctx, w.run); err != nil {
		return err
	}
	if err := w.statement(ctx, "RELEASE caller"); err != nil {
		lost = true
		return err
	}
	keep = true
	return nil
}

// writerConnRunner runs statements on the writer's connection.
type writerConnRunner struct {
	statementCache
	conn *sql.Conn
}

func (r *writerConnRunner) exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	st, err := r.get(ctx, text)
	if err != nil {
		return nil, err
	}
	if st == nil {
		return r.conn.ExecContext(ctx, text, args...)
	}
	return st.ExecContext(ctx, args...)
}

func (r *writerConnRunner) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	st, err := r.get(ctx, text)
	if err != nil {
		return nil, err
	}
	if st == nil {
		return r.once(ctx, text, args...)
	}
	return st.QueryContext(ctx, args...)
}
