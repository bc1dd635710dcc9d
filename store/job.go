package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
)

// locksSubject is the condition of the index job_lock, of a job l; openOperation is that of job_operation.
const (
	locksSubject  = `l.class IN ('operation', 'command') AND l.state IN ('ready', 'running', 'undoing')`
	openOperation = `class = 'operation' AND state <> 'ended'`
)

const jobColumns = `id, kind, version, class, subject_kind, subject_id, group_name, state, action, attempt, crashes,
	args, memo, secret, result, problem, problem_kind, owner, fence, signals, seen, due, wait_for, deadline,
	operation_deadline, request_id, user_name, created_at, updated_at, action_started_at, ended_at, abort_cause`

// Insert is job.Queue's.
func (s *jobTables) Insert(t job.Tx, j *job.Job) error {
	if err := s.Held().Refusal(); err != nil {
		return err
	}
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	s.fillJob(j)
	if err := s.checkBacklog(tx, j); err != nil {
		return err
	}
	memo, err := marshalMemo(j.Memo)
	if err != nil {
		return err
	}
	sealed, err := s.sealJob(tx, j)
	if err != nil {
		return err
	}
	n, err := tx.exec(`INSERT INTO job (`+jobColumns+`, expires) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
		$17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33 WHERE `+mayAct(34)+` ON CONFLICT DO NOTHING`,
		j.ID, string(j.Kind), j.Version, string(j.Class), j.Subject.Kind, j.Subject.ID, j.Group, string(j.State), j.Action, j.Attempt, j.Crashes,
		string(j.Args), memo, sealed, string(j.Result), j.Problem, j.ProblemKind, j.Owner, j.Fence, j.Signals, j.Seen, toMicros(j.Due), j.WaitFor, j.Deadline,
		j.OperationDeadline, j.RequestID, j.User, toMicros(j.CreatedAt), toMicros(j.UpdatedAt), toMicros(j.ActionStartedAt), toMicros(j.EndedAt), j.AbortCause, jobExpiry(j),
		tx.seen.id, tx.seen.counter, tx.seen.owner, tx.seen.beats)
	if err != nil {
		return fmt.Errorf("insert job %s for %s %s: %w", j.Kind, j.Subject.Kind, j.Subject.ID, err)
	}
	if n == 0 {
		if err := s.whyNotActing(tx); err != nil {
			return err
		}
		return s.whyTaken(tx, j)
	}
	tx.addsWork = tx.addsWork || isClaimable(j.State)
	return nil
}

func (s *jobTables) fillJob(j *job.Job) {
	now := s.timestamp()
	if j.ID == "" {
		j.ID = uuid.Must(uuid.NewV7()).String()
	}
	if j.Version == 0 {
		j.Version = s.kinds[j.Kind]
	}
	if j.Class == "" {
		j.Class = job.Operation
	}
	if j.State == "" {
		j.State = job.Ready
	}
	for _, at := range []*time.Time{&j.CreatedAt, &j.UpdatedAt, &j.Due} {
		if at.IsZero() {
			*at = now
		}
	}
}

// whyTaken says who stands in the way of a job that the unique indexes refused.
func (s *jobTables) whyTaken(tx *Tx, j *job.Job) error {
	var kind, host string
	var working bool
	err := tx.each(func(r *sql.Rows) error { return r.Scan(&kind, &working, &host) },
		`SELECT j.kind, j.state <> 'waiting', COALESCE(c.hostname, 'salvor') FROM job j LEFT JOIN conductor c ON c.owner = j.owner
		WHERE j.subject_kind = $1 AND j.subject_id = $2 AND j.class IN ('operation', 'command') AND j.state <> 'ended' AND j.id <> $3
		ORDER BY CASE WHEN j.state = 'waiting' THEN 0 ELSE 1 END`, j.Subject.Kind, j.Subject.ID, j.ID)
	if err != nil {
		return err
	}
	subject := formatSubjectTitle(j.Subject)
	switch {
	case kind == "":
		return problem.Conflictf("A job with UUID %s already exists.", j.ID)
	case working:
		return problem.Conflictf("%w", job.Locked{Subject: subject, Host: host})
	}
	return problem.Conflictf("%s has an operation that waits (%s); abort it or retry after it has ended.", subject, kind)
}

// formatSubjectTitle names a subject at the start of a sentence.
func formatSubjectTitle(s job.Subject) string {
	if s.Kind == "" {
		return s.ID
	}
	return strings.ToUpper(s.Kind[:1]) + s.Kind[1:] + " " + s.ID
}

