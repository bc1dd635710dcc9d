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

// Store is job.Store, metal.Store and compute.Store. It is safe for use by several goroutines. The methods for the tables of one subject
// are those of one embedded type.
type Store struct {
	*storeCore
	incarnationTables
	jobTables
	nodeTables
	serverTables
	hostTables
	keyTables
}

// incarnationTables hold the history of the database itself: its incarnations, and what operators decided while it was held.
type incarnationTables struct{ *storeCore }

// jobTables hold jobs, their events and the leases of the conductors that run them. No job is claimed while the database is held, so
// they know its incarnation.
type jobTables struct {
	incarnationTables
	kinds map[job.Kind]int
	// noNodeHistory and pruneBatch are copies of the options.
	noNodeHistory bool
	pruneBatch    int
	backlog       backlogLimiter
}

// nodeTables hold nodes and all that belongs to them: ports, volume connectors, chassis, templates, runbooks and allocations.
type nodeTables struct{ *storeCore }

// serverTables hold servers and what they are made of: flavors, images, networks, addresses and volumes.
type serverTables struct{ *storeCore }

// hostTables hold hosts, their clusters, groups, orders and reports, and the moves of servers between them.
type hostTables struct{ *storeCore }

// keyTables hold the keys that seal secrets, and the tokens of the API.
type keyTables struct{ *storeCore }

// storeCore is what the tables of all subjects share: the engine, transactions, the clock, sealing and notifications.
type storeCore struct {
	engine        sqlEngine
	key           *secret.Key
	now           func() time.Time
	log           *slog.Logger
	shared        bool // other processes may use the database, too
	wakeups       chan struct{}
	ordersChanged broadcaster
	eventsChanged broadcaster
	closed        func() error
	// readTime bounds reads outside of transactions; 0: nothing needs it.
	readTime time.Duration
	health   writeHealth
	// readQueue and writeQueue hold requests of users, and nothing else.
	readQueue, writeQueue *fairQueue
	// stepReads and stepWrites bound steps of jobs.
	stepReads, stepWrites semaphore
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
	// limits gives the bounds for users' requests and steps of jobs, so that leases, claims and heartbeats need not wait for them.
	limits() concurrencyLimits
	// classify gives errors of the engine that others can wait out the kind Unavailable.
	classify(err error) error
	// violated names the rule that refused a row: "table.column" of the first column of a unique index, or
	// "foreign key"; empty for all other errors.
	violated(err error) string
	// pruneEvents drops what it can of the timeline that is older than before without touching rows, gives how many events that
	// were, and names the table whose rows are left to be deleted one by one.
	pruneEvents(ctx context.Context, now, before time.Time) (n int, rest string, err error)
	// timelineWindows splits the timeline into windows that need not all be asked, in the order in which they are.
	timelineWindows(now time.Time) []timelineWindow
	// skipLockedClause gives what follows "column" in the WHERE of an update: the rows of the subquery. The engine runs the subquery
	// once, and skips rows that another transaction has locked.
	skipLockedClause(subquery string) string
	// anyOf gives what follows "column" in a WHERE: the rows of the subquery, which runs once. PostgreSQL then looks each row up by the index of the
	// column, and does not choose a plan by a guess of how many rows the subquery has.
	anyOf(subquery string) string
	// notifyPeers tells other processes that work may be there; it may return before they know.
	notifyPeers()
	close() error
}

// Open opens the database at url, "sqlite:PATH" or "postgres://...", brings its tables up to date if it may, and
// proves that key is the one its secrets are sealed with. Tables that this program cannot serve are problem.Conflict.
func Open(ctx context.Context, url string, key *secret.Key, opts Options) (*Store, error) {
	core := &storeCore{key: key, now: opts.Now, log: opts.Logger, wakeups: make(chan struct{}, 1)}
	incarnations := incarnationTables{core}
	s := &Store{storeCore: core, incarnationTables: incarnations,
		nodeTables: nodeTables{core}, serverTables: serverTables{core}, hostTables: hostTables{core}, keyTables: keyTables{core},
		jobTables: jobTables{incarnationTables: incarnations, kinds: opts.Versions, noNodeHistory: opts.NoNodeHistory, pruneBatch: cmp.Or(opts.PruneBatch, pruneSlice),
			backlog: backlogLimiter{limit: opts.BacklogLimit}}}
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
	bounds := s.engine.limits()
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
func (s *storeCore) Close() error { return s.closed() }

// Woken is job.Waker's.
func (s *storeCore) Woken() <-chan struct{} { return s.wakeups }

func (s *storeCore) notifyLocal() {
	select {
	case s.wakeups <- struct{}{}:
	default:
	}
}

// onNotify follows the hint of another process, which does not tell what there is to do.
func (s *storeCore) onNotify() {
	s.notifyLocal()
	s.ordersChanged.wake()
	s.eventsChanged.wake()
}

// recordCommit records that a transaction was committed, or may have been.
func (s *storeCore) recordCommit(ctx context.Context, requester access.Requester) {
	if p := txTimeoutOf(ctx); !p.lease && !p.counter {
		s.history.changed()
	}
	if requester.Changed != nil {
		requester.Changed.Store(true)
	}
}

// Do is job.Transactor's.
func (s *storeCore) Do(ctx context.Context, fn func(job.Tx) error) error {
	var last *Tx
	committed := false
	defer func() {
		if last != nil && !committed {
			last.rolledBack()
		}
	}()
	requester, requested := access.RequesterOf(ctx)
	release, err := acquireDatabaseSlot(ctx, s.writeQueue, s.stepWrites)
	if err != nil {
		return noteOutage(ctx, err)
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
		classified := s.engine.classify(err)
		if problem.IsUnconfirmed(classified) {
			s.recordCommit(ctx, requester)
			s.onNotify() // the change may be there already
			s.engine.notifyPeers()
		}
		if s.health.markUnhealthy(s.now, err, classified) {
			s.log.Warn("the database takes no changes", "error", classified)
		}
		if problem.IsDatabase(classified) {
			job.NoteOutage(ctx, classified)
		}
		return classified
	}
	committed = true
	if s.health.markHealthy(s.now) {
		s.log.Info("the database takes changes again")
	}
	s.recordCommit(ctx, requester)
	if last.addsWork {
		s.notifyLocal()
	}
	if last.addsOrders {
		s.ordersChanged.wake()
	}
	if last.addsEvents {
		s.eventsChanged.wake()
	}
	if last.addsWork || last.addsOrders {
		s.engine.notifyPeers()
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
func (s *storeCore) Now() time.Time { return s.now() }

// timestamp is the time now as rows hold it.
func (s *storeCore) timestamp() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// toMicros is a time as rows hold it: 0 for none.
func toMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// fromMicros is the reverse of toMicros.
func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
