package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"unicode/utf8"

	"salvor/job"
	"salvor/problem"
)

// Tx is an open transaction. It is of use only inside the function that Do runs.
type Tx struct {
	store *storeCore
	// ctx bounds the statements; it is never a caller's, whose end would take the whole batch with it.
	ctx context.Context
	run statementRunner
	// seen is this process's knowledge of the database's history before the transaction began.
	seen knownHistory
	// addsWork: the commit makes a job claimable.
	addsWork bool
	// addsOrders: the commit gives a host an order to fetch.
	addsOrders bool
	// addsEvents: the commit adds to the timeline.
	addsEvents bool
	// keyed: the key that seals was looked up.
	keyed bool
	// failed is the first statement that the engine refused: PostgreSQL takes nothing more in the transaction, so neither does SQLite.
	failed error
	// requested: the transaction belongs to a request of a user.
	requested bool
	// restore puts the caller's records back as they were if nothing is committed.
	restore []func()
	done    bool
}

// OpaqueTx marks the type for rooms that hand it on.
func (*Tx) OpaqueTx() {}

// statementRunner sends statements to an engine.
type statementRunner interface {
	exec(ctx context.Context, text string, args ...any) (sql.Result, error)
	query(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

var errTxMisuse = errors.New("store: transaction is over or of another store")

// tx takes a transaction that Do handed out.
func (s *storeCore) tx(t job.Tx) (*Tx, error) {
	tx, ok := t.(*Tx)
	if !ok || tx == nil || tx.store != s || tx.done {
		return nil, errTxMisuse
	}
	return tx, tx.failed
}

// exec runs a statement of the transaction and tells how many rows it touched.
func (tx *Tx) exec(text string, args ...any) (int64, error) {
	res, err := tx.run.exec(tx.ctx, text, replaceInvalidText(args)...)
	if err != nil {
		return 0, tx.fail(err)
	}
	return res.RowsAffected()
}

// each runs a query and hands its rows to scan; it closes them in every case.
func (tx *Tx) each(scan func(*sql.Rows) error, text string, args ...any) error {
	if err := eachRow(tx.ctx, tx.run, scan, text, args...); err != nil {
		return tx.fail(err)
	}
	return nil
}

func (tx *Tx) fail(err error) error {
	if tx.failed == nil {
		tx.failed = err
	}
	return err
}

// onRollback remembers how to put a caller's record back.
func (tx *Tx) onRollback(fn func()) { tx.restore = append(tx.restore, fn) }

func (tx *Tx) rolledBack() {
	for i := len(tx.restore) - 1; i >= 0; i-- {
		tx.restore[i]()
	}
	tx.restore = nil
}

// outcome is what Do makes of fn's result: a refused statement counts even if fn swallowed it.
func (tx *Tx) outcome(err error) error {
	if err == nil {
		return tx.failed
	}
	return err
}

// read runs a query in the transaction, or outside of any if t is nil.
func (s *storeCore) read(ctx context.Context, t job.Tx, scan func(*sql.Rows) error, text string, args ...any) error {
	if t == nil {
		return noteOutage(ctx, s.readOutside(ctx, scan, text, args...))
	}
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	return tx.each(scan, text, args...)
}

func (s *storeCore) readOutside(ctx context.Context, scan func(*sql.Rows) error, text string, args ...any) error {
	if s.readTime > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, s.readTime)
		defer done()
	}
	release, err := acquireDatabaseSlot(ctx, s.readQueue, s.stepReads)
	if err != nil {
		return err
	}
	defer release()
	if err := job.BeforeRead(ctx); err != nil {
		return err
	}
	return s.engine.classify(eachRow(ctx, s.engine.reader(), scan, text, args...))
}

// noteOutage marks an error that waiting heals as one of the database, and has the action of the context run again.
func noteOutage(ctx context.Context, err error) error {
	if !problem.Is(err, problem.Unavailable) {
		return err
	}
	err = problem.Database(err)
	job.NoteOutage(ctx, err)
	return err
}

// execInBatches repeats a statement, each time in a transaction of its own, until it touches fewer rows than a slice has.
func (s *storeCore) execInBatches(ctx context.Context, batch int, text string, args ...any) (int, error) {
	total := 0
	for {
		var n int64
		err := s.Do(ctx, func(t job.Tx) error {
			tx, err := s.tx(t)
			if err != nil {
				return err
			}
			n, err = tx.exec(text, args...)
			return err
		})
		total += int(n)
		if err != nil || n < int64(batch) {
			return total, err
		}
	}
}

func eachRow(ctx context.Context, run statementRunner, scan func(*sql.Rows) error, text string, args ...any) error {
	rows, err := run.query(ctx, text, replaceInvalidText(args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// replaceInvalidText replaces what PostgreSQL cannot keep in a text, NUL and broken UTF-8: the
// words of a BMC or a user must not make a transaction fail on one engine only.
func replaceInvalidText(args []any) []any {
	for i, a := range args {
		if word, ok := a.(string); ok && (strings.IndexByte(word, 0) >= 0 || !utf8.ValidString(word)) {
			args[i] = strings.ReplaceAll(strings.ToValidUTF8(word, "\uFFFD"), "\x00", "\uFFFD")
		}
	}
	return args
}

// statementCache keeps a prepared statement for each text. The texts are built from
// a small set of pieces, but a bound keeps a strange filter from filling memory.
type statementCache struct {
	prepare func(ctx context.Context, text string) (*sql.Stmt, error)
	once    func(ctx context.Context, text string, args ...any) (*sql.Rows, error)

	mu    sync.RWMutex
	texts map[string]*sql.Stmt
}

const maxStatements = 500

func (p *statementCache) get(ctx context.Context, text string) (*sql.Stmt, error) {
	p.mu.RLock()
	st := p.texts[text]
	full := len(p.texts) >= maxStatements
	p.mu.RUnlock()
	if st != nil || full {
		return st, nil
	}
	st, err := p.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.texts[text]; old != nil {
		_ = st.Close()
		return old, nil
	}
	if p.texts == nil {
		p.texts = map[string]*sql.Stmt{}
	}
	p.texts[text] = st
	return st, nil
}

func (p *statementCache) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, st := range p.texts {
		_ = st.Close()
	}
	p.texts = nil
}

// conflictError tells a refusal by a rule of the tables from all other errors.
func conflictError(err error, format string, args ...any) error {
	return problem.New(problem.Conflict, format+"%w", append(args, hiddenError{err})...)
}

// hiddenError keeps an engine's error in the chain and out of the text that users see.
type hiddenError struct{ error }

func (hiddenError) Error() string   { return "" }
func (q hiddenError) Unwrap() error { return q.error }