// Unended is job.Queue's.
func (s *jobTables) Unended(t job.Tx, subject job.Subject) ([]job.Job, error) {
	return s.jobs(context.Background(), t, `SELECT `+jobColumns+` FROM job WHERE subject_kind = $1 AND subject_id = $2 AND state <> 'ended'
		ORDER BY CASE class WHEN 'operation' THEN 0 WHEN 'command' THEN 1 ELSE 2 END, created_at, id`, subject.Kind, subject.ID)
}

// Job is job.Queue's.
func (s *jobTables) Job(ctx context.Context, t job.Tx, id string) (job.Job, error) {
	jobs, err := s.jobs(ctx, t, `SELECT `+jobColumns+` FROM job WHERE id = $1`, id)
	if err != nil {
		return job.Job{}, err
	}
	if len(jobs) == 0 {
		return job.Job{}, problem.NotFoundf("Job %s could not be found.", id)
	}
	return jobs[0], nil
}

// Signal is job.Queue's. It counts first and looks for a lock second: the count
// holds the row, so a lock that is given up at the same time sees either the
// count or leaves no lock to be seen.
func (s *jobTables) Signal(t job.Tx, subject job.Subject) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	n, err := tx.exec(`UPDATE job SET signals = signals + 1 WHERE subject_kind = $1 AND subject_id = $2 AND `+openOperation, subject.Kind, subject.ID)
	if err != nil {
		return fmt.Errorf("signal %s %s: %w", subject.Kind, subject.ID, err)
	}
	if n == 0 {
		return nil
	}
	return s.wakeWaiting(tx, subject)
}

// wakeWaiting makes the subject's waiting operation ready if it has been signalled and nothing locks the subject.
func (s *jobTables) wakeWaiting(tx *Tx, subject job.Subject) error {
	now := toMicros(s.timestamp())
	n, err := tx.exec(`UPDATE job SET state = 'ready', due = $3, updated_at = $3
		WHERE subject_kind = $1 AND subject_id = $2 AND `+openOperation+` AND state = 'waiting' AND signals <> seen
		AND NOT EXISTS (SELECT 1 FROM job l WHERE l.subject_kind = $1 AND l.subject_id = $2 AND `+locksSubject+`)`,
		subject.Kind, subject.ID, now)
	if err != nil {
		return s.retryIfLocked(tx, fmt.Errorf("wake the job of %s %s: %w", subject.Kind, subject.ID, err))
	}
	tx.addsWork = tx.addsWork || n > 0
	return nil
}

// retryIfLocked asks for a new run of the transaction where the lock of a subject was
// taken, by a transaction not yet visible, between a look and the write that relied on it.
func (s *jobTables) retryIfLocked(tx *Tx, err error) error {
	if s.engine.violated(err) == lockRule {
		tx.failed = errAgain{err}
		return tx.failed
	}
	return err
}

// lockRule is what violated says of the indexes job_lock and job_operation.
const lockRule = "job.subject_kind"

// errAgain makes an engine run the transaction once more.
type errAgain struct{ error }

func (e errAgain) Unwrap() error { return e.error }

// Interrupt is job.Queue's.
func (s *jobTables) Interrupt(t job.Tx, id string, to job.State, cause error) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	if to != job.Undoing && to != job.Ended {
		return problem.New(problem.Internal, "interrupt job %s: %q is no state to interrupt to", id, to)
	}
	now := s.timestamp()
	text, kind := "", ""
	if cause != nil {
		text, kind = cause.Error(), problem.KindOf(cause).String()
	}
	var ended int64
	if to == job.Ended {
		ended = toMicros(now)
	}
	n, err := tx.exec(`UPDATE job SET state = $2, problem = $3, problem_kind = $4, secret = NULL, owner = '', attempt = 0, crashes = 0,
		wait_for = '', deadline = 0, expires = 0, due = $5, updated_at = $5, ended_at = $6
		WHERE id = $1 AND state = 'waiting' AND NOT EXISTS (SELECT 1 FROM job l WHERE l.subject_kind = job.subject_kind
		AND l.subject_id = job.subject_id AND `+locksSubject+`)`,
		id, string(to), text, kind, toMicros(now), ended)
	if err != nil {
		return s.retryIfLocked(tx, fmt.Errorf("interrupt job %s: %w", id, err))
	}
	if n == 0 {
		return problem.Conflictf("Job %s does not wait any more, or its subject is locked; please retry after the current operation is completed.", id)
	}
	tx.addsWork = tx.addsWork || to == job.Undoing
	return nil
}

