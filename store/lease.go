package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"salvor/job"
	"salvor/problem"
)

const (
	// beatTime bounds a beat: one that comes later is not waited for, the next one counts as much.
	beatTime = 2 * time.Second
	// advanceTime bounds a step of the groups' clocks, for which all conductors may meet.
	advanceTime = 10 * time.Second
	// joinTime bounds a registration, which is followed by another under a new name.
	joinTime = 15 * time.Second
)

// Register is job.Leases's.
func (s *jobTables) Register(ctx context.Context, c job.Conductor) error {
	err := s.Do(forLease(ctx, joinTime), func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		return s.register(tx, c)
	})
	if err != nil {
		return fmt.Errorf("register conductor %s: %w", c.ID, err)
	}
	return nil
}

func (s *jobTables) register(tx *Tx, c job.Conductor) error {
	now := toMicros(s.timestamp())
	former := c.ID + "/"
	if _, err := tx.release(`substr(owner, 1, $2) = $3 AND owner <> $4`, []any{now, len([]rune(former)), former, c.Owner()}); err != nil {
		return err
	}
	started := toMicros(c.StartedAt)
	if started == 0 {
		started = now
	}
	_, err := tx.exec(`INSERT INTO conductor (id, incarnation, owner, hostname, counter, description, started_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO UPDATE SET incarnation = excluded.incarnation, owner = excluded.owner,
		hostname = excluded.hostname, counter = excluded.counter, description = excluded.description, started_at = excluded.started_at,
		updated_at = excluded.updated_at`, c.ID, c.Incarnation, c.Owner(), c.Hostname, c.Counter, string(c.Description), started, now)
	if err != nil {
		return err
	}
	if _, err := tx.exec(`DELETE FROM conductor_member WHERE conductor_id = $1`, c.ID); err != nil {
		return err
	}
	for _, group := range c.Groups {
		if _, err := tx.exec(`INSERT INTO conductor_member (conductor_id, group_name) VALUES ($1, $2) ON CONFLICT DO NOTHING`, c.ID, group); err != nil {
			return err
		}
	}
	return nil
}

// RenewLease is job.Leases's.
func (s *jobTables) RenewLease(ctx context.Context, c job.Conductor) error {
	var counter int64
	err := s.Do(forLease(ctx, beatTime), func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		counter = 0
		err = tx.each(func(r *sql.Rows) error { return r.Scan(&counter) }, `UPDATE conductor SET counter = counter + 1, updated_at = $3
			WHERE id = $1 AND incarnation = $2 RETURNING counter`, c.ID, c.Incarnation, toMicros(s.timestamp()))
		if err == nil && counter == 0 {
			return job.ErrFenced
		}
		if err == nil {
			err = s.readBeat(tx, c.Owner(), counter)
		}
		return err
	})
	if err == nil {
		s.history.recordBeat(c.Owner(), counter)
	}
	if err != nil {
		return fmt.Errorf("beat of conductor %s: %w", c.ID, err)
	}
	return nil
}

// Conductors is job.Leases's.
func (s *jobTables) Conductors(ctx context.Context) ([]job.Conductor, error) {
	var out []job.Conductor
	scan := func(r *sql.Rows) error {
		var c job.Conductor
		var group sql.NullString
		var description string
		var started, updated int64
		if err := r.Scan(&c.ID, &c.Incarnation, &c.Hostname, &c.Counter, &description, &started, &updated, &group); err != nil {
			return err
		}
		if n := len(out); n == 0 || out[n-1].ID != c.ID {
			c.Description, c.StartedAt, c.UpdatedAt = toRawMessage(description), fromMicros(started), fromMicros(updated)
			out = append(out, c)
		}
		if group.Valid {
			last := &out[len(out)-1]
			last.Groups = append(last.Groups, group.String)
		}
		return nil
	}
	err := s.read(ctx, nil, scan, `SELECT c.id, c.incarnation, c.hostname, c.counter, c.description, c.started_at, c.updated_at, m.group_name
		FROM conductor c LEFT JOIN conductor_member m ON m.conductor_id = c.id ORDER BY c.hostname, c.id, m.group_name`)
	if err != nil {
		return nil, fmt.Errorf("list conductors: %w", err)
	}
	return out, nil
}

// Retire is job.Leases's.
func (s *jobTables) Retire(ctx context.Context, c job.Conductor) error {
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		lives := false
		if _, err := tx.exec(`DELETE FROM conductor WHERE id = $1 AND incarnation = $2 AND (CAST($3 AS BIGINT) = 0 OR counter = $3)`, c.ID, c.Incarnation, c.Counter); err != nil {
			return err
		}
		err = tx.each(func(*sql.Rows) error { lives = true; return nil }, `SELECT 1 FROM conductor WHERE id = $1 AND incarnation = $2`, c.ID, c.Incarnation)
		if err == nil && lives {
			return problem.Conflictf("it beats")
		}
		if err == nil {
			_, err = tx.release(`owner = $2`, []any{toMicros(s.timestamp()), c.Owner()})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("retire conductor %s: %w", c.ID, err)
	}
	return nil
}

// ownerIsDead is true of jobs whose owner's row is gone. A row that shows an owner was written after that of the owner, so whoever sees the
// one and not the other sees a dead one.
const ownerIsDead = `owner <> '' AND NOT EXISTS (SELECT 1 FROM conductor c WHERE c.owner = job.owner)`

// ReleaseOrphans is job.Leases's.
func (s *jobTables) ReleaseOrphans(ctx context.Context) (int, error) {
	// Most looks find nothing, and a look is cheaper than a transaction.
	var n int64
	err := s.read(ctx, nil, func(r *sql.Rows) error { return r.Scan(&n) }, `SELECT 1 FROM job WHERE `+ownerIsDead+` LIMIT 1`)
	if err == nil && n > 0 {
		err = s.Do(ctx, func(t job.Tx) error {
			tx, err := s.tx(t)
			if err == nil {
				n, err = tx.release(ownerIsDead, []any{toMicros(s.timestamp())})
			}
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("release jobs without an owner that lives: %w", err)
	}
	return int(n), nil
}

// Ticks is job.Clock's.
func (s *jobTables) Ticks(ctx context.Context, groups []string) (map[string]int64, error) {
	out := make(map[string]int64, len(groups))
	for _, g := range groups {
		out[g] = 0
	}
	c := &whereClause{}
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var name string
		var ticks int64
		err := r.Scan(&name, &ticks)
		out[name] = ticks
		return err
	}, `SELECT name, ticks FROM group_clock WHERE `+c.in("name", groups), c.args...)
	if err != nil {
		return nil, fmt.Errorf("read the clocks of conductor groups: %w", err)
	}
	return out, nil
}

// Advance is job.Clock's.
func (s *jobTables) Advance(ctx context.Context, seen map[string]int64) error {
	if s.Held() != nil {
		return nil // a job that waits for an operator is not late
	}
	err := s.Do(withTransactionTimeout(ctx, advanceTime), func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		// In the same order as every other conductor, or two that share two groups wait for each other.
		for _, name := range slices.Sorted(maps.Keys(seen)) {
			if _, err := tx.exec(`INSERT INTO group_clock (name, ticks) VALUES ($1, 1)
				ON CONFLICT (name) DO UPDATE SET ticks = group_clock.ticks + 1 WHERE group_clock.ticks = $2`, name, seen[name]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("advance the clocks of conductor groups: %w", err)
	}
	return nil
}
