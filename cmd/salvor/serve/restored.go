package serve

import (
	"context"

	"salvor/conductor/node"
)

// readHeld makes this conductor read its machines while the database is held.
func (p *ControlPlane) readHeld(ctx context.Context) error {
	p.conductor.Nodes.RunHeldReadings(ctx, node.HeldReadings{
		Held: func() bool { return p.Store.Held() != nil }, Groups: p.groups(), Workers: p.cfg.Conductor.SyncPowerStateWorkers,
	})
	return nil
}
