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
)

// whereClause gathers the conditions of a WHERE and their arguments.
type whereClause struct {
	parts []string
	args  []any
	// node: the conditions speak of the row's node, as n.
	node bool
	// anyOf is sqlEngine.anyOf, which only lists confined to a project need; nil elsewhere. newWhere sets it.
	anyOf func(subquery string) string
}

// newWhere is an empty clause for lists that may be confined to a project.
func (s *storeCore) newWhere() *whereClause { return &whereClause{anyOf: s.engine.anyOf} }

// arg adds an argument and gives its placeholder.
func (c *whereClause) arg(v any) string {
	c.args = append(c.args, v)
	return fmt.Sprintf("$%d", len(c.args))
}

// count is arg for a LIMIT. The cast keeps SQLite from planning by the number, which would
// have it prepare the statement again for every execution.
func (c *whereClause) count(n int) string { return "CAST(" + c.arg(int64(n)) + " AS BIGINT)" }

func (c *whereClause) and(condition string) { c.parts = append(c.parts, condition) }

// in is column IN (values); of no values, false.
func (c *whereClause) in(column string, values []string) string {
	if len(values) == 0 {
		return "1 = 0"
	}
	marks := make([]string, len(values))
	for i, v := range values {
		marks[i] = c.arg(v)
	}
	return column + " IN (" + strings.Join(marks, ", ") + ")"
}

func (c *whereClause) where() string {
	if len(c.parts) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.parts, " AND ")
}

// claimFree is the condition under which anybody may claim a job.
const claimFree = `owner = '' AND state IN ('ready', 'undoing')`

// claimTime bounds a claim; what was claimed all the same is found by Claimed.
const claimTime = 10 * time.Second

// Claim is job.Claims's.
func (s *jobTables) Claim(ctx context.Context, owner string, now time.Time, groups []string, kinds map[job.Kind]int, limit int) ([]job.Job, error) {
	if len(groups) == 0 || len(kinds) == 0 || limit <= 0 || s.StandsBy() {
		return nil, nil
	}
	c := &whereClause{args: []any{owner, toMicros(now)}}
	first := len(c.args) + 1
	c.args = append(c.args, knownHistory{}.acting()...) // the transaction's own take their places
	stamp := c.arg(toMicros(s.timestamp()))
	text := `UPDATE job SET owner = $1, fence = fence + 1, seen = signals, updated_at = ` + stamp + `,
		state = CASE WHEN state = 'ready' THEN 'running' ELSE state END
		WHERE id` + s.engine.skipLockedClause(`SELECT id FROM job WHERE `+claimFree+` AND due <= $2 AND `+c.in("group_name", groups)+`
		AND `+c.known(kinds)+` AND `+mayAct(first)+` ORDER BY due LIMIT `+c.count(limit)) + ` RETURNING ` + jobColumns
	// Most looks find nothing, and a look is cheaper than a transaction.
	if next, err := s.NextDue(ctx, groups, kinds); err != nil || next.IsZero() || next.After(now) {
		return nil, err
	}
	var out []job.Job
	err := s.Do(withTransactionTimeout(ctx, claimTime), func(t job.Tx) error {
		out = nil
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		// Whoever has not read the key of their secrets takes no jobs: to it they would be damaged.
		if err := tx.seals(); err != nil {
			return err
		}
		copy(c.args[first-1:], tx.seen.acting())
		return tx.each(s.collectJobs(&out), text, c.args...)
	})
	if err != nil {
		return nil, fmt.Errorf("claim jobs: %w", err)
	}
	slices.SortStableFunc(out, func(a, b job.Job) int { return a.Due.Compare(b.Due) })
	return out, nil
}

// Claimed is job.Claims's.
func (s *jobTables) Claimed(ctx context.Context, owner string, limit int) ([]job.Job, error) {
	if s.StandsBy() {
		return nil, nil
	}
	// The rows of an older state of the database, as a standby that took over has them, give this process jobs that it has ended.
	c := &whereClause{args: append([]any{owner}, s.history.seen().acting()...)}
	text := `SELECT ` + jobColumns + ` FROM job WHERE owner <> '' AND owner = $1 AND ` + mayAct(2) + ` ORDER BY due LIMIT ` + c.count(limit)
	out, err := s.jobs(ctx, nil, text, c.args...)
	if err != nil || !slices.ContainsFunc(out, func(j job.Job) bool { return j.Damage != "" }) {
		return out, err
	}
	// As in Claim: a secret under a key that is not read yet is no damage.
	err = s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err == nil {
			err = tx.seals()
		}
		if err == nil {
			out, err = s.jobs(ctx, tx, text, c.args...)
		}
		return err
	})
	return out, err
}

