package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// UnreadNodes implements metal.HeldStore.
func (s nodeTables) UnreadNodes(ctx context.Context, groups []string, limit int) ([]*metal.Node, error) {
	c := &whereClause{}
	c.and(`NOT EXISTS (SELECT 1 FROM held_reading r WHERE r.node_id = n.id)`)
	c.and(`n.driver <> '' AND n.provision_state <> ` + c.arg(string(metal.Enroll)))
	if groups != nil {
		c.and(c.in("n.conductor_group", groups))
	}
	return s.nodes(ctx, nil, selectNodes+c.where()+` ORDER BY n.num LIMIT `+c.count(limit), c.args...)
}

// SaveReadings implements metal.HeldStore.
func (s nodeTables) SaveReadings(ctx context.Context, readings []metal.HeldReading) error {
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		for _, r := range readings {
			facts, err := json.Marshal(r.Facts)
			if err != nil {
				return err
			}
			if _, err := tx.exec(`INSERT INTO held_reading (node_id, read_at, facts) SELECT id, $2, $3 FROM node WHERE id = $1
				ON CONFLICT (node_id) DO UPDATE SET read_at = excluded.read_at, facts = excluded.facts`, r.NodeID, toMicros(r.ReadAt), string(facts)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep what was read of machines: %w", err)
	}
	return nil
}

// Readings implements metal.HeldStore.
func (s nodeTables) Readings(ctx context.Context, t job.Tx, ids []string) (map[string]metal.HeldReading, error) {
	c, out := &whereClause{}, make(map[string]metal.HeldReading, len(ids))
	c.any("node_id", ids)
	err := s.read(ctx, t, func(r *sql.Rows) error {
		var one metal.HeldReading
		var at int64
		var facts string
		if err := r.Scan(&one.NodeID, &at, &facts); err != nil {
			return err
		}
		one.ReadAt = fromMicros(at)
		err := json.Unmarshal([]byte(facts), &one.Facts)
		out[one.NodeID] = one
		return err
	}, `SELECT node_id, read_at, facts FROM held_reading`+c.where(), c.args...)
	if err != nil {
		return nil, fmt.Errorf("read what was read of machines: %w", err)
	}
	return out, nil
}

// DropReadings implements metal.HeldStore.
func (s nodeTables) DropReadings(t job.Tx) error {
	tx, err := s.tx(t)
	if err == nil {
		_, err = tx.exec(`DELETE FROM held_reading`)
	}
	return err
}

// OpenJobs lists every job that has not ended, the oldest first.
func (s *jobTables) OpenJobs(ctx context.Context, t job.Tx) ([]job.Job, error) {
	return s.jobs(ctx, t, `SELECT `+jobColumns+` FROM job WHERE state <> 'ended' ORDER BY created_at, id`)
}

// FreeJobs takes every open job from its owner, and raises its fence by step. A running job becomes ready, as after the death of its
// owner. The time limits of actions and waits begin anew, because the hold is no fault of the job.
func (s *jobTables) FreeJobs(t job.Tx, step int64) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	_, err = tx.exec(`UPDATE job SET state = CASE WHEN state = 'running' THEN 'ready' ELSE state END, owner = '', fence = fence + $1,
		due = CASE WHEN state IN ('ready', 'running', 'undoing') THEN $2 ELSE due END, deadline = 0 WHERE state <> 'ended'`, step, toMicros(s.timestamp()))
	tx.addsWork = true
	return err
}

// RestartJob makes a free job begin again at its first action, without the notes of its actions.
func (s *jobTables) RestartJob(t job.Tx, j job.Job) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	// A waiting job becomes ready as by a signal, as soon as nothing else locks its subject.
	if _, err := tx.exec(`UPDATE job SET action = '', memo = '', attempt = 0, crashes = 0, wait_for = '', deadline = 0, expires = 0, action_started_at = 0,
		signals = signals + 1 WHERE id = $1 AND state IN ('ready', 'waiting')`, j.ID); err != nil {
		return fmt.Errorf("restart job %s: %w", j.ID, err)
	}
	return s.wakeWaiting(tx, j.Subject)
}

// EndWithoutUndo has a free job end where it stands, with the cause: the conductor that claims the job does and undoes none of its actions.
func (s *jobTables) EndWithoutUndo(t job.Tx, j job.Job, cause string) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	j.MarkEndWithoutUndo()
	memo, err := marshalMemo(j.Memo)
	if err != nil {
		return err
	}
	if _, err := tx.exec(`UPDATE job SET memo = $2 WHERE id = $1`, j.ID, memo); err != nil {
		return fmt.Errorf("end job %s without undo: %w", j.ID, err)
	}
	return s.Abort(t, j, cause)
}

// LoseWitness accepts what a witness remembers: that memory holds the database no more. If the witness remembers a later state of this database, the
// counter rises to that state.
func (s incarnationTables) LoseWitness(t job.Tx, w record.LostWitness) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if _, err := tx.exec(`INSERT INTO lost_witness (witness, incarnation, counter, user_name, declared_at) VALUES ($1, $2, $3, $4, $5)`,
		w.Name, w.ID, w.Counter, w.User, toMicros(s.timestamp())); err != nil {
		return fmt.Errorf("accept the witness %s: %w", w.Name, err)
	}
	if _, err := tx.exec(`UPDATE incarnation SET counter = $1 WHERE id = $2 AND counter < $1`, w.Counter, w.ID); err != nil {
		return fmt.Errorf("accept the witness %s: %w", w.Name, err)
	}
	return nil
}

// ReleaseHold ends the hold. The database gets a new id, and keeps the former id with its last counter. problem.Conflict: another
// operator has released the database.
func (s incarnationTables) ReleaseHold(t job.Tx) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	now := toMicros(s.timestamp())
	if _, err := tx.exec(`INSERT INTO former_incarnation (id, counter, ended_at) SELECT id, counter, $1 FROM incarnation WHERE num = 1
		ON CONFLICT (id) DO UPDATE SET counter = excluded.counter, ended_at = excluded.ended_at`, now); err != nil {
		return err
	}
	n, err := tx.exec(`UPDATE incarnation SET id = $1, counter = counter + 1, held_at = NULL, held_reason = '', held_detail = '' WHERE held_at IS NOT NULL`, newIncarnationID())
	if err == nil && n == 0 {
		err = problem.Conflictf("The database is not held any more: someone else has released it.")
	}
	for _, text := range []string{`DELETE FROM held_reading`, allowFormer} {
		if err == nil {
			_, err = tx.exec(text)
		}
	}
	return err
}

// OpenJobs lists every job that has not ended, the oldest first, with the columns that need no key.
func (d *Database) OpenJobs(ctx context.Context) ([]job.Job, error) {
	rows, err := d.tables.db.QueryContext(ctx, `SELECT id, kind, subject_kind, subject_id, state, action, attempt, created_at, user_name FROM job
		WHERE state <> 'ended' ORDER BY created_at, id`)
	if err != nil {
		return nil, d.classify(fmt.Errorf("database: read open jobs: %w", err))
	}
	defer rows.Close()
	var out []job.Job
	for rows.Next() {
		var j job.Job
		var at int64
		if err := rows.Scan(&j.ID, &j.Kind, &j.Subject.Kind, &j.Subject.ID, &j.State, &j.Action, &j.Attempt, &at, &j.User); err != nil {
			return nil, d.classify(fmt.Errorf("database: read open jobs: %w", err))
		}
		j.CreatedAt = fromMicros(at)
		out = append(out, j)
	}
	return out, d.classify(rows.Err())
}
