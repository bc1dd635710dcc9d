package conductor

import (
	"context"
	"fmt"

	"salvor/compute"
)

// logsIn tells whether a guest may log in to its volumes because of such an errand, now or at its next start.
func logsIn(v compute.Verb) bool {
	return v == compute.Define || v == compute.Attach || v == compute.MigratePrepare
}

// admitInitiators lets the host of a server in to the server's volumes: before the server is defined there, or is given a volume. A
// fence takes that leave away again, for this host alone. Without a storage that is spoken to, nothing is done.
func (c *Conductor) admitInitiators(ctx context.Context, g *guest) error {
	if c.Storage == nil || g.host == nil || g.host.Kind != compute.AgentHost {
		return nil
	}
	targets, err := c.Compute.Servers.Targets(ctx, g.server)
	if err != nil {
		return err
	}
	if c.Alive != nil {
		if err := c.Alive(); err != nil {
			return err
		}
	}
	initiator := compute.Initiator(g.host, g.server.ID)
	for _, target := range targets {
		if err := c.Storage.Allow(ctx, target, initiator); err != nil {
			return fmt.Errorf("let host %s in to target %s as %s: %w", g.host.Name, target, initiator, err)
		}
	}
	return nil
}