// RescheduleEarlier is job.Claims's.
func (s *jobTables) RescheduleEarlier(ctx context.Context, now, after time.Time, groups []string) (int, error) {
	if len(groups) == 0 {
		return 0, nil
	}
	c := &whereClause{args: []any{toMicros(after)}}
	which := claimFree + ` AND due > $1 AND ` + c.in("group_name", groups)
	var n int64
	err := s.read(ctx, nil, func(r *sql.Rows) error { return r.Scan(&n) }, `SELECT 1 FROM job WHERE `+which+` LIMIT 1`, c.args...)
	if err != nil || n == 0 {
		return 0, err
	}
	text := `UPDATE job SET due = ` + c.arg(toMicros(now)) + ` WHERE ` + which
	err = s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		if err != nil {
			return err
		}
		n, err = tx.exec(text, c.args...)
		tx.addsWork = tx.addsWork || n > 0
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("make jobs due now: %w", err)
	}
	return int(n), nil
}

// Save is job.Claims's.
func (s *jobTables) Save(t job.Tx, j *job.Job, keep bool) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	memo, err := marshalMemo(j.Memo)
	if err != nil {
		return err
	}
	now := s.timestamp()
	owner := j.Owner
	if !keep || j.State != job.Running && j.State != job.Undoing {
		owner = ""
	}
	ended := j.EndedAt
	if j.State == job.Ended && ended.IsZero() {
		ended = now
	}
	sealed, err := s.sealJob(tx, j)
	if err != nil {
		return err
	}
	// Look, then park: a signal between the claim and now has raised signals over seen.
	const signalled = `CAST($4 AS TEXT) = 'waiting' AND signals <> seen`
	// An abort that came since the claim is not kept waiting for the next try. One that has its effect already is the job's problem.
	const aborted = `CAST($4 AS TEXT) <> 'ended' AND abort_cause <> '' AND abort_cause <> $14`
	n, err := tx.exec(`UPDATE job SET state = CASE WHEN `+signalled+` THEN 'ready' ELSE CAST($4 AS TEXT) END,
		due = CASE WHEN `+signalled+` OR `+aborted+` OR CAST($4 AS TEXT) = 'ready' AND retry_now <> 0 THEN CAST($5 AS BIGINT) ELSE CAST($6 AS BIGINT) END, updated_at = CAST($5 AS BIGINT),
		retry_now = CASE WHEN CAST($4 AS TEXT) = 'running' THEN retry_now ELSE 0 END, owner = $7, fence = fence + 1, action = $8, attempt = $9, crashes = $10, memo = $11, secret = $12, result = $13, problem = $14, problem_kind = $15,
		wait_for = $16, deadline = $17, operation_deadline = $18, expires = $19, action_started_at = $20, ended_at = $21
		WHERE id = $1 AND owner = $2 AND fence = $3 AND `+mayAct(22),
		j.ID, j.Owner, j.Fence, string(j.State), toMicros(now), toMicros(j.Due),
		owner, j.Action, j.Attempt, j.Crashes, memo, sealed, string(j.Result), j.Problem, j.ProblemKind,
		j.WaitFor, j.Deadline, j.OperationDeadline, jobExpiry(j), toMicros(j.ActionStartedAt), toMicros(ended),
		tx.seen.id, tx.seen.counter, tx.seen.owner, tx.seen.beats)
	if err != nil {
		return fmt.Errorf("save job %s: %w", j.ID, err)
	}
	if n == 0 || j.Owner == "" {
		return fmt.Errorf("save job %s: %w", j.ID, job.ErrFenced)
	}
	if owner == "" && (j.State == job.Waiting || isClaimable(j.State)) {
		tx.addsWork = true
	}
	// An operation is the only one of its subject: nobody waits for its lock but itself.
	if j.Class == job.Command && (j.State == job.Waiting || j.State == job.Ended) {
		return s.unlockSubject(tx, j.Subject)
	}
	return nil
}

