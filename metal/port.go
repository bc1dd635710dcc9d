package metal

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Ports is the service that changes ports by the rules.
type Ports = record.Collection[Port, PortFilter]

// FoundMark in a port's internal_info tells that an inspection made the port, and that nobody has chosen since whether it boots:
// another inspection may choose. An operator's port has none.
const FoundMark = "salvor_found"

// NewPorts makes the service.
func NewPorts(store Store, jobs record.Jobs, nodes *Nodes) *Ports {
	s := record.NewCollection[Port, PortFilter]("port", store.PortTable(), jobs, nodes.now)
	s.Check = (*Port).check
	rules := portRules{store, nodes}
	s.Admit = rules.admit
	s.Subject = func(p *Port) job.Subject { return job.Node(p.NodeID) }
	s.Label = func(p *Port) string { return p.Address }
	s.Fields.Unnamed = []string{"InternalInfo"}
	return s
}

// IsName tells whether an identifier has the form of a name.
func IsName(s string) bool { return nodeName.MatchString(s) && !record.IsUUID(s) }

// ParseMAC reads a 48 bit MAC in any usual form and writes it in lower case with colons.
func ParseMAC(s string) (string, error) {
	digits, ok := macDigits(strings.ToLower(strings.TrimSpace(s)))
	if !ok {
		return "", problem.Invalidf("Expected a MAC address but received %s.", s)
	}
	var out strings.Builder
	for i := 0; i < len(digits); i += 2 {
		if i > 0 {
			out.WriteByte(':')
		}
		out.WriteString(digits[i : i+2])
	}
	return out.String(), nil
}

// macDigits takes the separators out of 01:23:45:67:89:ab, 01-23-45-67-89-ab or
// 0123.4567.89ab, or finds none in 0123456789ab.
func macDigits(s string) (string, bool) {
	const digits = 12
	width, sep := 2, ":"
	switch {
	case strings.Contains(s, "-"):
		sep = "-"
	case strings.Contains(s, "."):
		width, sep = 4, "."
	}
	parts := strings.Split(s, sep)
	if len(parts) == 1 {
		width = digits
	}
	if len(parts) != digits/width {
		return "", false
	}
	for _, p := range parts {
		if len(p) != width || strings.Trim(p, "0123456789abcdef") != "" {
			return "", false
		}
	}
	return strings.Join(parts, ""), true
}

func (p *Port) check() error {
	mac, err := ParseMAC(p.Address)
	if err != nil {
		return err
	}
	p.Address = mac
	if p.NodeID == "" {
		return problem.Invalidf("Missing mandatory field: node_uuid")
	}
	port, host := formatScalar(p.LocalLink["port_id"]), formatScalar(p.LocalLink["hostname"])
	if p.IsSmartNIC && (port == "" || host == "") {
		return problem.Invalidf("Smart NIC port must have port_id and hostname in local_link_connection")
	}
	return checkName(p.Name)
}

// portRules are the rules of ports that need the store.
type portRules struct {
	store Store
	nodes *Nodes
}

// admit refuses changes of a locked node's ports. A port of a node in use can neither go
// nor change what its boot and its networks depend on, unless the node is in maintenance.
func (r portRules) admit(ctx context.Context, tx job.Tx, c record.Change[Port]) error {
	if c.Old != nil && c.New != nil {
		if err := r.nodes.checkNewParent(ctx, tx, c.Old.NodeID, c.New.NodeID); err != nil {
			return err
		}
	}
	n, err := r.nodes.parent(ctx, tx, c.Oldest().NodeID, c.Old == nil)
	if err != nil {
		return err
	}
	if n.Reservation != "" {
		return Locked(n)
	}
	inUse := (n.InstanceUUID != "" || n.ProvisionState.Info().InRescue) && !n.Maintenance
	switch {
	case c.Old == nil:
		return r.admitMember(ctx, tx, c.New)
	case c.New == nil && inUse:
		return problem.Conflictf("Cannot delete the port %s as node %s is in use; put it in maintenance first", c.Old.ID, n.ID)
	case c.New == nil:
		return nil
	case inUse && (c.New.Address != c.Old.Address || c.New.NodeID != c.Old.NodeID):
		return problem.Conflictf("Cannot update port %s: node %s is in use; put it in maintenance first", c.Old.ID, n.ID)
	}
	if err := r.admitWiring(ctx, tx, c, n); err != nil {
		return err
	}
	if c.New.PXEEnabled != c.Old.PXEEnabled && c.New.InternalInfo[FoundMark] != nil {
		c.New.InternalInfo = maps.Clone(c.New.InternalInfo)
		delete(c.New.InternalInfo, FoundMark)
	}
	return r.nodes.checkMove(ctx, tx, c.Old.NodeID, c.New.NodeID)
}

// admitWiring refuses a change of how a port is connected while its node's networks are in use.
func (r portRules) admitWiring(ctx context.Context, tx job.Tx, c record.Change[Port], n *Node) error {
	was, is := c.Old, c.New
	if n.ProvisionState == Inspecting {
		return problem.Conflictf("Cannot update port %q on %q while it is in state %q.", was.ID, n.ID, n.ProvisionState)
	}
	moved := was.PortgroupID != is.PortgroupID || was.NodeID != is.NodeID
	changed := moved || was.PXEEnabled != is.PXEEnabled || was.PhysicalNetwork != is.PhysicalNetwork
	if (changed || !reflect.DeepEqual(was.LocalLink, is.LocalLink)) && !slices.Contains(rewired, n.ProvisionState) && !n.Maintenance {
		return problem.Conflictf("Port %s can not have any connectivity attributes (portgroup_uuid, pxe_enabled, local_link_connection, physical_network) updated unless node %s is in a state of %v or in maintenance mode. The current state is %s.",
			was.ID, n.ID, rewired, n.ProvisionState)
	}
	if !changed {
		return nil
	}
	return r.admitMember(ctx, tx, is)
}
