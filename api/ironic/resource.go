package ironic

import (
	"net/http"
	"strings"

	"salvor/metal"
)

// Records beside nodes are described, not programmed. A kind (kind.go) is a table: its
// path, first version, list key, service (a *record.Collection, which keeps the rules),
// fields, brief fields, filters. From it record.go derives list, detail, get, create,
// patch and delete, and lists below parents, each gated at its version.
//
//	var chassis = defineKind(recordKind[metal.Chassis, metal.ChassisFilter]{
//		name: "chassis", path: "chassis", list: "chassis", since: 1, detail: 43, detailPath: true,
//		service: func(s *server) *metal.ChassisService { return s.Chassis },
//		blank:   func(*ironicCall) *metal.Chassis { return &metal.Chassis{} },
//		fields:  slices.Concat([]recordField[metal.Chassis]{idField[metal.Chassis](), ...}, lateFields[metal.Chassis]("chassis")),
//		brief:   []string{"uuid", "description"},
//	})
//
// A field has a name, a first version, uses (creatable, patchable, required, ordered), how
// it is written (append to JSON; nil: never shown), read for PATCH (get) and set from
// decoded JSON (set; nil resets). field.go has builders for the usual ones: idField,
// wordField, flagField, numberField, freeField, secretField, nodeRef, timeField, linkField,
// lateFields, with requireField around them. A handler that no table can tell is a
// method like the derived ones, in a route of its own beside them.
//
// Rules of one record by itself belong to the collection's check, rules that need the
// store to its admit; here is only what concerns JSON and versions.

// servedKind is a kind of records with all its routes.
type servedKind struct {
	kind   interface{ root() rootResource } // a *recordKind
	routes []apiRoute
}

// kinds are the records beside nodes. Routes, /v1 and the API reference follow from this list.
func (s *server) kinds() []servedKind {
	return []servedKind{
		{ports, ports.routes(ofNode(1, func(f *metal.PortFilter) *string { return &f.NodeID }), ofPortgroup)},
		{portgroups, portgroups.routes(ofNode(24, func(f *metal.PortgroupFilter) *string { return &f.NodeID }))},
		{chassis, append(chassis.routes(), s.chassisNodes()...)},
		{connectors, connectors.routes(ofNode(volumeVersion, func(f *metal.ConnectorFilter) *string { return &f.NodeID }))},
		{targets, append(targets.routes(ofNode(volumeVersion, func(f *metal.TargetFilter) *string { return &f.NodeID })), s.volumeRoutes()...)},
		{allocations, refuseChanges(s.allocationRoutes())},
		{deployTemplates, refuseChanges(deployTemplates.routes())},
		{runbooks, refuseChanges(s.runbookRoutes())},
		{inspectionRules, refuseChanges(s.inspectionRuleRoutes())},
	}
}

// root is the first part of the kind's path. Kinds that share it have the same first version.
func (k *recordKind[R, F]) root() rootResource {
	name, _, _ := strings.Cut(k.path, "/")
	return rootResource{name, k.since}
}

// refuseChanges has changes answered with 405 before the kind's first version, where Ironic does so; reads are answered with 404.
func refuseChanges(routes []apiRoute) []apiRoute {
	for i := range routes {
		if r := &routes[i]; r.method != http.MethodGet && !strings.HasPrefix(r.path, "/v1/nodes/") {
			r.before = http.StatusMethodNotAllowed
		}
	}
	return routes
}

func (s *server) kindRoutes() (all []apiRoute) {
	for _, k := range s.kinds() {
		all = append(all, k.routes...)
	}
	return all
}