// WaitOn is job.Claims's.
func (s *jobTables) WaitOn(t job.Tx, j *job.Job, deadline int64) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	memo, err := marshalMemo(j.Memo)
	if err != nil {
		return err
	}
	next := *j
	next.Deadline = deadline
	n, err := tx.exec(`UPDATE job SET deadline = $2, expires = $3, memo = $4, updated_at = $5 WHERE id = $1 AND state = 'waiting' AND fence = $6 AND deadline = $7`,
		j.ID, next.Deadline, jobExpiry(&next), memo, toMicros(s.timestamp()), j.Fence, j.Deadline)
	if err != nil {
		return fmt.Errorf("have job %s wait on: %w", j.ID, err)
	}
	if n == 0 {
		return problem.Conflictf("Job %s does not wait any more as it did.", j.ID)
	}
	return nil
}

// unlockSubject wakes the subject's waiting operation after its lock was given up. The
// first statement changes nothing but waits for a signal that is being counted, so
// that the second sees it (PostgreSQL; see Signal).
func (s *jobTables) unlockSubject(tx *Tx, subject job.Subject) error {
	n, err := tx.exec(`UPDATE job SET signals = signals WHERE subject_kind = $1 AND subject_id = $2 AND `+openOperation+` AND state = 'waiting'`,
		subject.Kind, subject.ID)
	if err != nil || n == 0 {
		return err
	}
	return s.wakeWaiting(tx, subject)
}

// Expired is job.Claims's.
func (s *jobTables) Expired(ctx context.Context, groups []string, kinds map[job.Kind]int, after job.Job, limit int) ([]job.Job, error) {
	if len(groups) == 0 || len(kinds) == 0 || limit <= 0 || s.StandsBy() {
		return nil, nil
	}
	c := &whereClause{args: []any{jobExpiry(&after), after.ID}}
	text := `SELECT ` + jobColumns + ` FROM job WHERE state = 'waiting' AND expires > 0 AND (expires, id) > ($1, $2) AND ` + c.in("group_name", groups) + `
		AND expires <= (SELECT ticks FROM group_clock WHERE name = job.group_name) AND ` + c.known(kinds) + ` ORDER BY expires, id LIMIT ` + c.count(limit)
	return s.jobs(ctx, nil, text, c.args...)
}

// known keeps jobs of these kinds, each up to the version that is known.
func (c *whereClause) known(kinds map[job.Kind]int) string {
	var known []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		known = append(known, fmt.Sprintf("kind = %s AND version <= %s", c.arg(string(kind)), c.arg(kinds[kind])))
	}
	return "(" + strings.Join(known, " OR ") + ")"
}

// NextDue is job.Claims's.
func (s *jobTables) NextDue(ctx context.Context, groups []string, kinds map[job.Kind]int) (time.Time, error) {
	if len(groups) == 0 || len(kinds) == 0 || s.StandsBy() {
		return time.Time{}, nil
	}
	c := &whereClause{}
	var due int64
	err := s.read(ctx, nil, func(r *sql.Rows) error { return r.Scan(&due) },
		`SELECT due FROM job WHERE `+claimFree+` AND `+c.in("group_name", groups)+` AND `+c.known(kinds)+` ORDER BY due LIMIT 1`, c.args...)
	if err != nil {
		return time.Time{}, fmt.Errorf("next due job: %w", err)
	}
	return fromMicros(due), nil
}

// release frees the jobs of dead owners; the first of args is the time now.
func (tx *Tx) release(condition string, args []any) (int64, error) {
	n, err := tx.exec(`UPDATE job SET state = CASE WHEN state = 'running' THEN 'ready' ELSE state END, owner = '', crashes = crashes + 1,
		due = $1, updated_at = $1 WHERE owner <> '' AND `+condition, args...)
	tx.addsWork = tx.addsWork || n > 0
	return n, err
}

// PruneJobs removes ended jobs of the classes that ended before before; all
// classes if none is named. It returns how many.
func (s *jobTables) PruneJobs(ctx context.Context, before time.Time, classes ...job.Class) (int, error) {
	c := &whereClause{args: []any{toMicros(before), pruneSlice}}
	text := `DELETE FROM job WHERE id IN (SELECT id FROM job WHERE state = 'ended' AND ended_at < $1`
	if len(classes) > 0 {
		names := make([]string, len(classes))
		for i, class := range classes {
			names[i] = string(class)
		}
		text += ` AND ` + c.in("class", names)
	}
	n, err := s.execInBatches(ctx, pruneSlice, text+` LIMIT $2)`, c.args...)
	if err != nil {
		return n, fmt.Errorf("prune jobs: %w", err)
	}
	return n, nil
}
