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
	// Contact has the readings of the power, and nothing else.
	Contact Contact
}

// FailingBMCs are the nodes whose BMC is silent or refuses.
type FailingBMCs struct {
	Silent, Refusing int
	// Names are those of the first of these nodes by id, in the order of the alphabet; a node without a name goes by its id.
	Names []string
}

// FleetStore looks over the whole fleet, however large it is.
type FleetStore interface {
	// FleetCounts counts the nodes; a project confines it to those whose owner or lessee it is.
	FleetCounts(ctx context.Context, project string) ([]FleetCount, error)
	// FailingBMCs counts BMCs whose last reading failed at since or later, and names that many of their nodes; a project confines both as in FleetCounts.
	FailingBMCs(ctx context.Context, project string, since time.Time, names int) (FailingBMCs, error)
	// FleetNodes is NodeStore.Nodes without what only a node's own page shows.
	FleetNodes(ctx context.Context, f NodeFilter, p record.Page) ([]FleetNode, error)
}
