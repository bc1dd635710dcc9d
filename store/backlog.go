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

// backlog refuses new operations of users while too many accepted ones wait for a conductor.
type backlog struct {
	limit int // waiting operations of one conductor group; 0: no bound

	mu      sync.Mutex
	counted time.Time
	groups  map[string]*groupBacklog
	// counting tells that a request counts now.
	counting bool
	refused  int64
}

// groupBacklog is the backlog of one conductor group at the newest count.
type groupBacklog struct {
	waiting int           // jobs that are due and that no conductor has claimed
	age     time.Duration // of the job that has been due for the longest time
	added   int           // jobs that this process has added since the count
	refused int           // requests that this process has refused since the count
}

const (
	// recount is how long a count of the backlog is used.
	recount = 500 * time.Millisecond
	// longestRetry bounds the Retry-After of a refused operation.
	longestRetry = 60 * time.Second
)

// alwaysAccepted are kinds of jobs that a backlog does not hold up: they cut off and save what a dead host ran.
var alwaysAccepted = []job.Kind{metal.JobCut, compute.JobFence, compute.JobEvacuate, compute.JobMove}

// admit refuses a job that a user asks for where the backlog of its group is full. Questions to a BMC only read, and pass.
// What conductors insert themselves belongs to work that was accepted, and passes, too.
func (s *Store) admit(tx *Tx, j *job.Job) error {
	b := &s.backlog
	if b.limit <= 0 || !tx.requested || j.Class == job.Ask || slices.Contains(alwaysAccepted, j.Kind) {
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
		strings.TrimSpace(titled(j.Subject)), j.Kind, g.waiting+g.added, of, int(after/time.Second)))
}

// recountBacklog counts where the last count is old. While one request counts, the others go by the last count.
func (s *Store) recountBacklog(tx *Tx) error {
	b, now := &s.backlog, s.stamp()
	b.mu.Lock()
	due := !b.counting && (b.groups == nil || now.Sub(b.counted) >= recount || now.Before(b.counted))
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

// retryAfter is how long the conductors need to make room for those who were refused before, and for one more. The oldest
// job's age tells how long they need for the whole backlog.
func (g *groupBacklog) retryAfter(limit int) time.Duration {
	ahead := g.waiting + g.added - limit + g.refused
	each := time.Duration(0)
	if g.waiting > 0 {
		each = g.age / time.Duration(g.waiting)
	}
	after := time.Duration(math.Ceil((time.Duration(ahead) * each).Seconds())) * time.Second
	return min(max(after, time.Second), longestRetry)
}

func (s *Store) countBacklog(tx *Tx, now time.Time) (map[string]*groupBacklog, error) {
	groups := map[string]*groupBacklog{}
	err := tx.each(func(r *sql.Rows) error {
		var name string
		var oldest int64
		g := &groupBacklog{}
		if err := r.Scan(&name, &g.waiting, &oldest); err != nil {
			return err
		}
		g.age = max(now.Sub(moment(oldest)), 0)
		groups[name] = g
		return nil
	}, backlogText, micros(now))
	if err != nil {
		return nil, fmt.Errorf("count the jobs that wait for a conductor: %w", err)
	}
	return groups, nil
}

const backlogText = `SELECT group_name, COUNT(*), MIN(due) FROM job WHERE ` + claimFree + ` AND due <= $1 GROUP BY group_name`

// Backlog is how many jobs are due that no conductor has claimed, of the group that has most, and for how long the oldest
// of that group has waited.
func (d *Database) Backlog(ctx context.Context) (most int, age time.Duration, err error) {
	now := time.Now()
	rows, err := d.tables.db.QueryContext(ctx, backlogText, micros(now))
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
			most, age = n, max(now.Sub(moment(oldest)), 0)
		}
	}
	return most, age, d.classify(rows.Err())
}

// RefusedOperations counts the operations that this process has refused because of the backlog.
func (s *Store) RefusedOperations() int64 {
	s.backlog.mu.Lock()
	defer s.backlog.mu.Unlock()
	return s.backlog.refused
}

// BacklogLimit is the most jobs of one group that may wait for a conductor; 0: there is no bound.
func (s *Store) BacklogLimit() int { return s.backlog.limit }
