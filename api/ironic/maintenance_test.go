package ironic_test

import (
	"testing"

	"salvor/metal"
)

// TestPatchedMaintenanceIsTheOperators: maintenance that an operator patches on over a power failure is not power sync's to end.
func TestPatchedMaintenanceIsTheOperators(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) {
		n.Maintenance, n.Fault, n.MaintenanceReason = true, metal.PowerFailure, "Power sync gave up; the next good reading ends this."
	})
	got := w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"replace","path":"/maintenance","value":true}]`).Object(t)
	if got["maintenance"] != true || got["fault"] != nil || got["maintenance_reason"] != nil {
		t.Errorf("maintenance %v, fault %v, reason %v; a fault would let power sync end the operator's maintenance", got["maintenance"], got["fault"], got["maintenance_reason"])
	}
	w.want(202, "PUT", "/v1/nodes/n1/maintenance", "1.82", `{"reason":"the fan is being changed"}`)
	got = w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"replace","path":"/maintenance","value":true}]`).Object(t)
	if got["maintenance_reason"] != "the fan is being changed" {
		t.Errorf("reason %v; the operator's own words are lost", got["maintenance_reason"])
	}
}
