package compute

import (
	"context"

	"salvor/problem"
	"salvor/record"
)

// PlanWish asks for a plan.
type PlanWish struct {
	// Host to empty, and Dest to fill, by UUID or name; no Dest: the best host for each server.
	Host, Dest string
	// Servers narrows the plan to these; empty: all of the host.
	Servers []string
	// Consent names servers that may be re-imaged: their data are lost. ReimageAll consents for all.
	Consent    []string
	ReimageAll bool
	// Drain: the host lives.
	Drain bool
	// Parallel is how many are moved at a time; 0: as the host's group says.
	Parallel int
}

// PlanEvacuation drafts what would become of each server of a host, and keeps the draft; nothing else is done.
func (s *Hosts) PlanEvacuation(ctx context.Context, w PlanWish, who Who) (*Plan, error) {
	return nil, problem.Unsupportedf("no plans yet")
}

// RunPlan begins a drafted plan; consent names more servers that may be re-imaged. Conflict without a receipt: what is missing.
func (s *Hosts) RunPlan(ctx context.Context, planID string, consent []string, who Who) (*Plan, error) {
	return nil, problem.Unsupportedf("no plans yet")
}

// CancelPlan ends a plan: moves that go on come to their end, no further one begins.
func (s *Hosts) CancelPlan(ctx context.Context, planID string, who Who) (*Plan, error) {
	return nil, problem.Unsupportedf("no plans yet")
}

// Plans reads a page.
func (s *Hosts) Plans(ctx context.Context, f PlanFilter, p record.Page) ([]*Plan, error) {
	return s.store.Plans().List(ctx, nil, f, p)
}

// Plan reads one, its items with the moves that were begun.
func (s *Hosts) Plan(ctx context.Context, id string) (*Plan, error) {
	return s.store.Plans().Get(ctx, nil, id)
}
