// Package store keeps the rows in SQLite or PostgreSQL behind one SQL text: jobs, events, conductors, nodes, servers, hosts and the reports
// from them. It knows how rows are written, found and kept apart, and does not know their meaning. Packages metal and compute hold the
// rules of states, and package job holds the rules of work. The store starts no work by itself.
package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"salvor/access"
	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// Options of Open; the zero value is what production uses.
type Options struct {
	// Logger hears of what goes wrong in the background; nil: slog.Default().
	Logger *slog.Logger
	// Now is the clock of all times that the store gives; nil: time.Now, or the server's where there is one.
	Now func() time.Time
	// NoSync lets SQLite commits outlive a crash of the process only, not one of the machine. For tests.
	NoSync bool
	// MaxConns bounds the connections: all of PostgreSQL (default 24), or the readers of SQLite (default 4) for requests and again for
	// steps.
	MaxConns int
	// PoolMode is the mode of a pooler before PostgreSQL; empty is PoolNone.
	PoolMode PoolMode
	// Direct is the URL of PostgreSQL itself if there is a pooler. It serves LISTEN and migrations of the tables. Empty: there is no
	// such URL.
	Direct string
	// Migrate says whether Open may change the tables; empty is MigrateAlways.
	Migrate AutoMigrate
	// Versions are the versions of the operations' lists, which new jobs are given.
	Versions map[job.Kind]int
	// BacklogLimit is the maximum of due, unclaimed jobs of one group; new operations of users beyond it are refused. 0: no bound.
	BacklogLimit int
	// NoNodeHistory: the timeline gets no events of nodes.
	NoNodeHistory bool
	// PruneBatch is how many events one transaction of Prune removes; 0: 2000.
	PruneBatch int
}

// Store is job.Store, metal.Store and compute.Store. It is safe for use by several goroutines.
type Store struct {
	engine sqlEngine
	key    *secret.Key
	now    func() time.Time
	log    *slog.Logger
	shared bool // other processes may use the database, too
	woken  chan struct{}
	orders broadcaster
	kinds  map[job.Kind]int
	// noNodeHistory and pruneBatch are copies of the options.
	noNodeHistory bool
	pruneBatch    int
	told          broadcaster
	closed        func() error
	// readTime bounds reads outside of transactions; 0: nothing needs it.
	readTime time.Duration
	mood     writeHealth
	// readQueue and writeQueue hold requests of users, and nothing else.
	readQueue, writeQueue *fairQueue
	// stepReads and stepWrites bound steps of jobs.
	stepReads, stepWrites semaphore
	backlog               backlogLimiter
	history               databaseHistory
}

// concurrencyLimits are the numbers of concurrent reads and writes; 0: no bound.
type concurrencyLimits struct{ requestReads, requestWrites, stepReads, stepWrites int }

var (
	_ job.Store   = (*Store)(nil)
	_ metal.Store = (*Store)(nil)

	_ compute.Store = (*Store)(nil)
)

// sqlEngine is what differs between the databases.
type sqlEngine interface {
	// do runs fn in one transaction, as job.Transactor says, again if the engine asks for it.
	do(ctx context.Context, fn func(ctx context.Context, run statementRunner) error) error
	reader() statementRunner
	// seats gives the bounds for users' requests and steps of jobs, so that leases, claims and heartbeats need not wait for them.
	seats() concurrencyLimits
	// classify gives errors of the engine that others can wait out the kind Unavailable.
	classify(err error) error
	// violated names the rule that refused a row: "table.column" of the first column of a unique index, or
	// "foreign key"; empty for all other errors.
	violated(err error) string
	// forget drops what it can of the timeline that is older than before without touching rows, gives how many events that
	// were, and names the table whose rows are left to be deleted one by one.
	forget(ctx context.Context, now, before time.Time) (n int, rest string, err error)
	// among is the rest of "column ..." in an update that takes rows of a look: it is looked once, however the update is carried
	// out, and those who take some at once pass each other by.
	among(look string) string
	// woke tells other processes that work may be there; it may return before they know.
	woke()
	close() error
}

