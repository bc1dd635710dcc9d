package ironic_test

import (
	"strings"
	"testing"

	"salvor/metal"
)

// TestOldClientsChangeNothingOfANodeInRescue: below 1.38 what belongs to a node in a rescue state is as closed as the node itself.
func TestOldClientsChangeNothingOfANodeInRescue(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	const portID, groupID = "55555555-2222-4333-8444-555555555555", "66666666-2222-4333-8444-555555555555"
	w.want(201, "POST", "/v1/ports", "1.37", `{"uuid":"`+portID+`","node_uuid":"`+nodeID+`","address":"52:54:00:00:00:01"}`)
	w.want(201, "POST", "/v1/portgroups", "1.37", `{"uuid":"`+groupID+`","node_uuid":"`+nodeID+`","name":"g"}`)
	w.want(201, "POST", "/v1/ports", "1.37", `{"uuid":"`+strings.Replace(portID, "5", "6", 1)+`","node_uuid":"`+otherID+`","address":"52:54:00:00:00:02"}`)
	extra, move := `[{"op":"add","path":"/extra/a","value":"b"}]`, `[{"op":"replace","path":"/node_uuid","value":"`+nodeID+`"}]`
	for _, state := range []metal.State{metal.Rescue, metal.RescueFailed, metal.UnrescueFailed} {
		w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = state })
		for _, r := range [][3]string{
			{"PUT", "/v1/nodes/n1/maintenance", `{"reason":"x"}`},
			{"DELETE", "/v1/nodes/n1/maintenance", ""},
			{"POST", "/v1/ports", `{"node_uuid":"` + nodeID + `","address":"52:54:00:00:00:03"}`},
			{"PATCH", "/v1/ports/" + portID, extra},
			{"PATCH", "/v1/ports/" + strings.Replace(portID, "5", "6", 1), move},
			{"DELETE", "/v1/ports/" + portID, ""},
			{"POST", "/v1/portgroups", `{"node_uuid":"` + nodeID + `","name":"h"}`},
			{"PATCH", "/v1/portgroups/" + groupID, extra},
			{"DELETE", "/v1/portgroups/" + groupID, ""},
			{"POST", "/v1/volume/connectors", `{"node_uuid":"` + nodeID + `","type":"iqn","connector_id":"iqn.2026-01.org.salvor:n2"}`},
			{"PATCH", "/v1/volume/connectors/" + connectorID, extra},
			{"DELETE", "/v1/volume/connectors/" + connectorID, ""},
			{"POST", "/v1/volume/targets", `{"node_uuid":"` + nodeID + `","volume_type":"iscsi","boot_index":1,"volume_id":"v"}`},
			{"PATCH", "/v1/volume/targets/" + targetID, extra},
			{"DELETE", "/v1/volume/targets/" + targetID, ""},
		} {
			if a := w.ask(r[0], r[1], "1.37", r[2]); a.Status != 406 {
				t.Errorf("%s: %s %s at 1.37: %d %s; want 406", state, r[0], r[1], a.Status, a.Body)
			}
		}
	}
	w.want(200, "PATCH", "/v1/ports/"+portID, "1.38", extra)
	w.want(202, "PUT", "/v1/nodes/n1/maintenance", "1.38", `{"reason":"x"}`)
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Active })
	w.want(202, "DELETE", "/v1/nodes/n1/maintenance", "1.37", "")
}

// TestMoveToUnknownNodeIsJudgedFirst: a PATCH that names a node which does not exist is a 400, whatever the state of the node that it leaves.
func TestMoveToUnknownNodeIsJudgedFirst(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	const portID, groupID = "55555555-2222-4333-8444-555555555555", "66666666-2222-4333-8444-555555555555"
	w.want(201, "POST", "/v1/ports", "1.82", `{"uuid":"`+portID+`","node_uuid":"`+nodeID+`","address":"52:54:00:00:00:01"}`)
	w.want(201, "POST", "/v1/portgroups", "1.82", `{"uuid":"`+groupID+`","node_uuid":"`+nodeID+`","name":"g"}`)
	w.edit(nodeID, func(n *metal.Node) { n.InstanceUUID, n.PowerState = otherID, metal.PowerOn })
	move := `[{"op":"replace","path":"/node_uuid","value":"` + strings.Replace(nodeID, "1", "9", 1) + `"}]`
	for _, path := range []string{"ports/" + portID, "portgroups/" + groupID, "volume/connectors/" + connectorID, "volume/targets/" + targetID} {
		if a := w.ask("PATCH", "/v1/"+path, "1.82", move); a.Status != 400 || !strings.Contains(a.errorText(), "could not be found") {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
}

// TestPortgroupPropertiesByPatch: clients of 1.23 patch and read properties, as with Ironic; a creation takes them from 1.26 on.
func TestPortgroupPropertiesByPatch(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	w.want(201, "POST", "/v1/portgroups", "1.23", `{"node_uuid":"`+nodeID+`","name":"g","extra":{"a":"b"}}`)
	w.want(200, "PATCH", "/v1/portgroups/g", "1.23", `[{"op":"add","path":"/extra/key1","value":"value1"},{"op":"add","path":"/properties/key1","value":"value1"}]`)
	got, _ := w.want(200, "GET", "/v1/portgroups/g", "1.23", "").Object(t)["properties"].(map[string]any)
	if got["key1"] != "value1" {
		t.Errorf("properties %v", got)
	}
	w.want(406, "GET", "/v1/portgroups/g?fields=properties", "1.25", "")
	w.want(406, "POST", "/v1/portgroups", "1.23", `{"node_uuid":"`+nodeID+`","name":"h","properties":{"a":"b"}}`)
}
