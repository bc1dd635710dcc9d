package compute

import (
	"context"

	"salvor/job"
	"salvor/record"
)

// Servers is the service that changes servers by the rules.
type Servers struct {
	*core
	images *RescueImages
}

// Server reads one by UUID, a deleted one too; one that who may not see is NotFound.
func (s *Servers) Server(ctx context.Context, id string, who Who) (*Server, error) {
	return nil, errSoon
}

// ByNum reads one by its number.
func (s *Servers) ByNum(ctx context.Context, num int64, who Who) (*Server, error) {
	return nil, errSoon
}

// List reads a page. It narrows by nobody's project: the caller sets ServerFilter.Project.
func (s *Servers) List(ctx context.Context, f ServerFilter, p record.Page) ([]*Server, error) {
	return s.store.Servers().List(ctx, nil, f, p)
}

// Marks reads the marks of a page.
func (s *Servers) Marks(ctx context.Context, f ServerFilter, p record.Page) ([]record.Mark, error) {
	return s.store.Servers().Marks(ctx, f, p)
}

// Marked reads the servers of marks, by their Num.
func (s *Servers) Marked(ctx context.Context, nums []int64) (map[int64]*Server, error) {
	return s.store.Servers().Marked(ctx, nums)
}

// Update changes what users may write: name, description, metadata and tags. What else edit changes is not kept.
func (s *Servers) Update(ctx context.Context, id string, who Who, edit func(*Server) error) (*Server, error) {
	return nil, errSoon
}

// Act does what is asked: the rule, the server's row, the job and the timeline are one transaction.
// A state that forbids it is a *StateError.
func (s *Servers) Act(ctx context.Context, id string, a Act, who Who) (*Server, error) {
	return nil, errSoon
}

// Edit changes a server inside a conductor's transaction and tells a change of its state on the timeline.
func (s *Servers) Edit(ctx context.Context, tx job.Tx, id string, change func(*Server)) error {
	return errSoon
}

// Finish is Edit at the end of an operation that went well: the task is cleared after change. A deletion that was asked for meanwhile begins.
func (s *Servers) Finish(ctx context.Context, tx job.Tx, id string, change func(*Server)) error {
	return errSoon
}

// Fail is Finish for a Definition's Failed: the server is in Error with the job's problem as its fault, an open
// session of a rescue or an unrescue is Failed; change (nil: none) has the last word.
func (s *Servers) Fail(ctx context.Context, tx job.Tx, j *job.Job, change func(*Server)) error {
	return errSoon
}

// Place gives a server without a host the best one, and reserves its place there. One that has a host keeps it.
func (s *Servers) Place(ctx context.Context, tx job.Tx, id string, args CreateArgs) (*Server, *Host, error) {
	return nil, nil, errSoon
}

// Gone ends a server: Deleted, its place, addresses and volumes given back.
func (s *Servers) Gone(ctx context.Context, tx job.Tx, id string) error { return errSoon }

// Observe takes in what a host, or a watcher of one, sees on it: all guests. What differs from what should be is mended by jobs.
func (s *Servers) Observe(ctx context.Context, hostID string, guests []Guest) error { return errSoon }

// Tend begins what nobody asks for: deletions that waited for another job, and the unrescue of expired sessions.
func (s *Servers) Tend(ctx context.Context) error { return errSoon }

// ExpireSessions asks for the unrescue of every server whose session is over.
func (s *Servers) ExpireSessions(ctx context.Context) error { return errSoon }
