package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"salvor/job"
)

// pruneSlice is how many rows one transaction of a prune removes, so that others wait shortly.
const pruneSlice = 2000

// Append is job.Timeline's. The counter's row makes the subject's writers take
// turns, so the numbers have no gap and are committed in their order.
func (s *jobTables) Append(t job.Tx, e job.Event) error {
	if s.noNodeHistory && e.Subject.Kind == job.Node("").Kind {
		_, err := s.tx(t)
		return err
	}
	return s.appendEvent(t, e)
}

func (s *storeCore) appendEvent(t job.Tx, e job.Event) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if e.At.IsZero() {
		e.At = s.timestamp()
	}
	if e.Severity == "" {
		e.Severity = "info"
	}
	tx.addsEvents = true
	err = tx.each(func(r *sql.Rows) error { return r.Scan(&e.Seq) },
		`INSERT INTO event_counter (subject_kind, subject_id, last) VALUES ($1, $2, 1)
		ON CONFLICT (subject_kind, subject_id) DO UPDATE SET last = event_counter.last + 1 RETURNING last`, e.Subject.Kind, e.Subject.ID)
	if err == nil {
		_, err = tx.exec(`INSERT INTO event (subject_kind, subject_id, seq, at, type, text, severity, job_id, action, duration, request_id, user_name, num)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, `+s.numbering().next+`)`, e.Subject.Kind, e.Subject.ID, e.Seq, toMicros(e.At), e.Type, e.Text,
			e.Severity, e.JobID, e.Action, e.Duration.Microseconds(), e.RequestID, e.User)
	}
	if err != nil {
		return fmt.Errorf("append to the timeline of %s %s: %w", e.Subject.Kind, e.Subject.ID, err)
	}
	return nil
}

const selectEvents = `SELECT seq, at, type, text, severity, job_id, action, duration, request_id, user_name FROM event
		WHERE subject_kind = $1 AND subject_id = $2 `

// Events is job.Timeline's.
func (s *jobTables) Events(ctx context.Context, subject job.Subject, after int64, limit int) ([]job.Event, error) {
	last, err := s.lastEvent(ctx, subject)
	if err != nil || last <= after {
		return nil, err
	}
	if last-after > int64(limit) { // the page ends before the newest events, and nothing says in which weeks
		return s.events(ctx, subject, selectEvents+`AND seq > $3 ORDER BY seq LIMIT CAST($4 AS BIGINT)`, after, limit)
	}
	return s.newestEvents(ctx, subject, after, last)
}

// Latest is job.Timeline's.
func (s *jobTables) Latest(ctx context.Context, subject job.Subject, limit int) ([]job.Event, error) {
	last, err := s.lastEvent(ctx, subject)
	if err != nil || last == 0 {
		return nil, err
	}
	return s.newestEvents(ctx, subject, max(0, last-int64(limit)), last)
}

// lastEvent gives the number of the newest event of a subject, 0 for none.
func (s *jobTables) lastEvent(ctx context.Context, subject job.Subject) (last int64, err error) {
	err = s.read(ctx, nil, func(r *sql.Rows) error { return r.Scan(&last) },
		`SELECT last FROM event_counter WHERE subject_kind = $1 AND subject_id = $2`, subject.Kind, subject.ID)
	if err != nil {
		return 0, fmt.Errorf("read the timeline of %s %s: %w", subject.Kind, subject.ID, err)
	}
	return last, nil
}

