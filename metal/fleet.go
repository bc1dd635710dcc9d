package metal

import (
	"context"
	"time"

	"salvor/record"
)

// FleetCount is how many nodes have this in common.
type FleetCount struct {
	State               State
	Maintenance, Faulty bool
	Count               int
}

// FleetNode is a node as far as a list of many shows it: nothing of it lies in the body of its row.
type FleetNode struct {
	ID, Name                         string
	State, Target                    State
	Power, TargetPower               Power
	Maintenance                      bool
	Fault, ConductorGroup, LastError string
	Since                            time.Time // it is in the state
}

// FleetStore looks over the whole fleet, however large it is.
type FleetStore interface {
	// FleetCounts counts the nodes; a project confines it to those whose owner or lessee it is.
	FleetCounts(ctx context.Context, project string) ([]FleetCount, error)
	// FleetNodes is NodeStore.Nodes without what only a node's own page shows.
	FleetNodes(ctx context.Context, f NodeFilter, p record.Page) ([]FleetNode, error)
}
