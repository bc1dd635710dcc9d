package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"salvor/metal"
)

// RowCounts counts rows for those who watch, by one query for each kind.
type RowCounts struct {
	// Jobs that have not ended, by kind and state; Oldest are the creation times of the oldest of each kind.
	Jobs   map[[2]string]int
	Oldest map[string]time.Time
	// Nodes by provision state, and those of them in maintenance; Servers by state, deleted ones left out.
	Nodes, Maintenance, Servers map[string]int
	// Heartbeats counts the ramdisks that should be talking by the age of their last heartbeat: at most each of Ages, and older ones.
	Heartbeats []int
	Ages       []time.Duration
	// Orders of hosts that have no result yet.
	Orders int
	// Backlog counts the due jobs that no conductor has claimed, in the conductor group that has most of them.
	Backlog int
}

// CensusAges are the bounds of the ages of heartbeats.
var CensusAges = []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}

// CountRows counts.
func (s *Store) CountRows(ctx context.Context) (*RowCounts, error) {
	c := &RowCounts{Jobs: map[[2]string]int{}, Oldest: map[string]time.Time{}, Nodes: map[string]int{}, Maintenance: map[string]int{}, Servers: map[string]int{},
		Ages: CensusAges, Heartbeats: make([]int, len(CensusAges)+1)}
	for _, q := range []struct {
		scan func(*sql.Rows) error
		text string
		args []any
	}{
		{c.scanJob, `SELECT kind, state, COUNT(*), MIN(created_at) FROM job WHERE state <> 'ended' GROUP BY kind, state`, nil},
		{c.scanServer, `SELECT state, COUNT(*) FROM server WHERE state <> 'deleted' GROUP BY state`, nil},
		{func(r *sql.Rows) error { return r.Scan(&c.Orders) }, `SELECT COUNT(*) FROM host_order WHERE finished_at = 0`, nil},
		{c.scanBacklog, backlogText, []any{toMicros(s.timestamp())}},
	} {
		if err := s.read(ctx, nil, q.scan, q.text, q.args...); err != nil {
			return nil, fmt.Errorf("count rows: %w", err)
		}
	}
	nodes, err := s.FleetCounts(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		c.Nodes[string(n.State)] += n.Count
		if n.Maintenance {
			c.Maintenance[string(n.State)] += n.Count
		}
	}
	if err := s.countHeartbeats(ctx, c); err != nil {
		return nil, fmt.Errorf("count heartbeats: %w", err)
	}
	return c, nil
}

func (c *RowCounts) scanJob(r *sql.Rows) error {
	var key [2]string
	var n int
	var created int64
	if err := r.Scan(&key[0], &key[1], &n, &created); err != nil {
		return err
	}
	c.Jobs[key] = n
	if at := fromMicros(created); c.Oldest[key[0]].IsZero() || at.Before(c.Oldest[key[0]]) {
		c.Oldest[key[0]] = at
	}
	return nil
}

func (c *RowCounts) scanBacklog(r *sql.Rows) error {
	var group string
	var n int
	var oldest int64
	if err := r.Scan(&group, &n, &oldest); err != nil {
		return err
	}
	c.Backlog = max(c.Backlog, n)
	return nil
}

func (c *RowCounts) scanServer(r *sql.Rows) error {
	var state string
	var n int
	err := r.Scan(&state, &n)
	c.Servers[state] = n
	return err
}

// countHeartbeats looks at nodes in states in which a ramdisk runs; one that has not been heard since its state began counts from then.
func (s *Store) countHeartbeats(ctx context.Context, c *RowCounts) error {
	q, now := &whereClause{}, toMicros(s.now())
	var cases strings.Builder
	for i, age := range c.Ages {
		fmt.Fprintf(&cases, " WHEN heard >= %s THEN %d", q.arg(now-age.Microseconds()), i)
	}
	var states []string
	for _, info := range metal.States {
		if info.Lookup {
			states = append(states, string(info.State))
		}
	}
	in := q.in("n.provision_state", states)
	return s.read(ctx, nil, func(r *sql.Rows) error {
		var i, n int
		err := r.Scan(&i, &n)
		if err == nil && i >= 0 && i < len(c.Heartbeats) {
			c.Heartbeats[i] = n
		}
		return err
	}, `SELECT CASE`+cases.String()+fmt.Sprintf(" ELSE %d END AS age, COUNT(*) FROM (", len(c.Ages))+
		`SELECT CASE WHEN k.heartbeat_at > n.provisioned_at THEN k.heartbeat_at ELSE n.provisioned_at END AS heard
			FROM node n LEFT JOIN contact k ON k.node_id = n.id WHERE `+in+`) AS h GROUP BY age`, q.args...)
}
