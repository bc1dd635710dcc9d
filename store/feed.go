package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// eventNumbering is how an engine numbers the events of all subjects.
type eventNumbering struct {
	// next is an expression for the number of a new event.
	next string
	// newest reads the highest number that was given.
	newest string
	// fence takes a number of transactions above all that have begun, and oldest reads the lowest that still runs; empty where
	// events become visible in the order of their numbers.
	fence, oldest string
}

var (
	sqliteNumbering = eventNumbering{
		next:   `(SELECT COALESCE(MAX(num), 0) + 1 FROM event)`,
		newest: `SELECT COALESCE(MAX(num), 0) FROM event`,
	}
	postgresNumbering = eventNumbering{
		next:   `nextval('event_num')`,
		newest: `SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM event_num`,
		fence:  `SELECT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)`,
		oldest: `SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)`,
	}
)

func (s *storeCore) numbering() eventNumbering {
	if _, ok := s.engine.(*postgresEngine); ok {
		return postgresNumbering
	}
	return sqliteNumbering
}

// EventsChanged is job.Feed's.
func (s *jobTables) EventsChanged() <-chan struct{} { return s.eventsChanged.wait() }

// The kinds of subjects that have events, each with the table of its records where those have names.
var (
	machineSubjects = map[string]string{"node": "node", "server": "server", "host": "host", "cluster": "cluster"}
	recordSubjects  = map[string]string{
		"allocation": "allocation", "deploy-template": "deploy_template", "flavor": "flavor", "host-group": "host_group", "image": "image", "keypair": "keypair",
		"network": "network", "rescue-image": "rescue_image", "runbook": "runbook", "site": "site", "token": "api_token", "volume": "volume",
	}
	namelessSubjects = []string{"chassis", "inspection-rule", "join-token", "policy", "seal-key"}
)

// subjectKinds are all kinds of subjects that have events.
func subjectKinds() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(machineSubjects)), slices.Collect(maps.Keys(recordSubjects)), namelessSubjects)))
}

func subjectTable(kind string) (table string, known bool) {
	if table, known = machineSubjects[kind]; !known {
		table, known = recordSubjects[kind]
	}
	return table, known
}

// FindSubject is job.Feed's.
func (s *jobTables) FindSubject(ctx context.Context, kind, ident string) (subject job.Subject, name string, err error) {
	subject = job.Subject{Kind: kind, ID: ident}
	table, named := subjectTable(kind)
	switch {
	case !named && !slices.Contains(namelessSubjects, kind):
		return subject, "", problem.NotFoundf("There is no timeline of a %.40s; name one of these kinds: %s.", kind, strings.Join(subjectKinds(), ", "))
	case !named:
		return subject, "", nil
	}
	found := 0
	err = s.read(ctx, nil, func(r *sql.Rows) error {
		found++
		return r.Scan(&subject.ID, &name)
	}, `SELECT id, name FROM `+table+` WHERE id = $1 OR name = $1 LIMIT 2`, ident)
	switch {
	case err != nil:
		return subject, "", fmt.Errorf("find the %s %s: %w", kind, ident, err)
	case found > 1:
		return subject, "", problem.Conflictf("Several records of kind %s are named %.100s: name one by its UUID.", kind, ident)
	case found == 0 && !record.IsUUID(ident):
		return subject, "", problem.NotFoundf("%s:%.100s could not be found; name what is gone by its UUID.", kind, ident)
	}
	return subject, name, nil
}

// SubjectNames is job.Feed's.
func (s *jobTables) SubjectNames(ctx context.Context, subjects []job.Subject) (map[job.Subject]string, error) {
	c, parts := &whereClause{}, []string{}
	kinds := map[string]bool{}
	for _, subject := range subjects {
		kinds[subject.Kind] = true
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		table, named := subjectTable(kind)
		if !named {
			continue
		}
		var ids []string
		for _, subject := range subjects {
			if subject.Kind == kind && !slices.Contains(ids, subject.ID) {
				ids = append(ids, subject.ID)
			}
		}
		if len(ids) > 0 {
			parts = append(parts, `SELECT '`+kind+`', id, name FROM `+table+` WHERE `+c.in("id", ids)+` AND name <> ''`)
		}
	}
	out := map[job.Subject]string{}
	if len(parts) == 0 {
		return out, nil
	}
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var subject job.Subject
		var name string
		err := r.Scan(&subject.Kind, &subject.ID, &name)
		out[subject] = name
		return err
	}, strings.Join(parts, " UNION ALL "), c.args...)
	if err != nil {
		return nil, fmt.Errorf("read the names of subjects: %w", err)
	}
	return out, nil
}

// Feed is job.Feed's.
func (s *jobTables) Feed(ctx context.Context, f job.FeedFilter, limit int) ([]job.Event, error) {
	c := &whereClause{}
	c.and(`num > ` + c.arg(f.After))
	if len(f.Subjects) > 0 {
		any := ""
		for i, subject := range f.Subjects {
			if i > 0 {
				any += " OR "
			}
			any += `subject_kind = ` + c.arg(subject.Kind) + ` AND subject_id = ` + c.arg(subject.ID)
		}
		c.and(`(` + any + `)`)
	}
	if f.Type != "" {
		c.and(`type = ` + c.arg(f.Type))
	}
	order := ` ORDER BY num LIMIT `
	if f.Newest {
		order = ` ORDER BY num DESC LIMIT `
	}
	var out []job.Event
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var e job.Event
		var at, took int64
		err := r.Scan(&e.Num, &e.Subject.Kind, &e.Subject.ID, &e.Seq, &at, &e.Type, &e.Text, &e.Severity, &e.JobID, &e.Action, &took, &e.RequestID, &e.User)
		e.At, e.Duration = fromMicros(at), time.Duration(took)*time.Microsecond
		out = append(out, e)
		return err
	}, `SELECT num, subject_kind, subject_id, seq, at, type, text, severity, job_id, action, duration, request_id, user_name FROM event`+
		c.where()+order+c.count(limit), c.args...)
	if err != nil {
		return nil, fmt.Errorf("read the timeline: %w", err)
	}
	if f.Newest {
		slices.Reverse(out)
	}
	return out, nil
}

// Settle is job.Feed's. The newest number is read before the fence is taken: who was given one of these numbers has begun by then.
func (s *jobTables) Settle(ctx context.Context, was job.Settled) (job.Settled, error) {
	n, now := s.numbering(), was
	number := func(text string) (v int64, err error) {
		err = s.read(ctx, nil, func(r *sql.Rows) error { return r.Scan(&v) }, text)
		return v, err
	}
	if was.Fence != 0 {
		oldest, err := number(n.oldest)
		if err != nil {
			return was, fmt.Errorf("see which events are settled: %w", err)
		}
		if oldest <= was.Fence {
			return was, nil
		}
		now = job.Settled{UpTo: was.Next}
	}
	newest, err := number(n.newest)
	switch {
	case err != nil:
		return was, fmt.Errorf("see which events are settled: %w", err)
	case n.fence == "":
		return job.Settled{UpTo: newest}, nil
	case newest <= now.UpTo:
		return now, nil
	}
	if now.Fence, err = number(n.fence); err != nil {
		return was, fmt.Errorf("see which events are settled: %w", err)
	}
	now.Next = newest
	return now, nil
}
