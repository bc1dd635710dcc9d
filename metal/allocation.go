package metal

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// AllocationState is how far an allocation is.
type AllocationState string

const (
	Allocating      AllocationState = "allocating"
	AllocationDone  AllocationState = "active"
	AllocationError AllocationState = "error"
)

// Allocation is a claim on any node that fits.
type Allocation struct {
	record.Record
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

// Allocations is the service of allocations. A node is found in the transaction that
// makes the allocation, so two of them can never have the same one, and none stays
// half done when a conductor ends.
type Allocations struct {
	*record.Collection[Allocation, AllocationFilter]
	nodes *Nodes
}

// NewAllocations makes the service.
func NewAllocations(store Store, nodes *Nodes) *Allocations {
	s := &Allocations{record.NewCollection("allocation", store.Allocations(), nodes.jobs, nodes.now), nodes}
	s.Check = checkAllocation
	s.Admit = func(ctx context.Context, tx job.Tx, c record.Change[Allocation]) error {
		if c.New != nil || c.Old.NodeID == "" {
			return nil
		}
		return s.release(ctx, tx, c.Old, c.Asker)
	}
	return s
}

func checkAllocation(a *Allocation) error {
	switch {
	case a.Name != "" && (!nodeName.MatchString(a.Name) || record.IsUUID(a.Name)):
		return problem.Invalidf("Cannot save allocation with invalid name '%.100s': use letters, digits and . _ ~ - (at most 255), and no UUID", a.Name)
	case len(a.ResourceClass) > 80:
		return problem.Invalidf("resource_class is longer than 80 characters")
	case len(a.Owner) > words255:
		return problem.Invalidf("owner is longer than %d characters", words255)
	}
	return checkTraits(a.Traits)
}

// Create takes a node for the allocation; where none fits the allocation is kept in
// state error, and says why. With backfill, a node that is in use already is written
// down as the allocation's, or the creation fails.
func (s *Allocations) Create(ctx context.Context, a *Allocation, backfill string, asker record.Asker) error {
	if err := s.candidates(ctx, a); err != nil {
		return err
	}
	if backfill != "" {
		return s.backfill(ctx, a, backfill, asker)
	}
	if a.ResourceClass == "" {
		return problem.Invalidf("The resource_class field is mandatory when not backfilling")
	}
	if a.ID == "" {
		a.ID = uuid.NewString()
	}
	for range 10 {
		err := s.tryAllocate(ctx, a, asker)
		if !errors.Is(err, record.ErrChanged) {
			return err
		}
	}
	a.State, a.NodeID = AllocationError, ""
	a.LastError = failedAllocation(a, "all nodes that fit were taken or changed meanwhile; create it again")
	return s.Collection.Create(ctx, a, asker)
}

// MaxCandidates bounds the candidate nodes of an allocation.
const MaxCandidates = 1000

// NoCandidate is the error for a candidate that is not there.
func NoCandidate(ident string) error {
	return problem.Invalidf("candidate_nodes: Nodes cannot be found: %.100s", ident)
}

// candidates turns the names of candidate nodes to UUIDs, in their order.
func (s *Allocations) candidates(ctx context.Context, a *Allocation) error {
	if len(a.CandidateNodes) > MaxCandidates {
		return problem.Invalidf("candidate_nodes names more than %d nodes", MaxCandidates)
	}
	for i, ident := range a.CandidateNodes {
		n, err := s.nodes.store.Node(ctx, nil, ident)
		if problem.Is(err, problem.NotFound) {
			return NoCandidate(ident)
		}
		if err != nil {
			return err
		}
		a.CandidateNodes[i] = n.ID
	}
	return nil
}

// tryAllocate looks for nodes that fit and claims the first one that still does; Locked if
// somebody works on all of them just now, record.ErrChanged if others were faster with all of them.
func (s *Allocations) tryAllocate(ctx context.Context, a *Allocation, asker record.Asker) error {
	fit, busy, why, err := s.matchingNodes(ctx, a)
	if err != nil {
		return err
	}
	if len(fit) == 0 && busy != nil {
		return Locked(busy)
	}
	if len(fit) == 0 {
		a.State, a.LastError = AllocationError, failedAllocation(a, why)
		return s.Collection.Create(ctx, a, asker)
	}
	draft := *a // what a rolled back transaction wrote into it must not stay
	err = s.insert(ctx, &draft, asker, func(tx job.Tx) (*Node, error) {
		var busy error
		for _, id := range fit {
			n, err := s.nodes.store.Node(ctx, tx, id)
			if problem.Is(err, problem.NotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			switch {
			case !a.fits(n):
			case n.Reservation != "":
				busy = Locked(n)
			default:
				return n, nil
			}
		}
		return nil, cmp.Or(busy, record.ErrChanged)
	})
	if errors.Is(err, errTaken) {
		return record.ErrChanged
	}
	if err == nil {
		*a = draft
	}
	return err
}

func failedAllocation(a *Allocation, why string) string {
	return "Failed to process allocation " + a.ID + ": " + strings.TrimSuffix(why, ".") + "."
}

// insert makes the allocation with the node that pick gives, in one transaction.
func (s *Allocations) insert(ctx context.Context, a *Allocation, asker record.Asker, pick func(job.Tx) (*Node, error)) error {
	if err := s.Ready(a); err != nil {
		return err
	}
	return s.nodes.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := pick(tx)
		if err != nil {
			return err
		}
		a.State, a.NodeID = AllocationDone, n.ID
		if err := s.nodes.store.Allocations().Insert(tx, a); err != nil {
			return err
		}
		if err := s.Tell(tx, record.Change[Allocation]{New: a, Asker: asker}); err != nil {
			return err
		}
		return s.claim(tx, a, n, asker)
	})
}

