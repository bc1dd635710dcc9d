package store

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"time"
)

// clockEvery is how often the server is asked for its time again.
const clockEvery = 10 * time.Second

// serverClock is the wall clock of a PostgreSQL server. All who share a database tell and compare times by
// it: what one of them says is due in a second is not due in an hour for another, nor for itself after its
// machine's clock was set. Between two looks it goes by the monotonic clock.
type serverClock struct {
	db  *sql.DB
	log *slog.Logger

	mu   sync.Mutex
	base time.Time // the server's time
	at   time.Time // when that was
	// within is how long it took to ask: that much it may be wrong.
	within time.Duration
}

func newServerClock(ctx context.Context, db *sql.DB, log *slog.Logger) (*serverClock, error) {
	c := &serverClock{db: db, log: log, within: time.Hour}
	// The first answer comes over a connection that is yet to be made.
	for range 3 {
		if err := c.measure(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *serverClock) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockEvery)
	defer cancel()
	var us int64
	asked := time.Now()
	if err := c.db.QueryRowContext(ctx, `SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`).Scan(&us); err != nil {
		return err
	}
	took := time.Since(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	serverTime, at := time.UnixMicro(us), asked.Add(took/2)
	off := serverTime.Sub(c.base.Add(at.Sub(c.at))).Abs()
	// Who waited long for the answer learns less than it knows, unless the server's clock was set meanwhile.
	if took < c.within || off > took {
		c.base, c.at, c.within = serverTime, at, took
	} else {
		c.within += time.Millisecond // as clocks drift apart
	}
	return nil
}

func (c *serverClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base.Add(time.Since(c.at))
}

// follow keeps looking until ctx ends. While the server is away the clock goes on by itself.
func (c *serverClock) follow(ctx context.Context) {
	for sleepContext(ctx, clockEvery) {
		if err := c.measure(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("database: ask for its time", "error", err)
		}
	}
}

// followServer makes the server's clock that of the store, until it is closed.
func (s *storeCore) followServer(ctx context.Context, e *postgresEngine) error {
	clock, err := newServerClock(ctx, e.db, s.log)
	if err != nil {
		return err
	}
	s.now = clock.now
	run, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); clock.follow(run) }()
	s.closed = sync.OnceValue(func() error {
		stop()
		<-ended
		return e.close()
	})
	return nil
}