// Open opens the database at url, "sqlite:PATH" or "postgres://...", brings its tables up to date if it may, and
// proves that key is the one its secrets are sealed with. Tables that this program cannot serve are problem.Conflict.
func Open(ctx context.Context, url string, key *secret.Key, opts Options) (*Store, error) {
	s := &Store{key: key, now: opts.Now, log: opts.Logger, kinds: opts.Versions, backlog: backlogLimiter{limit: opts.BacklogLimit}, noNodeHistory: opts.NoNodeHistory, pruneBatch: cmp.Or(opts.PruneBatch, pruneSlice),
		woken: make(chan struct{}, 1)}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	var err error
	switch {
	case strings.HasPrefix(url, "sqlite:"):
		s.engine, err = openSQLite(ctx, strings.TrimPrefix(url, "sqlite:"), opts, s.log, s.onNotify)
	case strings.HasPrefix(url, "postgres://"), strings.HasPrefix(url, "postgresql://"):
		s.shared = true
		s.engine, err = openPostgres(ctx, url, opts, s.log, s.onNotify)
	default:
		err = problem.Invalidf("database: the URL must begin with sqlite: or postgres://")
	}
	if err != nil {
		return nil, err
	}
	s.closed = sync.OnceValue(s.engine.close)
	bounds := s.engine.seats()
	s.readQueue, s.writeQueue = newFairQueue(bounds.requestReads), newFairQueue(bounds.requestWrites)
	s.stepReads, s.stepWrites = newSemaphore(bounds.stepReads), newSemaphore(bounds.stepWrites)
	e, server := s.engine.(*postgresEngine)
	if server {
		s.readTime = readTime(url)
	}
	if server && opts.Now == nil {
		if err := s.followServer(ctx, e); err != nil {
			_ = s.engine.close()
			return nil, e.classify(err)
		}
	}
	if err := s.prepare(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	if _, err := s.Incarnation(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the store after the transactions that have begun. A second call does nothing more.
func (s *Store) Close() error { return s.closed() }

// Woken is job.Waker's.
func (s *Store) Woken() <-chan struct{} { return s.woken }

func (s *Store) notifyLocal() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// onNotify follows the hint of another process, which does not tell what there is to do.
func (s *Store) onNotify() {
	s.notifyLocal()
	s.orders.wake()
	s.told.wake()
}

// changed records that a transaction was committed, or may have been.
func (s *Store) changed(ctx context.Context, who access.Requester) {
	if p := patienceOf(ctx); !p.lease && !p.counter {
		s.history.changed()
	}
	if who.Changed != nil {
		who.Changed.Store(true)
	}
}

// Do is job.Transactor's.
func (s *Store) Do(ctx context.Context, fn func(job.Tx) error) error {
	var last *Tx
	committed := false
	defer func() {
		if last != nil && !committed {
			last.rolledBack()
		}
	}()
	who, requested := access.RequesterOf(ctx)
	release, err := acquireDatabaseSlot(ctx, s.writeQueue, s.stepWrites)
	if err != nil {
		return err
	}
	defer release()
	err = s.engine.do(ctx, func(ctx context.Context, run statementRunner) error {
		if last != nil {
			last.rolledBack()
		}
		last = &Tx{store: s, ctx: ctx, run: run, requested: requested, seen: s.history.seen()}
		defer func() { last.done = true }()
		return last.outcome(fn(last))
	})
	if err != nil {
		told := s.engine.classify(err)
		if problem.IsUnconfirmed(told) {
			s.changed(ctx, who)
			s.onNotify() // the change may be there already
			s.engine.woke()
		}
		if s.mood.markUnhealthy(s.now, err, told) {
			s.log.Warn("the database takes no changes", "error", told)
		}
		return told
	}
	committed = true
	if s.mood.markHealthy(s.now) {
		s.log.Info("the database takes changes again")
	}
	s.changed(ctx, who)
	if last.wake {
		s.notifyLocal()
	}
	if last.ordered {
		s.orders.wake()
	}
	if last.told {
		s.told.wake()
	}
	if last.wake || last.ordered {
		s.engine.woke()
	}
	return nil
}

// prepare fills the tables that the program itself writes, and checks the key.
func (s *Store) prepare(ctx context.Context) error {
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		for _, state := range metal.States {
			if _, err := tx.exec(`INSERT INTO provision_state (name) VALUES ($1) ON CONFLICT DO NOTHING`, string(state.State)); err != nil {
				return err
			}
		}
		if err := s.proveIncarnation(tx); err != nil {
			return err
		}
		return s.proveKey(tx)
	})
	if err != nil && problem.KindOf(err) == problem.Internal {
		return fmt.Errorf("database: %w", err)
	}
	return err
}

// Now is the time by which the store and all who share it tell what is due.
func (s *Store) Now() time.Time { return s.now() }

// timestamp is the time now as rows hold it.
func (s *Store) timestamp() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// toMicros is a time as rows hold it: 0 for none.
func toMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// fromMicros is the reverse of micros.
func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
