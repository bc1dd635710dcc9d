package metal

import (
	"context"
	"maps"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// A VIF is a tenant's end of a network. Attached to a node it holds one of its ports,
// or a portgroup; which VIF that is stands in internal_info, as Ironic has it.

// TenantVIFKey is the key of internal_info, extraVIFKey the one of extra where older clients wrote it.
const (
	TenantVIFKey = "tenant_vif_port_id"
	extraVIFKey  = "vif_port_id"
)

// VIF is what is attached, and where if the asker says.
type VIF struct{ ID, PortID, PortgroupID string }

// VIF gives what is attached to the port; empty: nothing.
func (p *Port) VIF() string { return attachedVIF(p.InternalInfo, p.Extra) }

// VIF gives what is attached to the portgroup; empty: nothing.
func (g *Portgroup) VIF() string { return attachedVIF(g.InternalInfo, g.Extra) }

func attachedVIF(internal, extra Object) string {
	if id := formatScalar(internal[TenantVIFKey]); id != "" {
		return id
	}
	return formatScalar(extra[extraVIFKey])
}

// attachPoint is a port or a portgroup of a node.
type attachPoint struct {
	port  *Port
	group *Portgroup
}

func (o attachPoint) vif() string {
	if o.group != nil {
		return o.group.VIF()
	}
	return o.port.VIF()
}

func (o attachPoint) name() string {
	if o.group != nil {
		return "Portgroup " + o.group.ID
	}
	return "Port " + o.port.ID
}

// rank orders free outlets: portgroups first, then ports that boot.
func (o attachPoint) rank() int {
	switch {
	case o.group != nil:
		return 0
	case o.port.PXEEnabled:
		return 1
	}
	return 2
}

// wire attaches a VIF, or with an empty id takes away what is attached.
func (s *Nodes) wire(tx job.Tx, o attachPoint, id string) error {
	if o.group != nil {
		g := *o.group
		g.InternalInfo, g.Extra = withVIF(g.InternalInfo, g.Extra, id)
		return s.store.Portgroups().Save(tx, &g)
	}
	p := *o.port
	p.InternalInfo, p.Extra = withVIF(p.InternalInfo, p.Extra, id)
	return s.store.SavePort(tx, &p)
}

func withVIF(internal, extra Object, id string) (Object, Object) {
	internal, extra = maps.Clone(internal), maps.Clone(extra)
	delete(extra, extraVIFKey)
	if delete(internal, TenantVIFKey); id == "" {
		return internal, extra
	}
	if internal == nil {
		internal = Object{}
	}
	internal[TenantVIFKey] = id
	return internal, extra
}

// maxOutlets bounds the ports and the portgroups of a node that are looked at.
const maxOutlets = 1000

func (s *Nodes) attachPoints(ctx context.Context, nodeID string) ([]attachPoint, error) {
	ports, err := s.store.Ports(ctx, PortFilter{NodeID: nodeID}, record.Page{Limit: maxOutlets})
	if err != nil {
		return nil, err
	}
	groups, err := s.store.Portgroups().List(ctx, nil, PortgroupFilter{NodeID: nodeID}, record.Page{Limit: maxOutlets})
	if err != nil {
		return nil, err
	}
	var out []attachPoint
	for _, g := range groups {
		out = append(out, attachPoint{group: g})
	}
	for _, p := range ports {
		out = append(out, attachPoint{port: p})
	}
	return out, nil
}

// VIFs lists what is attached to a node.
func (s *Nodes) VIFs(ctx context.Context, ident string) ([]string, error) {
	n, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return nil, err
	}
	all, err := s.attachPoints(ctx, n.ID)
	ids := []string{}
	for _, o := range all {
		if id := o.vif(); id != "" {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// AttachVIF wires a free outlet of a node, or the named one, to a VIF.
func (s *Nodes) AttachVIF(ctx context.Context, ident string, v VIF, asker record.Asker) error {
	return s.changeVIFs(ctx, ident, asker, "VIF "+v.ID+" attached", func(tx job.Tx, n *Node, all []attachPoint) error {
		o, err := freeOutlet(n, all, v)
		if err != nil && v.PortID == "" && v.PortgroupID == "" && s.takesAnyVIF(ctx, n) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.wire(tx, o, v.ID)
	})
}

// DetachVIF takes a VIF off a node.
func (s *Nodes) DetachVIF(ctx context.Context, ident, id string, asker record.Asker) error {
	return s.changeVIFs(ctx, ident, asker, "VIF "+id+" detached", func(tx job.Tx, n *Node, all []attachPoint) error {
		i := slices.IndexFunc(all, func(o attachPoint) bool { return o.vif() == id })
		if i < 0 && s.takesAnyVIF(ctx, n) {
			return nil
		}
		if i < 0 {
			return problem.Invalidf("Unable to detach VIF %.100s from node %s because it is not attached to it.", id, n.ID)
		}
		return s.wire(tx, all[i], "")
	})
}

// takesAnyVIF tells whether a node's network interface wires nothing. As Ironic's noop, it takes every VIF again and again, also those
// that no port is free for, and takes off what is not there.
func (s *Nodes) takesAnyVIF(ctx context.Context, n *Node) bool {
	catalog, err := s.directory.Catalog(ctx, n.ConductorGroup)
	if err != nil {
		return false
	}
	d, _ := catalog.Driver(n.Driver)
	i, _ := d.Find(n, "network")
	return i.Name == "noop"
}

// freeOutlet chooses what a VIF is wired to. A port of a portgroup is free only where the group has no VIF
// and others of its ports are used alone already, or where it is asked for and may be used alone.
func freeOutlet(n *Node, all []attachPoint, v VIF) (attachPoint, error) {
	used := map[string]bool{} // portgroups whose ports have VIFs of their own
	members := map[string]int{}
	alone := map[string]bool{}
	for _, o := range all {
		if o.vif() == v.ID {
			return o, problem.Conflictf("Unable to attach VIF because VIF %.100s is already attached to Ironic %s", v.ID, o.name())
		}
		switch {
		case o.group != nil:
			alone[o.group.ID] = o.group.StandalonePorts && o.vif() == ""
		case o.port.PortgroupID != "":
			members[o.port.PortgroupID]++
			used[o.port.PortgroupID] = used[o.port.PortgroupID] || o.vif() != ""
		}
	}
	free := slices.DeleteFunc(slices.Clone(all), func(o attachPoint) bool {
		if o.vif() != "" {
			return true
		}
		if o.group != nil {
			return v.PortID != "" || v.PortgroupID != "" && o.group.ID != v.PortgroupID || used[o.group.ID] || members[o.group.ID] == 0
		}
		grouped := o.port.PortgroupID
		return v.PortgroupID != "" || v.PortID != "" && o.port.ID != v.PortID || grouped != "" && (!alone[grouped] || v.PortID == "" && !used[grouped])
	})
	if len(free) == 0 {
		return attachPoint{}, problem.Invalidf("Unable to attach VIF %.100s, not enough free physical ports on node %s.", v.ID, n.ID)
	}
	slices.SortStableFunc(free, func(a, b attachPoint) int { return a.rank() - b.rank() })
	return free[0], nil
}

// changeVIFs changes a node's outlets in a transaction that raises the node's version, so
// that of two at once one looks again.
func (s *Nodes) changeVIFs(ctx context.Context, ident string, asker record.Asker, text string, change func(job.Tx, *Node, []attachPoint) error) error {
	for range 5 {
		err := s.tryChangeVIFs(ctx, ident, asker, text, change)
		if err != record.ErrChanged {
			return err
		}
	}
	return problem.Conflictf("node %.100s keeps changing; ask again", ident)
}

func (s *Nodes) tryChangeVIFs(ctx context.Context, ident string, asker record.Asker, text string, change func(job.Tx, *Node, []attachPoint) error) error {
	before, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return err
	}
	all, err := s.attachPoints(ctx, before.ID)
	if err != nil {
		return err
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, before.ID)
		if err != nil {
			return err
		}
		if n.Reservation != "" {
			return Locked(n)
		}
		if n.Version != before.Version {
			return record.ErrChanged
		}
		if err := s.store.SaveNode(tx, n); err != nil {
			return err
		}
		if err := change(tx, n, all); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", text)
	})
}
