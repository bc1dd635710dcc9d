package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// connectTime bounds an attempt to connect to one server.
	connectTime = 10 * time.Second
	// connectTimeOfSeveral replaces connectTime if the URL names several servers, because another one may answer.
	connectTimeOfSeveral = 5 * time.Second
	// headStart is the time for which salvor tries only the server that it used last.
	headStart = 500 * time.Millisecond
	// readOnly is PostgreSQL's error code for a write on a server, or in a session, that is read-only.
	readOnly = "25006"
)

// failoverConnector connects to one server of a URL: the one that was used last, or else the first that accepts changes.
type failoverConnector struct {
	each []driver.Connector
	// last is the index of the server that was used last. All pools of a store share it.
	last *atomic.Int32
}

// severalHosts tells whether a configuration names more than one server. One server with and without TLS counts once.
func severalHosts(config *pgx.ConnConfig) bool {
	for _, f := range config.Fallbacks {
		if f.Host != config.Host || f.Port != config.Port {
			return true
		}
	}
	return false
}

// connectorOf makes a connector of a configuration.
func connectorOf(config *pgx.ConnConfig, last *atomic.Int32, options ...stdlib.OptionOpenDB) driver.Connector {
	if !severalHosts(config) {
		return stdlib.GetConnector(*config, options...)
	}
	s := &failoverConnector{last: last}
	var one *pgx.ConnConfig
	for _, f := range append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...) {
		if one != nil && one.Host == f.Host && one.Port == f.Port {
			one.Fallbacks = append(one.Fallbacks, f) // the same server with other TLS settings
			continue
		}
		if one != nil {
			s.each = append(s.each, stdlib.GetConnector(*one, options...))
		}
		one = config.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = f.Host, f.Port, f.TLSConfig, nil
	}
	s.each = append(s.each, stdlib.GetConnector(*one, options...))
	return s
}

// Driver implements driver.Connector.
func (s *failoverConnector) Driver() driver.Driver { return s.each[0].Driver() }

type dialResult struct {
	server int
	conn   driver.Conn
	err    error
}

// Connect implements driver.Connector. A dead server costs headStart once, because the next connection begins with the server that
// answered.
func (s *failoverConnector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialResult, len(s.each))
	try := func(server int) {
		conn, err := s.each[server].Connect(ctx)
		results <- dialResult{server, conn, err}
	}
	first := int(s.last.Load())
	go try(first)
	begun := 1
	others := func() {
		for server := range s.each {
			if begun < len(s.each) && server != first {
				go try(server)
			}
		}
		begun = len(s.each)
	}
	wait := time.NewTimer(headStart)
	defer wait.Stop()
	var errs []error
	for ended := 0; ended < len(s.each); {
		select {
		case <-wait.C:
			others()
		case r := <-results:
			ended++
			if r.err == nil {
				s.last.Store(int32(r.server))
				go closeRest(results, begun-ended)
				return r.conn, nil
			}
			errs = append(errs, r.err)
			others()
		}
	}
	return nil, errors.Join(errs...)
}

// closeRest closes the connections that were made after the first one.
func closeRest(results <-chan dialResult, n int) {
	for range n {
		if r := <-results; r.err == nil {
			_ = r.conn.Close()
		}
	}
}

// connectOne makes a connection that belongs to no pool.
func connectOne(ctx context.Context, from driver.Connector) (*pgx.Conn, error) {
	made, err := from.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c, ok := made.(*stdlib.Conn)
	if !ok {
		return nil, fmt.Errorf("database: a connection of type %T", made)
	}
	return c.Conn(), nil
}
