package main

import (
	"context"

	"salvor/conductor/node"
)

// readHeld makes this conductor read its machines while the database is held.
func (p *controlPlane) readHeld(ctx context.Context) error {
	p.conductor.Nodes.RunHeldReadings(ctx, node.HeldReadings{
		Held: func() bool { return p.store.Held() != nil }, Groups: p.groups(), Workers: p.cfg.Conductor.SyncPowerStateWorkers,
	})
	return nil
}
