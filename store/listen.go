package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// notifyPeers leaves a hint for notify.
func (e *postgresEngine) notifyPeers() {
	select {
	case e.hint <- struct{}{}:
	default:
	}
}

// notifyPause bounds how often other processes are told: a NOTIFY inside of each
// transaction would make all commits of the server take turns.
const notifyPause = 20 * time.Millisecond

func (e *postgresEngine) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.hint:
		}
		// A hint that is lost costs a poll's wait, no more.
		bounded, done := context.WithTimeout(ctx, readGrace)
		_, err := e.db.ExecContext(bounded, "SELECT pg_notify('"+notifyChannel+"', '')")
		done()
		if err != nil && ctx.Err() == nil {
			e.log.Debug("database: tell other processes of work", "error", err)
		}
		if !sleepContext(ctx, notifyPause) {
			return
		}
	}
}

// listen hears the hints of other processes, on a connection of its own.
func (e *postgresEngine) listen(ctx context.Context) {
	for {
		err := e.listenOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		e.log.Warn("database: listen for work of other processes; polling goes on", "error", err)
		if !sleepContext(ctx, 5*time.Second) {
			return
		}
	}
}

func (e *postgresEngine) listenOnce(ctx context.Context) error {
	conn, err := connectOne(ctx, connectorOf(e.hints, new(atomic.Int32)))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+notifyChannel); err != nil {
		return err
	}
	// What was committed while nobody listened.
	e.wake()
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		e.wake()
	}
}

// sleepContext waits; false if ctx ended.
func sleepContext(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// isConnectionError tells errors of the connection to the server from all others.
func isConnectionError(err error) bool {
	var ne net.Error
	var cut connectionError
	return errors.As(err, &cut) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn) || errors.As(err, &ne) || pgconn.SafeToRetry(err)
}

// connectionError is any error that was told over a connection that has ended since.
type connectionError struct{ error }

func (e connectionError) Unwrap() error { return e.error }

// asConnectionError tells errors of a connection that has ended from those of one that goes on: the driver has many words
// for the former, and who takes one for an answer of the server fails what should be tried again.
func asConnectionError(conn *sql.Conn, err error) error {
	if err == nil {
		return nil
	}
	gone := conn.Raw(func(c any) error {
		// This connection stays on a server that became read-only. A new connection finds the server that accepts changes.
		if c, ok := c.(*stdlib.Conn); ok && (c.Conn().IsClosed() || sqlStateOf(err) == readOnly) {
			return driver.ErrBadConn
		}
		return nil
	})
	if gone != nil && sqlStateOf(err) != readOnly {
		return connectionError{err}
	}
	return err
}
