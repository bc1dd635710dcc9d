package store

import (
	"salvor/compute"
	"salvor/record"
)

// Networks is compute.Store's.
func (s serverTables) Networks() record.Table[compute.Network, compute.NetworkFilter] {
	return recordTable[compute.Network, compute.NetworkFilter]{s.storeCore, networks}
}

var networks = &recordKind[compute.Network, compute.NetworkFilter]{
	table: "network", word: "network", head: ofRecord[compute.Network],
	num:     func(n *compute.Network) *int64 { return &n.Num },
	columns: []string{"name", "project", "bridge", "cidr", "shared"},
	fields:  func(n *compute.Network) []any { return []any{&n.Name, &n.Project, &n.Bridge, &n.CIDR, &n.Shared} },
	body: func(n *compute.Network) any {
		return &struct {
			Gateway, First, Last *string
			DNS                  *[]string
			MTU                  *int
		}{&n.Gateway, &n.First, &n.Last, &n.DNS, &n.MTU}
	},
	names: []string{"name"},
	keys: []uniqueKey[compute.Network]{
		{[]string{"name"}, func(n *compute.Network) string { return "A network with name " + n.Name + " already exists." }},
		{[]string{"bridge", "cidr"}, func(n *compute.Network) string {
			if n.CIDR == "" {
				return "A network of bridge " + n.Bridge + " without a subnet already exists."
			}
			return "A network of bridge " + n.Bridge + " with subnet " + n.CIDR + " already exists."
		}},
	},
	inUse: func(n *compute.Network) string {
		return "Network " + n.ID + " is in use: servers have addresses in it. Delete them first."
	},
	mine: func(c *whereClause, f compute.NetworkFilter) string {
		return c.mine("(m.project = %s OR m.shared)", f.Project)
	},
	narrow: func(c *whereClause, f compute.NetworkFilter) {
		if f.Project != "" {
			c.and("(t.project = " + c.arg(f.Project) + " OR t.shared)")
		}
		c.equal("t.name", f.Name)
	},
}
