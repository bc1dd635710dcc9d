package compute

import (
	"context"

	"salvor/problem"
)

// MigrationWish is a planned move of one server whose host lives.
type MigrationWish struct {
	// DestHost names where it should go, by UUID or name; empty: the best host.
	DestHost string
	// Live moves it without its noticing, or not at all.
	Live bool
}

// Migrate moves a server from its living host to another one.
func (s *Servers) Migrate(ctx context.Context, id string, m MigrationWish, who Who) (*Move, error) {
	return nil, problem.Unsupportedf("server %s: planned moves are not built yet", id)
}

// Drain takes a living host out of service and moves its servers away, live where that can be had.
func (s *Hosts) Drain(ctx context.Context, ident string, who Who) (*Plan, error) {
	return nil, problem.Unsupportedf("host %s: draining is not built yet", ident)
}

// Restore puts a host back to service.
func (s *Hosts) Restore(ctx context.Context, ident string, who Who) (*Host, error) {
	return nil, problem.Unsupportedf("host %s: restoring is not built yet", ident)
}
