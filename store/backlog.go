package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

// backlogLimiter refuses new operations of users while too many accepted ones wait for a conductor.
type backlogLimiter struct {
	limit int // waiting operations of one conductor group; 0: no bound

	mu      sync.Mutex
	counted time.Time
	groups  map[string]*groupBacklog
	// counting: a request is counting the backlog now.
	counting bool
	refused  int64
}

// groupBacklog is the backlog of one conductor group at the newest count.
type groupBacklog struct {
	waiting int           // jobs that are due and that no conductor has claimed
	age     time.Duration // time for which the oldest job has been due
	added   int           // jobs that this process has added since the count
	refused int           // requests that this process has refused since the count
}

const (
	// backlogTTL is the lifetime of a count of the backlog.
	backlogTTL = 500 * time.Millisecond
	// longestRetry bounds the Retry-After of a refused operation.
	longestRetry = 60 * time.Second
)

// alwaysAccepted are the kinds of jobs that a full backlog does not refuse: they fence dead hosts and evacuate their servers.
var alwaysAccepted = []job.Kind{metal.JobForcePowerOff, compute.JobFence, compute.JobEvacuate, compute.JobMove}

// asksForOperations are the kinds of background jobs that a full backlog refuses, because each asks for a rescue of its node.
var asksForOperations = []job.Kind{metal.JobDiagnose, metal.JobRepair}

// checkBacklog refuses a job of a user's request if the backlog of its group is full. Background jobs that ask for no operation pass: they are
// questions to a BMC or a host. Jobs that conductors insert pass too, because they belong to accepted work.
func (s *jobTables) checkBacklog(tx *Tx, j *job.Job) error {
	b := &s.backlog
	if b.limit <= 0 || !tx.requested || j.Class == job.Background && !slices.Contains(asksForOperations, j.Kind) || slices.Contains(alwaysAccepted, j.Kind) {
		return nil
	}
	if err := s.recountBacklog(tx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[j.Group]
	if g == nil {
		g = &groupBacklog{}
		b.groups[j.Group] = g
	}
	if g.waiting+g.added < b.limit {
		g.added++
		tx.onRollback(func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			g.added--
		})
		return nil
	}
	b.refused++
	g.refused++
	after := g.retryAfter(b.limit)
	of := ""
	if j.Group != "" {
		of = " of the group " + j.Group
	}
	return problem.RetryAfter(after, problem.Unavailablef("%s: cannot begin %s: %d accepted operations wait for a conductor%s already; nothing was changed, ask again in %d s",
		strings.TrimSpace(formatSubjectTitle(j.Subject)), j.Kind, g.waiting+g.added, of, int(after/time.Second)))
}

// recountBacklog counts the backlog if the last count is old. While one request counts, the others use the last count.
func (s *jobTables) recountBacklog(tx *Tx) error {
	b, now := &s.backlog, s.timestamp()
	b.mu.Lock()
	due := !b.counting && (b.groups == nil || now.Sub(b.counted) >= backlogTTL || now.Before(b.counted))
	b.counting = b.counting || due
	if b.groups == nil {
		b.groups = map[string]*groupBacklog{}
	}
	b.mu.Unlock()
	if !due {
		return nil
	}
	groups, err := s.countBacklog(tx, now)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counting = false
	if err == nil {
		b.groups, b.counted = groups, now
	}
	return err
}

// retryAfter estimates the time until the conductors have room for this request and for those refused before it. The age of the
// oldest job shows how long they need for the whole backlog.
func (g *groupBacklog) retryAfter(limit int) time.Duration {
	ahead := g.waiting + g.added - limit + g.refused
	each := time.Duration(0)
	if g.waiting > 0 {
		each = g.age / time.Duration(g.waiting)
	}
	after := time.Duration(math.Ceil((time.Duration(ahead) * each).Seconds())) * time.Second
	return min(max(after, time.Second), longestRetry)
}

func (s *jobTables) countBacklog(tx *Tx, now time.Time) (map[string]*groupBacklog, error) {
	groups := map[string]*groupBacklog{}
	err := tx.each(func(r *sql.Rows) error {
		var name string
		var oldest int64
		g := &groupBacklog{}
		if err := r.Scan(&name, &g.waiting, &oldest); err != nil {
			return err
		}
		g.age = max(now.Sub(fromMicros(oldest)), 0)
		groups[name] = g
		return nil
	}, backlogText, toMicros(now))
	if err != nil {
		return nil, fmt.Errorf("count the jobs that wait for a conductor: %w", err)
	}
	return groups, nil
}

const backlogText = `SELECT group_name, COUNT(*), MIN(due) FROM job WHERE ` + claimFree + ` AND due <= $1 GROUP BY group_name`

// Place is job.Queue's.
func (s *jobTables) Place(ctx context.Context, j job.Job) (*job.Place, error) {
	now := s.timestamp()
	if j.Owner != "" || !isClaimable(j.State) || j.Due.After(now) {
		return nil, nil
	}
	p := &job.Place{Limit: s.backlog.limit, Due: now.Sub(j.Due)}
	err := s.read(ctx, nil, func(r *sql.Rows) error { return r.Scan(&p.Before, &p.Waiting, &p.Running) },
		`SELECT (SELECT COUNT(*) FROM job WHERE `+claimFree+` AND due < $1 AND group_name = $2),
			(SELECT COUNT(*) FROM job WHERE `+claimFree+` AND due <= $3 AND group_name = $2),
			(SELECT COUNT(*) FROM job WHERE owner <> '' AND group_name = $2)`, toMicros(j.Due), j.Group, toMicros(now))
	if err != nil {
		return nil, fmt.Errorf("count the jobs that wait before job %s: %w", j.ID, err)
	}
	return p, nil
}

// Backlog counts the due jobs that no conductor has claimed, in the group that has most of them. age is the time for which that
// group's oldest job has been due.
func (d *Database) Backlog(ctx context.Context) (most int, age time.Duration, err error) {
	now := time.Now()
	rows, err := d.tables.db.QueryContext(ctx, backlogText, toMicros(now))
	if err != nil {
		return 0, 0, d.classify(fmt.Errorf("count the jobs that wait for a conductor: %w", err))
	}
	defer rows.Close()
	for rows.Next() {
		var group string
		var n int
		var oldest int64
		if err := rows.Scan(&group, &n, &oldest); err != nil {
			return 0, 0, d.classify(err)
		}
		if n > most {
			most, age = n, max(now.Sub(fromMicros(oldest)), 0)
		}
	}
	return most, age, d.classify(rows.Err())
}

// RefusedOperations counts the operations that this process has refused because of the backlog.
func (s *jobTables) RefusedOperations() int64 {
	s.backlog.mu.Lock()
	defer s.backlog.mu.Unlock()
	return s.backlog.refused
}

// BacklogLimit is the maximum backlog of one group; 0: there is no bound.
func (s *jobTables) BacklogLimit() int { return s.backlog.limit }
