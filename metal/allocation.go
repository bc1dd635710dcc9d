package metal

// AllocationState is how far an allocation is.
type AllocationState string

const (
	Allocating      AllocationState = "allocating"
	AllocationDone  AllocationState = "active"
	AllocationError AllocationState = "error"
)

// Allocation is a claim on any node that fits.
type Allocation struct {
	Record
	Name           string
	NodeID         string // empty until one is found
	ResourceClass  string
	Traits         []string // that the node must have
	CandidateNodes []string // UUIDs of those that may be taken; empty: all
	State          AllocationState
	LastError      string
	Owner          string
	ConductorGroup string
	Extra          Object
}

// AllocationFilter narrows a list of allocations; zero fields do not narrow.
type AllocationFilter struct {
	NodeID, ResourceClass, Owner string
	State                        AllocationState
}