func (s *jobTables) jobs(ctx context.Context, t job.Tx, text string, args ...any) ([]job.Job, error) {
	var out []job.Job
	err := s.read(ctx, t, s.collectJobs(&out), text, args...)
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	return out, nil
}

// collectJobs scans rows of jobColumns into out.
func (s *jobTables) collectJobs(out *[]job.Job) func(*sql.Rows) error {
	return func(r *sql.Rows) error {
		j, err := s.scanJob(r)
		if err == nil {
			*out = append(*out, j)
		}
		return err
	}
}

func (s *jobTables) scanJob(r *sql.Rows) (job.Job, error) {
	var (
		j                                     job.Job
		args, memo, result                    string
		sealed                                sql.NullString
		due, created, updated, started, ended int64
	)
	err := r.Scan(&j.ID, &j.Kind, &j.Version, &j.Class, &j.Subject.Kind, &j.Subject.ID, &j.Group, &j.State, &j.Action, &j.Attempt, &j.Crashes,
		&args, &memo, &sealed, &result, &j.Problem, &j.ProblemKind, &j.Owner, &j.Fence, &j.Signals, &j.Seen, &due, &j.WaitFor, &j.Deadline,
		&j.OperationDeadline, &j.RequestID, &j.User, &created, &updated, &started, &ended, &j.AbortCause)
	if err != nil {
		return readDamagedJob(r, err)
	}
	j.Args, j.Result = toRawMessage(args), toRawMessage(result)
	j.Due, j.CreatedAt, j.UpdatedAt, j.ActionStartedAt, j.EndedAt = fromMicros(due), fromMicros(created), fromMicros(updated), fromMicros(started), fromMicros(ended)
	j.Memo = map[string]string{}
	if memo != "" {
		if err := json.Unmarshal([]byte(memo), &j.Memo); err != nil {
			j.Damage = fmt.Sprintf("memo: %v", err)
		}
	}
	if sealed.Valid {
		if j.Secret, err = s.key.Open(sealed.String, jobSecretPlace(j.ID)); err != nil {
			j.Damage = fmt.Sprintf("secret: %v", err)
		}
	}
	return j, nil
}

// readDamagedJob takes from a row that does not fit its columns what is needed to set it aside.
func readDamagedJob(r *sql.Rows, why error) (job.Job, error) {
	names, err := r.Columns()
	if err != nil {
		return job.Job{}, why
	}
	cells := make([]any, len(names))
	into := make([]any, len(names))
	for i := range cells {
		into[i] = &cells[i]
	}
	if err := r.Scan(into...); err != nil {
		return job.Job{}, why
	}
	text, number := map[string]string{}, map[string]int64{}
	for i, name := range names {
		switch v := cells[i].(type) {
		case string:
			text[name] = v
		case []byte:
			text[name] = string(v)
		case int64:
			number[name] = v
		}
	}
	return job.Job{
		ID: text["id"], Kind: job.Kind(text["kind"]), Version: int(number["version"]), Class: job.Class(text["class"]),
		Subject: job.Subject{Kind: text["subject_kind"], ID: text["subject_id"]}, Group: text["group_name"], State: job.State(text["state"]), Action: text["action"],
		Owner: text["owner"], Fence: number["fence"], Signals: number["signals"], Seen: number["seen"],
		RequestID: text["request_id"], User: text["user_name"], Due: fromMicros(number["due"]), CreatedAt: fromMicros(number["created_at"]), Damage: why.Error(),
	}, nil
}

func toRawMessage(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

func marshalMemo(memo map[string]string) (string, error) {
	if len(memo) == 0 {
		return "", nil
	}
	b, err := json.Marshal(memo)
	return string(b), err
}

func jobSecretPlace(id string) string { return "job:" + id + ":secret" }

// sealJob gives the job's secret as its row may hold it: nil where there is none or none may be.
func (s *jobTables) sealJob(tx *Tx, j *job.Job) (any, error) {
	if j.Secret.Empty() || j.State == job.Undoing || j.State == job.Ended {
		return nil, nil
	}
	if err := tx.seals(); err != nil {
		return nil, err
	}
	return s.key.Seal(j.Secret, jobSecretPlace(j.ID)), nil
}

// jobExpiry is the earlier deadline of the job, 0 for none.
func jobExpiry(j *job.Job) int64 {
	if j.Deadline == 0 || j.OperationDeadline != 0 && j.OperationDeadline < j.Deadline {
		return j.OperationDeadline
	}
	return j.Deadline
}

func isClaimable(s job.State) bool { return s == job.Ready || s == job.Undoing }