// newestEvents reads the events after a number, up to last, in their order. Events that are appended meanwhile are beyond last, and belong to the
// next page. newestEvents asks the newest weeks first, and no further week once it has each number up to last: numbers have no gaps, so no other week can hold one of them. A clock that was wrong puts an event into any week, and what was
// pruned is in none; then newestEvents asks all weeks, each once.
func (s *jobTables) newestEvents(ctx context.Context, subject job.Subject, after, last int64) ([]job.Event, error) {
	var out []job.Event
	for _, w := range s.engine.timelineWindows(s.now()) {
		some, err := s.events(ctx, subject, selectEvents+`AND seq > $3 AND seq <= $4 `+w.condition, append([]any{after, last}, w.args...)...)
		if err != nil {
			return nil, err
		}
		if out = append(out, some...); int64(len(out)) == last-after {
			break
		}
	}
	slices.SortFunc(out, func(a, b job.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, nil
}

func (s *jobTables) events(ctx context.Context, subject job.Subject, text string, args ...any) ([]job.Event, error) {
	var out []job.Event
	scan := func(r *sql.Rows) error {
		e := job.Event{Subject: subject}
		var at, took int64
		if err := r.Scan(&e.Seq, &at, &e.Type, &e.Text, &e.Severity, &e.JobID, &e.Action, &took, &e.RequestID, &e.User); err != nil {
			return err
		}
		e.At, e.Duration = fromMicros(at), time.Duration(took)*time.Microsecond
		out = append(out, e)
		return nil
	}
	if err := s.read(ctx, nil, scan, text, append([]any{subject.Kind, subject.ID}, args...)...); err != nil {
		return nil, fmt.Errorf("read the timeline of %s %s: %w", subject.Kind, subject.ID, err)
	}
	return out, nil
}

// Prune is job.Timeline's; keep <= 0 does not bound the count. PostgreSQL drops what is old a week at a time. The newest event of all stays: its number is not given again.
func (s *jobTables) Prune(ctx context.Context, before, spare time.Time, keep int) (int, error) {
	remove := func(table string) string {
		return `DELETE FROM ` + table + ` WHERE (subject_kind, subject_id, seq) IN (SELECT e.subject_kind, e.subject_id, e.seq FROM ` + table + ` e `
	}
	n, rest, err := s.engine.pruneEvents(ctx, s.now(), before)
	if err == nil {
		var more int
		more, err = s.execInBatches(ctx, s.pruneBatch, remove(rest)+`WHERE e.at < $1 AND e.num < (SELECT MAX(num) FROM event) LIMIT $2)`, toMicros(before), s.pruneBatch)
		n += more
	}
	if err == nil && keep > 0 {
		var more int
		more, err = s.execInBatches(ctx, s.pruneBatch, remove("event")+`JOIN event_counter c ON c.subject_kind = e.subject_kind AND c.subject_id = e.subject_id
			WHERE c.last > $1 AND e.seq <= c.last - $1 AND e.at < $2 LIMIT $3)`, int64(keep), toMicros(spare), s.pruneBatch)
		n += more
	}
	if err == nil {
		err = s.pruneCounters(ctx)
	}
	if err != nil {
		return n, fmt.Errorf("prune the timeline: %w", err)
	}
	return n, nil
}

// pruneCounters removes the counters of records, and of nodes that are gone, that have no events left. The counters of nodes, servers and
// hosts stay as long as their records, because readers page through the events of those by their numbers.
func (s *jobTables) pruneCounters(ctx context.Context) error {
	for _, of := range []func(*whereClause) string{
		func(c *whereClause) string {
			return c.in("k.subject_kind", append(slices.Clone(namelessSubjects), slices.Sorted(maps.Keys(recordSubjects))...))
		},
		func(*whereClause) string {
			return `k.subject_kind = 'node' AND NOT EXISTS (SELECT 1 FROM node n WHERE n.id = k.subject_id)`
		},
	} {
		c := &whereClause{}
		text := `DELETE FROM event_counter WHERE (subject_kind, subject_id) IN (SELECT k.subject_kind, k.subject_id FROM event_counter k WHERE ` + of(c) +
			` AND NOT EXISTS (SELECT 1 FROM event e WHERE e.subject_kind = k.subject_kind AND e.subject_id = k.subject_id) LIMIT ` + c.count(s.pruneBatch) + `)`
		if _, err := s.execInBatches(ctx, s.pruneBatch, text, c.args...); err != nil {
			return err
		}
	}
	return nil
}