// errTaken is the claim of a node that somebody else changed between the look and the write.
var errTaken = problem.Conflictf("the node was changed by someone else; ask again")

// claim writes the allocation down on its node.
func (s *Allocations) claim(tx job.Tx, a *Allocation, n *Node, asker record.Asker) error {
	n.AllocationID, n.InstanceUUID = a.ID, a.ID
	info := make(Object, len(n.InstanceInfo)+1)
	for k, v := range n.InstanceInfo {
		info[k] = v
	}
	traits := make([]any, len(a.Traits)) // what a deployment has to honour
	for i, t := range a.Traits {
		traits[i] = t
	}
	info["traits"] = traits
	n.InstanceInfo = info
	if err := s.nodes.store.SaveNode(tx, n); err != nil {
		if problem.Is(err, problem.Conflict) {
			return errTaken
		}
		return err
	}
	return s.nodes.note(tx, n.ID, asker, "request", "allocated as "+a.ID)
}

// fits tells whether the node may be taken now.
func (a *Allocation) fits(n *Node) bool { return a.wants(n) && n.hasTraits(a.Traits) }

// wants is fits but for the traits.
func (a *Allocation) wants(n *Node) bool {
	return n.ProvisionState == Available && n.InstanceUUID == "" && n.AllocationID == "" && !n.Maintenance && n.PowerState != PowerUnknown &&
		n.ResourceClass == a.ResourceClass && (len(a.CandidateNodes) == 0 || slices.Contains(a.CandidateNodes, n.ID)) &&
		(a.Owner == "" || n.Owner == a.Owner || n.Lessee == a.Owner)
}

func (n *Node) hasTraits(traits []string) bool {
	return !slices.ContainsFunc(traits, func(t string) bool { return !slices.Contains(n.Traits, t) })
}

