package store

import (
	"context"
	"database/sql"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sys/unix"
)

// A server that vanished, or one behind a wall that dropped the connection, says nothing any more, not even that it is gone: its own
// bounds end nothing then. What bounds the wait for it on this side is here.

const (
	// answerTime is how long a connection that was left alone may take to show that it still carries anything.
	answerTime = time.Second
	// ackTimeout is how long what was sent may stay without the acknowledgement of the other machine.
	ackTimeout = 10 * time.Second
	// readGrace is what a read gets beyond the server's own bound of a statement.
	readGrace = 5 * time.Second
)

// withTCPTimeouts has connections over TCP end when the other machine is silent.
func withTCPTimeouts(config *pgx.ConnConfig) {
	dialer := &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control: func(network, _ string, c syscall.RawConn) error {
			if !strings.HasPrefix(network, "tcp") {
				return nil
			}
			var failed error
			err := c.Control(func(fd uintptr) {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(ackTimeout.Milliseconds()))
			})
			if err != nil {
				return err
			}
			return failed
		},
	}
	config.DialFunc = dialer.DialContext
}

// livenessPinger asks a connection for a sign of life before it is used again. Once one of them was found silent, all that were used last
// before that are given up without being asked: one after the other they would take a second each.
type livenessPinger struct {
	mu     sync.Mutex
	silent time.Time
	// last is the index of the server that was used last, if the URL names several.
	last atomic.Int32
}

// forget drops all connections that were last used before then.
func (v *livenessPinger) forget(then time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.silent = then
}

// pool opens connections that the liveness pinger watches.
func (v *livenessPinger) pool(config *pgx.ConnConfig, conns int) *sql.DB {
	db := sql.OpenDB(connectorOf(config, &v.last, stdlib.OptionShouldPing(v.lost)))
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db
}

// lost tells that a connection is not to be used again; the driver, which asks it once more then, finds it closed.
func (v *livenessPinger) lost(ctx context.Context, p stdlib.ShouldPingParams) bool {
	asked := time.Now()
	v.mu.Lock()
	former := asked.Add(-p.IdleDuration).Before(v.silent)
	v.mu.Unlock()
	if former {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = p.Conn.Close(ended)
		return true
	}
	if p.IdleDuration < answerTime {
		return false
	}
	bounded, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if p.Conn.PgConn().Ping(bounded) == nil {
		return false
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		v.forget(asked)
	}
	return true
}

// readTime is how long a read outside of any transaction may take: as long as the server's bound, and something more for the way; 0 is without end.
func readTime(url string) time.Duration {
	config, _, err := postgresConfig(url, PoolNone, false)
	if err != nil {
		return 0 // the store does not open with such a URL
	}
	word := config.RuntimeParams["statement_timeout"]
	d, err := time.ParseDuration(word)
	if ms, bad := strconv.Atoi(word); bad == nil {
		d, err = time.Duration(ms)*time.Millisecond, nil
	}
	if err != nil || d <= 0 {
		return 0
	}
	return d + readGrace
}

// txTimeout is what a caller may say of a transaction by its context.
type txTimeout struct {
	within time.Duration
	// lease: it uses the connections for leases, for which nothing else waits.
	lease bool
	// counter: it changes the database's counter or hold, which all processes share.
	counter bool
}

type patienceKey struct{}

// withTransactionTimeout bounds a transaction and all its tries by less than transactionTime. It is for those whose end, once given up, may come
// or not: what they wrote is looked up again or means nothing.
func withTransactionTimeout(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, txTimeout{within: d})
}

// longTime bounds a transaction that reaches every row.
const longTime = 15 * time.Minute

// Long is for a transaction that reaches every machine and server, such as a release: on a loaded PostgreSQL it takes longer than
// transactionTime.
func (s *storeCore) Long(ctx context.Context) context.Context {
	return withTransactionTimeout(ctx, longTime)
}

// forLease is within for what a lease depends on.
func forLease(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, txTimeout{within: d, lease: true})
}

// forCounter is within for changes of the database's counter. They lock the one row that all processes change, so they must not use
// the connections for leases.
func forCounter(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, txTimeout{within: d, counter: true})
}

func txTimeoutOf(ctx context.Context) txTimeout {
	if b, ok := ctx.Value(patienceKey{}).(txTimeout); ok {
		return b
	}
	return txTimeout{within: transactionTime}
}
