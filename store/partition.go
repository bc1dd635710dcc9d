package store

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"salvor/problem"
)

// The timeline of PostgreSQL lies in parts of a week each: what is old goes with its part, without a row being touched. What
// fits no part lies in event_default.
const (
	week = 7 * 24 * time.Hour
	// weeksAhead is how many parts are made before they are needed.
	weeksAhead = 4
	// partLock bounds how long a change of the parts may hold up those who write to the timeline; it is tried again at the next turn.
	partLock = `SET LOCAL lock_timeout = '2s'`
	// partTurn has one process at a time change the parts.
	partTurn = `SELECT pg_advisory_xact_lock(hashtext('salvor event parts'))`
)

// timelinePartition is a part of the timeline, from and to in microseconds; the first one of all has no beginning.
type timelinePartition struct {
	name     string
	from, to int64
}

var partitionBounds = regexp.MustCompile(`^FOR VALUES FROM \((?:'(-?\d+)'|MINVALUE)\) TO \('(-?\d+)'\)$`)

const listParts = `SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
	WHERE i.inhparent = 'event'::regclass ORDER BY c.relname`

func listTimelinePartitions(ctx context.Context, tx *sql.Tx) ([]timelinePartition, error) {
	rows, err := tx.QueryContext(ctx, listParts)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []timelinePartition
	for rows.Next() {
		var p timelinePartition
		var text string
		if err := rows.Scan(&p.name, &text); err != nil {
			return nil, err
		}
		m := partitionBounds.FindStringSubmatch(text)
		if m == nil {
			continue // the one by default
		}
		if p.from = -1 << 62; m[1] != "" {
			p.from, err = strconv.ParseInt(m[1], 10, 64)
		}
		if err == nil {
			p.to, err = strconv.ParseInt(m[2], 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("part %s of the timeline: %w", p.name, err)
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

// changeParts runs fn in a transaction of its own, alone among those who change the parts.
func changeParts(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx, all []timelinePartition) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, text := range []string{partLock, partTurn} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	all, err := listTimelinePartitions(ctx, tx)
	if err != nil {
		return err
	}
	if err := fn(tx, all); err != nil {
		return err
	}
	return tx.Commit()
}

// addWeeks makes the parts that lack for the weeks from one moment to another, and moves into them what lies in the one by default.
func addWeeks(ctx context.Context, db *sql.DB, from, to time.Time) error {
	err := changeParts(ctx, db, func(tx *sql.Tx, all []timelinePartition) error {
		size := week.Microseconds()
		for w := from.UnixMicro() / size; w <= to.UnixMicro()/size; w++ {
			next := timelinePartition{fmt.Sprintf("event_w%d", w), w * size, (w + 1) * size}
			if slices.ContainsFunc(all, func(p timelinePartition) bool { return p.from < next.to && next.from < p.to }) {
				continue
			}
			if err := addPart(ctx, tx, next); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("make parts of the timeline: %w", err)
	}
	return nil
}

func addPart(ctx context.Context, tx *sql.Tx, p timelinePartition) error {
	name := quoteIdentifier(p.name)
	for _, text := range []string{
		`CREATE TABLE ` + name + ` (LIKE event INCLUDING DEFAULTS INCLUDING CONSTRAINTS)`,
		`LOCK TABLE event_default IN ACCESS EXCLUSIVE MODE`,
		fmt.Sprintf(`WITH moved AS (DELETE FROM event_default WHERE at >= %d AND at < %d RETURNING *) INSERT INTO %s SELECT * FROM moved`, p.from, p.to, name),
		fmt.Sprintf(`ALTER TABLE event ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)`, name, p.from, p.to),
	} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// dropWeeks drops the parts that are older than a moment as a whole, and gives how many events went.
func dropWeeks(ctx context.Context, db *sql.DB, before time.Time) (int, error) {
	total := 0
	for {
		gone := 0
		err := changeParts(ctx, db, func(tx *sql.Tx, all []timelinePartition) error {
			for _, p := range all {
				if p.to > before.UnixMicro() {
					continue
				}
				// To count may take as long as the week is large; nobody waits for that.
				if _, err := tx.ExecContext(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
					return err
				}
				n, err := queryNumber(ctx, tx, `SELECT COUNT(*) FROM `+quoteIdentifier(p.name))
				if err == nil {
					_, err = tx.ExecContext(ctx, `DROP TABLE `+quoteIdentifier(p.name))
				}
				if err != nil {
					return err
				}
				gone++
				total += int(n)
				return nil // one at a time: writers wait for each
			}
			return nil
		})
		if err != nil {
			return total, fmt.Errorf("drop a part of the timeline: %w", err)
		}
		if gone == 0 {
			return total, nil
		}
	}
}

// keepWeeks makes parts for what comes and drops what is old. A server that is busy, or that does not let this program change
// tables, is no failure: events lie in the part by default meanwhile.
func (e *postgresEngine) keepWeeks(ctx context.Context, now, before time.Time) (int, error) {
	err := addWeeks(ctx, e.db, now.Add(-week), now.Add(weeksAhead*week))
	n := 0
	if err == nil {
		n, err = dropWeeks(ctx, e.db, before)
	}
	if err == nil || ctx.Err() != nil {
		return n, err
	}
	switch {
	case sqlStateOf(err) == "42501":
		e.log.Warn("database: this program may not change tables, so the timeline is pruned row by row; salvor db migrate with the tables' owner makes its parts", "error", err)
	case problem.Is(e.classify(err), problem.Unavailable):
		e.log.Info("database: the parts of the timeline are kept at the next turn", "error", err)
	default:
		return n, err
	}
	return n, nil
}

// pruneEvents drops parts; of the rest only what lies in the part by default is deleted.
func (e *postgresEngine) pruneEvents(ctx context.Context, now, before time.Time) (int, string, error) {
	n, err := e.keepWeeks(ctx, now, before)
	return n, "event_default", err
}

func (e *sqliteEngine) pruneEvents(context.Context, time.Time, time.Time) (int, string, error) {
	return 0, "event", nil
}

// timelineWindow is a condition for events that lie in some weeks. Its placeholders begin at $5.
type timelineWindow struct {
	condition string
	args      []any
}

// timelineWindows splits the timeline in the order in which it is to be asked: this week, the four weeks before, and all the rest. PostgreSQL asks only the
// parts that a condition admits.
func (e *postgresEngine) timelineWindows(now time.Time) []timelineWindow {
	size := week.Microseconds()
	begin := now.UnixMicro() / size * size
	end, former := begin+size, begin-4*size
	return []timelineWindow{
		{`AND at >= $5 AND at < $6`, []any{begin, end}},
		{`AND at >= $5 AND at < $6`, []any{former, begin}},
		{`AND (at < $5 OR at >= $6)`, []any{former, end}},
	}
}

// timelineWindows gives one window of everything, because SQLite has the timeline in one table.
func (e *sqliteEngine) timelineWindows(time.Time) []timelineWindow { return []timelineWindow{{}} }
