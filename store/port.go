package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

var ports = &recordKind[metal.Port, metal.PortFilter]{
	table: "port", word: "port",
	head: func(p *metal.Port) recordHead { return recordHead{&p.ID, &p.Version, &p.CreatedAt, &p.UpdatedAt} },
	columns: []string{"node_id", "address", "name", "portgroup_id", "physical_network", "pxe_enabled", "is_smartnic", "description",
		"vendor", "category"},
	fields: func(p *metal.Port) []any {
		return []any{&p.NodeID, &p.Address, &p.Name, &p.PortgroupID, &p.PhysicalNetwork, &p.PXEEnabled, &p.IsSmartNIC, &p.Description,
			&p.Vendor, &p.Category}
	},
	body: func(p *metal.Port) any {
		return &struct {
			LocalLink    *metal.Object `json:"local_link"`
			Extra        *metal.Object `json:"extra"`
			InternalInfo *metal.Object `json:"internal_info"`
			NeverDynamic *bool         `json:"never_dynamic"`
		}{&p.LocalLink, &p.Extra, &p.InternalInfo, &p.NeverDynamic}
	},
	tidy:  func(p *metal.Port) { p.Address = strings.ToLower(p.Address) },
	fill:  func(p *metal.Port) { initNilObjects(&p.LocalLink, &p.Extra, &p.InternalInfo) },
	names: []string{"name", "address"},
	sort:  map[string]string{"node_uuid": "node_id", "portgroup_uuid": "portgroup_id"},
	keys: []uniqueKey[metal.Port]{
		{[]string{"address"}, func(p *metal.Port) string { return "A port with MAC address " + p.Address + " already exists." }},
		{[]string{"name"}, func(p *metal.Port) string { return "A port with name " + p.Name + " already exists." }},
	},
	node: func(p *metal.Port) string { return p.NodeID },
	mine: func(c *whereClause, f metal.PortFilter) string {
		if f.PortgroupID != "" {
			return "m.portgroup_id = " + c.arg(f.PortgroupID)
		}
		return c.mineOf(f.NodeID, f.Project)
	},
	narrow: func(c *whereClause, f metal.PortFilter) {
		c.equal("t.node_id", f.NodeID)
		c.equal("t.address", strings.ToLower(f.Address))
		c.rare("t.portgroup_id", f.PortgroupID)
		c.contains("t.description", f.DescriptionContains)
		c.ofNode(f.Project, f.ConductorGroups, f.Shards)
		if f.Owner != "" {
			c.and("t.node_id" + c.anyOf(nodesOf(c.arg(f.Owner), "id", "owner")))
		}
	},
}

// PortTable is metal.Store's.
func (s nodeTables) PortTable() record.Table[metal.Port, metal.PortFilter] {
	return recordTable[metal.Port, metal.PortFilter]{s.storeCore, ports}
}

// Port is metal.PortStore's.
func (s nodeTables) Port(ctx context.Context, t job.Tx, ident string) (*metal.Port, error) {
	return s.PortTable().Get(ctx, t, ident)
}

// InsertPort is metal.PortStore's.
func (s nodeTables) InsertPort(t job.Tx, p *metal.Port) error { return s.PortTable().Insert(t, p) }

// SavePort is metal.PortStore's.
func (s nodeTables) SavePort(t job.Tx, p *metal.Port) error { return s.PortTable().Save(t, p) }

// DeletePort is metal.PortStore's.
func (s nodeTables) DeletePort(t job.Tx, p *metal.Port) error { return s.PortTable().Delete(t, p) }

// Ports is metal.PortStore's.
func (s nodeTables) Ports(ctx context.Context, f metal.PortFilter, p record.Page) ([]*metal.Port, error) {
	return s.PortTable().List(ctx, nil, f, p)
}

// NodesOfMACs is metal.PortStore's.
func (s nodeTables) NodesOfMACs(ctx context.Context, macs []string) ([]string, error) {
	c := &whereClause{}
	lower := make([]string, len(macs))
	for i, mac := range macs {
		lower[i] = strings.ToLower(mac)
	}
	c.and(c.in("address", lower))
	var out []string
	err := s.read(ctx, nil, func(r *sql.Rows) error {
		var id string
		err := r.Scan(&id)
		out = append(out, id)
		return err
	}, `SELECT DISTINCT node_id FROM port`+c.where(), c.args...)
	if err != nil {
		return nil, fmt.Errorf("nodes of %d addresses: %w", len(macs), err)
	}
	return out, nil
}

// errorOrNotFound is err, or that there is no such row.
func errorOrNotFound(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return problem.NotFoundf(format, args...)
}