// backfill writes an allocation down for a node that is active already.
func (s *Allocations) backfill(ctx context.Context, a *Allocation, ident string, asker record.Asker) error {
	n, err := s.nodes.store.Node(ctx, nil, ident)
	if problem.Is(err, problem.NotFound) {
		return problem.Invalidf("Node %.100s could not be found.", ident)
	}
	if err != nil {
		return err
	}
	if a.ID == "" {
		a.ID = n.InstanceUUID // what runs there is what the allocation stands for
	}
	if a.ResourceClass == "" {
		a.ResourceClass = n.ResourceClass
	}
	return s.insert(ctx, a, asker, func(tx job.Tx) (*Node, error) {
		n, err := s.nodes.store.Node(ctx, tx, n.ID)
		if err != nil {
			return nil, err
		}
		return n, a.backfills(n)
	})
}

// backfills tells why the node cannot be the allocation's; nil: it can.
func (a *Allocation) backfills(n *Node) error {
	var why []string
	if n.ProvisionState != Active {
		why = append(why, `Node must be in the "active" state, but the current state is "`+string(n.ProvisionState)+`"`)
	}
	if n.ResourceClass != a.ResourceClass {
		why = append(why, "Resource class "+n.ResourceClass+" does not match the requested resource class "+a.ResourceClass)
	}
	if !n.hasTraits(a.Traits) {
		why = append(why, "the node lacks some of the requested traits "+strings.Join(a.Traits, ", "))
	}
	if len(a.CandidateNodes) > 0 && !slices.Contains(a.CandidateNodes, n.ID) {
		why = append(why, "Candidate nodes must be empty or contain the target node")
	}
	switch {
	case len(why) > 0:
		return problem.Conflictf("Cannot backfill an allocation for node %s: %s", n.ID, strings.Join(why, "; "))
	case n.AllocationID != "" || n.InstanceUUID != "" && n.InstanceUUID != a.ID:
		return problem.Conflictf("Node %s is associated with instance %s.", n.ID, n.InstanceUUID)
	case n.Reservation != "":
		return Locked(n)
	}
	return nil
}

// release frees the node of an allocation that is removed.
func (s *Allocations) release(ctx context.Context, tx job.Tx, a *Allocation, asker record.Asker) error {
	n, err := s.nodes.store.Node(ctx, tx, a.NodeID)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case n.Reservation != "":
		return Locked(n)
	case n.Maintenance:
	case n.ProvisionState == Active:
		return problem.Conflictf("Cannot remove allocation %s for node %s, because the node is active (and maintenance mode is off)", a.ID, n.ID)
	case !n.ProvisionState.Info().Updatable:
		return problem.Conflictf("Cannot remove allocation %s for node %s, because the node is in state %s where updates are not allowed (and maintenance mode is off)", a.ID, n.ID, n.ProvisionState)
	}
	n.AllocationID, n.InstanceUUID = "", ""
	if err := s.nodes.store.SaveNode(tx, n); err != nil {
		return err
	}
	return s.nodes.note(tx, n.ID, asker, "request", "allocation "+a.ID+" removed")
}

// OfNode reads the allocation that claims the node; problem.NotFound if there is none.
func (s *Allocations) OfNode(ctx context.Context, ident string) (*Allocation, error) {
	n, err := s.nodes.store.Node(ctx, nil, ident)
	if err != nil {
		return nil, err
	}
	if n.AllocationID == "" {
		return nil, problem.NotFoundf("Allocation for node %.100s was not found", ident)
	}
	return s.nodes.store.Allocations().Get(ctx, nil, n.AllocationID)
}

// dropAllocation removes the allocation of a node whose instance is gone: the claim
// ends with what it was made for.
func (s *Nodes) dropAllocation(ctx context.Context, tx job.Tx, n *Node) error {
	if n.AllocationID == "" || n.InstanceUUID != "" {
		return nil
	}
	a, err := s.store.Allocations().Get(ctx, tx, n.AllocationID)
	n.AllocationID = ""
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.store.Allocations().Delete(tx, a)
}
