package compute

import (
	"context"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Moves reads a page of moves.
func (s *Servers) Moves(ctx context.Context, f MoveFilter, p record.Page) ([]*Move, error) {
	return s.store.Moves().List(ctx, nil, f, p)
}

// Move reads one.
func (s *Servers) Move(ctx context.Context, id string) (*Move, error) {
	return s.store.Moves().Get(ctx, nil, id)
}

// BeginMove begins the move m of srv, which was read in tx: m names its kind, its disposition and, if any, its plan; where it should
// go is in a. What works on the server is given up, and what was wanted of it is m's affair now. receipt is nil for planned work.
// Conflict: somebody works on the server this very moment (ErrBusy), or it is being moved already.
func (s *Servers) BeginMove(ctx context.Context, tx job.Tx, srv *Server, m *Move, receipt *Receipt, a MoveArgs, who record.Asker) (*Move, error) {
	return nil, problem.Unsupportedf("no moves yet")
}

// ClaimMove gives the server of a move its destination and a place there, and gives that at its former host back.
func (s *Servers) ClaimMove(ctx context.Context, tx job.Tx, moveID, destID string) error {
	return problem.Unsupportedf("no moves yet")
}

// AttachMove is the point from which there is no way back: what was prepared at the destination may be defined and started.
// Conflict if the receipt was closed meanwhile.
func (s *Servers) AttachMove(ctx context.Context, tx job.Tx, moveID string) error {
	return problem.Unsupportedf("no moves yet")
}

// FinishMove ends a move well: the server lives at its destination. change has the last word on the server.
func (s *Servers) FinishMove(ctx context.Context, tx job.Tx, moveID string, change func(*Server)) error {
	return problem.Unsupportedf("no moves yet")
}

// FailMove ends a move that came to nothing. One that has not attached leaves the server as it was, where it was.
func (s *Servers) FailMove(ctx context.Context, tx job.Tx, moveID string, why string) error {
	return problem.Unsupportedf("no moves yet")
}
