package job

import (
	"context"
	"strings"
	"testing"

	"salvor/problem"
)

type readerFunc func(ctx context.Context) (Job, error)

func (f readerFunc) Job(ctx context.Context, _ Tx, _ string) (Job, error) { return f(ctx) }

// TestAwaitEndsAmidALook: on a busy machine the time of a request ends while the store is read.
func TestAwaitEndsAmidALook(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	busy := readerFunc(func(ctx context.Context) (Job, error) {
		cancel()
		return Job{}, problem.Unavailablef("read jobs: database: it is busy")
	})
	_, err := Await(ctx, busy, "j", "the machine's controller")
	if !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "the machine's controller has not answered yet") {
		t.Errorf("a look that the end of the request cuts off: %v", err)
	}
	broken := readerFunc(func(context.Context) (Job, error) { return Job{}, problem.New(problem.Internal, "disk I/O error") })
	if _, err := Await(t.Context(), broken, "j", "it"); !problem.Is(err, problem.Internal) {
		t.Errorf("a look that fails: %v", err)
	}
}
