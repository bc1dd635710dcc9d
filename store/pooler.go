package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"salvor/problem"
)

// PoolMode is the pool mode of a pooler, such as PgBouncer, between this program and PostgreSQL.
type PoolMode string

// The pool modes, as PgBouncer calls them.
const (
	// PoolNone: there is no pooler.
	PoolNone PoolMode = "none"
	// PoolSession: a connection has one server connection until it ends.
	PoolSession PoolMode = "session"
	// PoolTransaction: each transaction may use another server connection, so no setting of a session lasts.
	PoolTransaction PoolMode = "transaction"
)

// sessionTimeouts are the time limits that the server enforces in a session.
func sessionTimeouts(patient bool) map[string]string {
	b := map[string]string{"statement_timeout": "30000", "lock_timeout": "15000", "idle_in_transaction_session_timeout": "60000"}
	if patient {
		b["statement_timeout"], b["idle_in_transaction_session_timeout"] = "0", "0"
	}
	return b
}

// pool sets the time limits where the pool mode allows it. Without a pooler they are startup parameters, which poolers refuse. In
// session mode each new session sets them, in transaction mode each transaction. pool returns the statement that begins each
// transaction; empty: none.
func (mode PoolMode) pool(config *pgx.ConnConfig, patient bool) string {
	wanted := sessionTimeouts(patient)
	for name := range wanted {
		if asked, ok := config.RuntimeParams[name]; ok && !(patient && name != "lock_timeout") {
			wanted[name] = asked // the URL says so
		}
	}
	if mode != PoolSession && mode != PoolTransaction {
		maps.Copy(config.RuntimeParams, wanted)
		return ""
	}
	set := "SET "
	if mode == PoolTransaction {
		set = "SET LOCAL "
		if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			// A prepared statement belongs to one server connection, and the next transaction may use another.
			config.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		delete(config.RuntimeParams, name)
		texts = append(texts, set+name+" = '"+strings.ReplaceAll(wanted[name], "'", "''")+"'")
	}
	text := strings.Join(texts, "; ")
	if mode == PoolTransaction {
		return text
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		return conn.Exec(ctx, text).Close()
	}
	return ""
}

// checkPooler refuses connections that do not fit the pool mode.
func checkPooler(ctx context.Context, config *pgx.ConnConfig, mode PoolMode) error {
	if mode == PoolTransaction {
		return nil // this mode works with and without a pooler
	}
	var last atomic.Int32
	from := connectorOf(config, &last)
	var backends [2]string
	for i := range backends {
		conn, err := connectOne(ctx, from)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		results, err := conn.PgConn().Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
		if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
			return errors.Join(err, fmt.Errorf("database: %d results for its process", len(results)))
		}
		backends[i] = string(results[0].Rows[0][0])
		if backends[0] == fmt.Sprint(conn.PgConn().PID()) {
			return nil // PostgreSQL itself answered: a pooler reports process numbers of its own
		}
	}
	if backends[0] == backends[1] && (mode == PoolSession || config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement) {
		return problem.Invalidf("database: two connections share one process of the server, so a pooler in transaction mode is between; set [database]pool_mode = transaction")
	}
	return nil
}

// checkTimeLimits refuses a pooler that drops the time limits of the startup parameters, as PgBouncer does with those that its
// ignore_startup_parameters names.
func checkTimeLimits(ctx context.Context, config *pgx.ConnConfig, mode PoolMode) error {
	if mode == PoolSession || mode == PoolTransaction {
		return nil // statements set the limits
	}
	conn, err := connectOne(ctx, connectorOf(config, new(atomic.Int32)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	results, err := conn.PgConn().Exec(ctx, "SELECT pg_backend_pid(), name, setting FROM pg_settings WHERE unit = 'ms'").ReadAll()
	if err != nil || len(results) != 1 {
		return errors.Join(err, fmt.Errorf("database: %d results for its time limits", len(results)))
	}
	wanted := sessionTimeouts(false)
	for _, row := range results[0].Rows {
		name := string(row[1])
		asked, ours := wanted[name]
		ours = ours && config.RuntimeParams[name] == asked // else the URL says another limit, perhaps in another unit
		if ours && string(row[2]) != asked && string(row[0]) != fmt.Sprint(conn.PgConn().PID()) {
			return problem.Invalidf("database: a pooler such as PgBouncer is between and drops the connection's %s; set [database]pool_mode to the pool_mode of the pooler, session or transaction", name)
		}
	}
	return nil
}

// refusedByPooler names the option to set when a pooler refuses a request that PostgreSQL accepts.
func refusedByPooler(err error) error {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return err
	}
	switch {
	case pe.Code == "08P01" && strings.Contains(pe.Message, "startup parameter"):
		return problem.Invalidf("database: a pooler such as PgBouncer refuses the connection (%s); set [database]pool_mode to the pool_mode of the pooler, session or transaction (salvor db: set [database]direct_connection, or give --database the server itself)", pe.Message)
	case pe.Code == "26000", pe.Code == "42P05":
		return problem.Invalidf("database: prepared statements do not last (%s), as behind a pooler in transaction mode; set [database]pool_mode = transaction", pe.Message)
	}
	return err
}
