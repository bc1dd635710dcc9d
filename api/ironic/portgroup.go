package ironic

import (
	"slices"

	"salvor/metal"
	"salvor/secret"
)

// portgroups are NICs that are bonded to one.
var portgroups = defineKind(recordKind[metal.Portgroup, metal.PortgroupFilter]{
	name: "portgroup", path: "portgroups", list: "portgroups", since: 23, detail: 43, detailPath: true,
	service: func(s *server) *metal.Portgroups { return s.Portgroups },
	blank:   func(*ironicCall) *metal.Portgroup { return &metal.Portgroup{StandalonePorts: true} },
	nodeOf:  func(g *metal.Portgroup) string { return g.NodeID },
	fields: slices.Concat([]recordField[metal.Portgroup]{
		idField[metal.Portgroup](),
		wordField("name", 23, settable|ordered, 255, func(g *metal.Portgroup) *string { return &g.Name }),
		wordField("address", 23, settable|ordered, 64, func(g *metal.Portgroup) *string { return &g.Address }),
		requireField(nodeRef(settable|ordered, func(g *metal.Portgroup) *string { return &g.NodeID })),
		wordField("mode", 26, settable|ordered, 255, func(g *metal.Portgroup) *string { return &g.Mode }),
		namedSince(26, secretField("properties", 23, settable, secret.IsKey, func(g *metal.Portgroup) *metal.Object { return &g.Properties })),
		flagField("standalone_ports_supported", 23, settable|ordered, true, func(g *metal.Portgroup) *bool { return &g.StandalonePorts }),
		freeField("extra", 23, settable, func(g *metal.Portgroup) *metal.Object { return &g.Extra }),
		{name: "internal_info", since: 23, write: func(b []byte, g *metal.Portgroup, _ *ironicCall) []byte { return appendMasked(b, g.InternalInfo) }},
		rejectEmpty(wordField("physical_network", 102, settable|ordered, 64, func(g *metal.Portgroup) *string { return &g.PhysicalNetwork })),
		wordField("category", 103, settable|ordered, 80, func(g *metal.Portgroup) *string { return &g.Category }),
		flagField("dynamic_portgroup", 111, ordered, false, func(g *metal.Portgroup) *bool { return &g.DynamicPorts }),
	}, lateFields[metal.Portgroup]("portgroups"), []recordField[metal.Portgroup]{
		linkField("ports", 24, func(g *metal.Portgroup) (string, string) { return "portgroups/" + g.ID, "/ports" }),
	}),
	brief: []string{"uuid", "name", "address"},
	filters: []queryFilter[metal.PortgroupFilter]{
		nodeFilterOf("node", 23, func(f *metal.PortgroupFilter) *string { return &f.NodeID }),
		macFilter(23, func(f *metal.PortgroupFilter) *string { return &f.Address }),
		wordsFilter("shard", 106, func(f *metal.PortgroupFilter) *[]string { return &f.Shards }),
		groupFilter(func(f *metal.PortgroupFilter) *[]string { return &f.ConductorGroups }),
	},
})

// ofPortgroup is the parent of the ports in a portgroup.
var ofPortgroup = parentResource[metal.PortFilter]{path: "portgroups/{id}", since: 24, narrow: func(c *ironicCall, f *metal.PortFilter) (string, error) {
	g, err := c.s.Portgroups.Get(c.R.Context(), c.Args[0])
	if err != nil {
		return "", err
	}
	f.PortgroupID = g.ID
	return "portgroups/" + g.ID, nil
}}
