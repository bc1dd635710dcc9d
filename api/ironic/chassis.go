package ironic

import (
	"slices"

	"salvor/access"
	"salvor/metal"
)

// chassis are cases that hold nodes.
var chassis = define(kind[metal.Chassis, metal.ChassisFilter]{
	name: "chassis", path: "chassis", list: "chassis", since: 1, detail: 43, detailPath: true, bare: true, noNames: true,
	service: func(s *server) *metal.ChassisService { return s.Chassis },
	blank:   func(*call) *metal.Chassis { return &metal.Chassis{} },
	fields: slices.Concat([]field[metal.Chassis]{
		idField[metal.Chassis](),
		wordField("description", 1, settable|ordered, 255, func(c *metal.Chassis) *string { return &c.Description }),
		freeField("extra", 1, settable, func(c *metal.Chassis) *metal.Object { return &c.Extra }),
	}, lateFields[metal.Chassis]("chassis"), []field[metal.Chassis]{
		linkField("nodes", 1, func(c *metal.Chassis) (string, string) { return "chassis/" + c.ID, "/nodes" }),
	}),
	brief: []string{"uuid", "description"},
})

// chassisNodes are the nodes in a chassis.
func (s *server) chassisNodes() []route {
	list := func(suffix string, brief bool) func(*call) error {
		return func(c *call) error {
			one, err := s.Chassis.Get(c.r.Context(), c.args[0])
			if err != nil {
				return err
			}
			return c.listNodes("chassis/"+one.ID+"/nodes"+suffix, one.ID, brief)
		}
	}
	return []route{
		{method: "GET", path: "/v1/chassis/{id}/nodes", need: access.Read, do: list("", true)},
		{method: "GET", path: "/v1/chassis/{id}/nodes/detail", need: access.Read, do: list("/detail", false)},
	}
}
