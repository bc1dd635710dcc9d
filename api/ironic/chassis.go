package ironic

import (
	"slices"

	"salvor/access"
	"salvor/metal"
)

// chassis are cases that hold nodes.
var chassis = defineKind(recordKind[metal.Chassis, metal.ChassisFilter]{
	name: "chassis", path: "chassis", list: "chassis", since: 1, detail: 43, detailPath: true, bare: true, noNames: true,
	service: func(s *server) *metal.ChassisService { return s.Chassis },
	blank:   func(*ironicCall) *metal.Chassis { return &metal.Chassis{} },
	fields: slices.Concat([]recordField[metal.Chassis]{
		idField[metal.Chassis](),
		wordField("description", 1, settable|ordered, 255, func(c *metal.Chassis) *string { return &c.Description }),
		freeField("extra", 1, settable, func(c *metal.Chassis) *metal.Object { return &c.Extra }),
	}, lateFields[metal.Chassis]("chassis"), []recordField[metal.Chassis]{
		linkField("nodes", 1, func(c *metal.Chassis) (string, string) { return "chassis/" + c.ID, "/nodes" }),
	}),
	brief: []string{"uuid", "description"},
})

// chassisNodes are the nodes in a chassis.
func (s *server) chassisNodes() []apiRoute {
	list := func(suffix string, brief bool) func(*ironicCall) error {
		return func(c *ironicCall) error {
			one, err := s.Chassis.Get(c.R.Context(), c.Args[0])
			if err != nil {
				return err
			}
			return c.listNodes("chassis/"+one.ID+"/nodes"+suffix, one.ID, brief)
		}
	}
	return []apiRoute{
		{method: "GET", path: "/v1/chassis/{id}/nodes", need: access.Read, do: list("", true)},
		{method: "GET", path: "/v1/chassis/{id}/nodes/detail", need: access.Read, do: list("/detail", false)},
	}
}
