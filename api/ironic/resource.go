package ironic

import (
	"slices"

	"salvor/metal"
)

// Records beside nodes are described, not programmed. A kind (kind.go) is a table: its
// path, first version, list key, service (a *record.Collection, which keeps the rules),
// fields, brief fields, filters. From it record.go derives list, detail, get, create,
// patch and delete, and lists below parents, each gated at its version.
//
//	var ports = define(kind[metal.Port, metal.PortFilter]{
//		name: "port", path: "ports", list: "ports", since: 1, detail: 43, detailPath: true,
//		service: func(s *server) *metal.Ports { return s.Ports },
//		blank:   func(*call) *metal.Port { return &metal.Port{PXEEnabled: true} },
//		fields:  slices.Concat([]field[metal.Port]{idField[metal.Port](), ...}, lateFields[metal.Port]("ports")),
//		brief:   []string{"uuid", "address"},
//		filters: []filter[metal.PortFilter]{nodeFilterOf("node", 6, ...), ...},
//	})
//
// A field has a name, a first version, uses (creatable, patchable, required, ordered), how
// it is written (append to JSON; nil: never shown), read for PATCH (get) and set from
// decoded JSON (set; nil resets). field.go has builders for the usual ones: idField,
// wordField, flagField, numberField, freeField, secretField, nodeRef, timeField, linkField,
// lateFields, with needed and filled around them. A handler that no table can tell is a
// method like the derived ones, in a route of its own beside them.
//
// Rules of one record by itself belong to the collection's check, rules that need the
// store to its admit; here is only what concerns JSON and versions.

// resourceRoutes are the records beside nodes.
func (s *server) resourceRoutes() []apiRoute {
	return slices.Concat(
		ports.routes(ofNode(1, func(f *metal.PortFilter) *string { return &f.NodeID }), ofPortgroup),
		portgroups.routes(ofNode(24, func(f *metal.PortgroupFilter) *string { return &f.NodeID })),
		chassis.routes(), s.chassisNodes(), s.volumeRoutes(),
	)
}
