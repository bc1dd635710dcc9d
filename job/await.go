package job

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"salvor/problem"
)

// Reader reads a job by its id; tx may be nil.
type Reader interface {
	Job(ctx context.Context, tx Tx, id string) (Job, error)
}

// The pauses between two looks at a job that has not ended.
const (
	firstPause = 2 * time.Millisecond
	mostPause  = 100 * time.Millisecond
)

// Await waits until a job has ended. It gives the job's result, or the error by which the job failed. When ctx ends first, the error is
// Unavailable and says that whom has not answered yet.
func Await(ctx context.Context, jobs Reader, id, whom string) (json.RawMessage, error) {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		j, err := jobs.Job(ctx, nil, id)
		switch {
		case err != nil && ctx.Err() == nil:
			return nil, err
		case err == nil && j.State == Ended && j.Failed():
			return nil, j.Cause()
		case err == nil && j.State == Ended:
			return j.Result, nil
		}
		select {
		case <-ctx.Done():
			return nil, problem.Unavailablef("%s has not answered yet; ask again", whom)
		case <-time.After(pause):
		}
	}
}

// GoneProblem is the problem of a record whose job is gone, see IsOpen.
const GoneProblem = "its job is gone: it ended without a word, or the database was restored"

// IsOpen tells whether a job of the subject has not ended. A diagnosis or a repair has a record of its own beside its job. The record may say that
// the job runs when the job is gone, and then the record must not refuse the next diagnosis or repair.
func IsOpen(q Queue, tx Tx, s Subject, id string) (bool, error) {
	open, err := q.Unended(tx, s)
	return slices.ContainsFunc(open, func(j Job) bool { return j.ID == id }), err
}
