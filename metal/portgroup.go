package metal

import (
	"context"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Portgroup is a set of NICs of a node that the switch and the system bond to one.
type Portgroup struct {
	record.Record
	NodeID          string
	Name            string
	Address         string // MAC, lower case; empty: none of its own
	Mode            string // Linux bonding mode, such as active-backup
	StandalonePorts bool   // its ports may be used alone too
	PhysicalNetwork string
	Category        string
	DynamicPorts    bool   // made of free ports while the node is in use
	Properties      Object // of the bond; secret keys sealed by the store
	Extra           Object
	InternalInfo    Object
}

// PortgroupFilter narrows a list of portgroups; zero fields do not narrow.
type PortgroupFilter struct {
	NodeID, Address, Project string
	Shards, ConductorGroups  []string
}

// Chassis groups nodes that share a case.
type Chassis struct {
	record.Record
	Description string
	Extra       Object
}

// ChassisFilter narrows nothing.
type ChassisFilter struct{}

// Portgroups is the service that changes portgroups by the rules.
type Portgroups = record.Collection[Portgroup, PortgroupFilter]

// NewPortgroups makes the service.
func NewPortgroups(store Store, nodes *Nodes) *Portgroups {
	s := record.NewCollection("portgroup", store.Portgroups(), nodes.jobs, nodes.now)
	s.Check = (*Portgroup).check
	rules := portRules{store, nodes}
	s.Admit = rules.admitGroup
	s.Settle = rules.spreadNetwork
	s.Subject = func(g *Portgroup) job.Subject { return job.Node(g.NodeID) }
	s.Label = func(g *Portgroup) string { return g.ID }
	s.Fields.Unnamed = []string{"InternalInfo"}
	return s
}

// BondMode is how a portgroup is bonded when nobody says.
const BondMode = "active-backup"

func (g *Portgroup) check() error {
	if g.Address != "" {
		mac, err := ParseMAC(g.Address)
		if err != nil {
			return err
		}
		g.Address = mac
	}
	if g.Mode == "" {
		g.Mode = BondMode
	}
	return checkName(g.Name)
}

// rewired are the states, beside maintenance, in which what a node's networks hang on may change.
var rewired = []State{Enroll, Inspecting, InspectWait, Manageable}

// admitGroup refuses changes of a locked node's portgroups, the removal and the move of
// one with ports in it, and a move of a node's wiring while the node is in use.
func (r portRules) admitGroup(ctx context.Context, tx job.Tx, c record.Change[Portgroup]) error {
	if c.Old != nil && c.New != nil {
		if err := r.nodes.checkNewParent(ctx, tx, c.Old.NodeID, c.New.NodeID); err != nil {
			return err
		}
	}
	n, err := r.nodes.parent(ctx, tx, c.Oldest().NodeID, c.Old == nil)
	if err != nil || c.Old == nil {
		return err
	}
	if n.Reservation != "" {
		return Locked(n)
	}
	ports, err := r.members(ctx, tx, c.Old.ID)
	if err != nil {
		return err
	}
	if c.New == nil {
		if len(ports) > 0 {
			return problem.Invalidf("Cannot complete the requested action because portgroup %s contains ports; move them out of it first.", c.Old.ID)
		}
		return nil
	}
	if n.ProvisionState == Inspecting {
		return problem.Conflictf("Cannot update portgroup %q on %q while it is in state %q.", c.Old.ID, n.ID, n.ProvisionState)
	}
	if c.Old.NodeID != c.New.NodeID {
		switch {
		case !slices.Contains(rewired, n.ProvisionState) && !n.Maintenance:
			return problem.Conflictf("Portgroup %s can not be associated to node %s unless the node is in a state of %v or in maintenance mode.", c.Old.ID, c.New.NodeID, rewired)
		case len(ports) > 0:
			return problem.Invalidf("Portgroup %s can not be associated with node %s because there are ports associated with this portgroup.", c.Old.ID, c.New.NodeID)
		}
	}
	if c.Old.StandalonePorts && !c.New.StandalonePorts {
		for _, p := range ports {
			if p.PXEEnabled {
				return problem.Conflictf("standalone_ports_supported can not be set to False, because the port group %s contains port %s with 'pxe_enabled' set to True", c.Old.ID, p.ID)
			}
		}
	}
	return r.nodes.checkMove(ctx, tx, c.Old.NodeID, c.New.NodeID)
}

// spreadNetwork gives the members of a portgroup the physical network that was set on it.
func (r portRules) spreadNetwork(ctx context.Context, tx job.Tx, c record.Change[Portgroup]) error {
	if c.Old == nil || c.New == nil || c.Old.PhysicalNetwork == c.New.PhysicalNetwork {
		return nil
	}
	ports, err := r.members(ctx, tx, c.New.ID)
	if err != nil {
		return err
	}
	for _, p := range ports {
		p.PhysicalNetwork = c.New.PhysicalNetwork
		if err := r.store.SavePort(tx, p); err != nil {
			return err
		}
	}
	return nil
}

// members are the ports in a portgroup.
func (r portRules) members(ctx context.Context, tx job.Tx, group string) ([]*Port, error) {
	return r.store.PortTable().List(ctx, tx, PortFilter{PortgroupID: group}, record.Page{})
}

// admitMember holds a port to the portgroup that it is in: of the same node, on the same
// physical network, and used alone only where the portgroup allows it.
func (r portRules) admitMember(ctx context.Context, tx job.Tx, p *Port) error {
	if p.PortgroupID == "" {
		return nil
	}
	g, err := r.store.Portgroups().Get(ctx, tx, p.PortgroupID)
	if problem.Is(err, problem.NotFound) {
		return problem.Invalidf("Invalid input for field/attribute portgroup_uuid. Value: '%s'. Portgroup %s could not be found.", p.PortgroupID, p.PortgroupID)
	}
	if err != nil {
		return err
	}
	if g.NodeID != p.NodeID {
		return problem.Invalidf("Port can not be added to a portgroup belonging to a different node.")
	}
	if p.PXEEnabled && !g.StandalonePorts {
		return problem.Conflictf("Port group %s doesn't support standalone ports. This port cannot be a member of that portgroup as the port's 'pxe_enabled' field is set to True.", g.ID)
	}
	if p.PhysicalNetwork == "" {
		p.PhysicalNetwork = g.PhysicalNetwork
	}
	ports, err := r.members(ctx, tx, g.ID)
	if err != nil {
		return err
	}
	for _, other := range ports {
		if other.ID != p.ID && other.PhysicalNetwork != p.PhysicalNetwork {
			return problem.Conflictf("Port with physical network %q cannot become a member of port group %s which has ports in physical network %q.", p.PhysicalNetwork, g.ID, other.PhysicalNetwork)
		}
	}
	return nil
}

// ChassisService changes chassis by the rules.
type ChassisService = record.Collection[Chassis, ChassisFilter]

// NewChassis makes the service. A chassis with nodes in it stays.
func NewChassis(store Store, nodes *Nodes) *ChassisService {
	s := record.NewCollection("chassis", store.Chassis(), nodes.jobs, nodes.now)
	s.Admit = func(ctx context.Context, tx job.Tx, c record.Change[Chassis]) error {
		if c.New != nil {
			return nil
		}
		in, err := store.Nodes(ctx, tx, NodeFilter{ChassisUUID: c.Old.ID}, record.Page{Limit: 1})
		if err == nil && len(in) > 0 {
			err = problem.Invalidf("Cannot complete the requested action because chassis %s contains nodes.", c.Old.ID)
		}
		return err
	}
	return s
}
