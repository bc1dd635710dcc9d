package store

import (
	"context"
	"database/sql"
	"fmt"

	"salvor/job"
	"salvor/problem"
)

// Abort is job.Queue's.
func (s *jobTables) Abort(t job.Tx, j job.Job, cause string) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	n, err := tx.exec(`UPDATE job SET abort_cause = $2, signals = signals + 1,
		due = CASE WHEN `+claimFree+` THEN CAST($3 AS BIGINT) ELSE due END, updated_at = CAST($3 AS BIGINT)
		WHERE id = $1 AND state <> 'ended'`, j.ID, cause, toMicros(s.timestamp()))
	if err != nil {
		return fmt.Errorf("abort job %s: %w", j.ID, err)
	}
	if n == 0 {
		return problem.Conflictf("Job %s (%s) has just ended; there is nothing to abort.", j.ID, j.Kind)
	}
	tx.addsWork = true
	// One that waits is made ready, or is made ready by whoever gives up its subject's lock.
	return s.wakeWaiting(tx, j.Subject)
}

// Aborted is job.Claims's.
func (s *jobTables) Aborted(ctx context.Context, owner string) (map[string]string, error) {
	var out map[string]string
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var id, cause string
		if err := r.Scan(&id, &cause); err != nil {
			return err
		}
		if out == nil {
			out = map[string]string{}
		}
		out[id] = cause
		return nil
	}, `SELECT id, abort_cause FROM job WHERE owner = $1 AND abort_cause <> '' AND state <> 'ended' AND abort_cause <> problem`, owner)
	if err != nil {
		return nil, fmt.Errorf("look for aborted jobs: %w", err)
	}
	return out, nil
}

// RetryNow is job.Queue's.
func (s *jobTables) RetryNow(t job.Tx, subject job.Subject) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	n, err := tx.exec(`UPDATE job SET retry_now = 1, due = CASE WHEN `+claimFree+` AND due > CAST($3 AS BIGINT) THEN CAST($3 AS BIGINT) ELSE due END
		WHERE subject_kind = $1 AND subject_id = $2 AND state IN ('ready', 'running', 'undoing')`,
		subject.Kind, subject.ID, toMicros(s.timestamp()))
	if err != nil {
		return fmt.Errorf("try the job of %s %s again: %w", subject.Kind, subject.ID, err)
	}
	tx.addsWork = tx.addsWork || n > 0
	return nil
}
