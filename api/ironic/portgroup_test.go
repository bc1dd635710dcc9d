package ironic_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

const (
	groupID   = "55555555-2222-4333-8444-555555555555"
	chassisID = "66666666-2222-4333-8444-555555555555"
)

// recordHistory is when the fields of each kind came, from Ironic's history of versions.
var recordHistory = map[string]map[int][]string{
	"/v1/ports/port0": {
		1: {"uuid", "address", "node_uuid", "extra", "created_at", "updated_at", "links"}, 18: {"internal_info"}, 19: {"local_link_connection", "pxe_enabled"}, 24: {"portgroup_uuid"}, 34: {"physical_network"},
		53: {"is_smartnic"}, 88: {"name"}, 97: {"description"}, 100: {"vendor"}, 101: {"category"}, 111: {"available_for_dynamic_portgroup"},
	},
	"/v1/portgroups/bond0": {
		23: {"uuid", "name", "address", "node_uuid", "extra", "internal_info", "standalone_ports_supported", "created_at", "updated_at", "links", "properties"}, 24: {"ports"}, 26: {"mode"},
		102: {"physical_network"}, 103: {"category"}, 111: {"dynamic_portgroup"},
	},
	"/v1/chassis/" + chassisID:             {1: {"uuid", "description", "extra", "nodes", "created_at", "updated_at", "links"}},
	"/v1/volume/connectors/" + connectorID: {32: {"uuid", "node_uuid", "type", "connector_id", "extra", "created_at", "updated_at", "links"}},
	"/v1/volume/targets/" + targetID:       {32: {"uuid", "node_uuid", "volume_type", "boot_index", "volume_id", "properties", "extra", "created_at", "updated_at", "links"}},
}

// TestRecordFieldsByVersion walks all versions: a record shows what its version knows, a
// newer field is 406 to ask for, to give and to patch, and the endpoint of a newer kind is 404.
func TestRecordFieldsByVersion(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	w.want(201, "POST", "/v1/chassis", "1.1", `{"uuid":"`+chassisID+`"}`)
	w.want(201, "POST", "/v1/portgroups", "1.115", `{"uuid":"`+groupID+`","name":"bond0","node_uuid":"`+nodeID+`"}`)
	port := w.want(201, "POST", "/v1/ports", "1.115", `{"name":"port0","node_uuid":"`+nodeID+`","address":"52:54:00:00:00:01"}`).Object(t)["uuid"].(string)
	for path, history := range recordHistory {
		path = strings.Replace(path, "port0", port, 1)
		list := path[:strings.LastIndex(path, "/")]
		first, known := slices.Min(slices.Collect(maps.Keys(history))), map[string]bool{}
		for v := 1; v <= 115; v++ {
			version := fmt.Sprintf("1.%d", v)
			if v < first {
				for _, one := range []string{path, list, list + "/detail"} {
					w.refuse([]refusal{{"GET", one, version, "", 404, fmt.Sprintf("1.%d", first)}})
				}
				continue
			}
			for _, f := range history[v] {
				known[f] = true
				if v > first && v > 8 {
					older := fmt.Sprintf("1.%d", v-1)
					w.refuse([]refusal{{"GET", path + "?fields=" + f, older, "", 406, version}, {"GET", list + "?fields=" + f, older, "", 406, version}})
				}
			}
			shown := w.want(200, "GET", path, version, "").Object(t)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(shown))); diff != "" {
				t.Errorf("%s at %s (-want +got):\n%s", path, version, diff)
			}
		}
	}
}

// TestNewerRecordFields gives and patches fields one version too early.
func TestNewerRecordFields(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	group := w.want(201, "POST", "/v1/portgroups", "1.115", `{"name":"bond0","node_uuid":"`+nodeID+`"}`).Object(t)["uuid"].(string)
	port := w.want(201, "POST", "/v1/ports", "1.115", `{"name":"port0","node_uuid":"`+nodeID+`","address":"52:54:00:00:00:01"}`).Object(t)["uuid"].(string)
	for i, f := range []struct {
		kind, field, value string
		since              int
	}{
		{"ports", "local_link_connection", `{"port_id":"a"}`, 19}, {"ports", "pxe_enabled", "false", 19}, {"ports", "portgroup_uuid", "null", 24}, {"ports", "physical_network", `"p"`, 34}, {"ports", "is_smartnic", "false", 53},
		{"ports", "name", `"nic0"`, 88}, {"ports", "description", `"text"`, 97}, {"ports", "vendor", `"v"`, 100}, {"ports", "category", `"c"`, 101}, {"ports", "available_for_dynamic_portgroup", "false", 111},
		{"portgroups", "mode", `"802.3ad"`, 26}, {"portgroups", "physical_network", `"p"`, 102}, {"portgroups", "category", `"c"`, 103},
	} {
		id, base := port, `{"node_uuid":"`+nodeID+`","address":"52:54:00:00:01:%02d","`+f.field+`":`+f.value+`}`
		if f.kind == "portgroups" {
			id = group
		}
		op := `[{"op":"add","path":"/` + f.field + `","value":` + f.value + `}]`
		at, before := fmt.Sprintf("1.%d", f.since), fmt.Sprintf("1.%d", f.since-1)
		w.refuse([]refusal{{"POST", "/v1/" + f.kind, before, fmt.Sprintf(base, i), 406, at}, {"PATCH", "/v1/" + f.kind + "/" + id, before, op, 406, at}})
		made := w.want(201, "POST", "/v1/"+f.kind, at, fmt.Sprintf(base, i)).Object(t)
		w.want(204, "DELETE", "/v1/"+f.kind+"/"+made["uuid"].(string), at, "")
		patched := w.want(200, "PATCH", "/v1/"+f.kind+"/"+id, at, op).Object(t)
		if diff := cmp.Diff(made[f.field], patched[f.field]); diff != "" || !strings.Contains(fmt.Sprint(f.value), "null") && made[f.field] == nil {
			t.Errorf("%s.%s: made %v, patched %v", f.kind, f.field, made[f.field], patched[f.field])
		}
		w.want(200, "PATCH", "/v1/"+f.kind+"/"+id, "1.115", `[{"op":"remove","path":"/`+f.field+`"}]`)
	}
	w.refuse([]refusal{
		{"GET", "/v1/ports?conductor_groups=a", "1.98", "", 406, "1.99"}, {"GET", "/v1/portgroups?conductor_groups=a", "1.98", "", 406, "1.99"}, {"GET", "/v1/portgroups?shard=a", "1.105", "", 406, "1.106"},
		{"GET", "/v1/ports?shard=a", "1.81", "", 406, "1.82"}, {"GET", "/v1/ports?portgroup=a", "1.23", "", 406, "1.24"}, {"GET", "/v1/ports?description_contains=a", "1.96", "", 406, "1.97"},
		{"GET", "/v1/ports?shard=" + strings.Repeat(",", 300), "1.82", "", 400, "200"}, {"GET", "/v1/ports/nic0", "1.87", "", 400, "UUID"}, {"GET", "/v1/ports/52:54:00:00:00:01", "1.115", "", 400, "UUID or the name"},
		{"GET", "/v1/portgroups/bond0/ports", "1.23", "", 404, "1.24"}, {"GET", "/v1/nodes/n1/portgroups", "1.23", "", 404, "1.24"}, {"POST", "/v1/portgroups", "1.115", `{"node_uuid":"` + nodeID + `","dynamic_portgroup":true}`, 400, "unexpected"},
	})
}

func TestPortgroupLife(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) {
		n.ProvisionState, n.ConductorGroup, n.Shard = metal.Manageable, "north", "s1"
	})
	w.node(func(n *metal.Node) { n.ID, n.Name, n.ProvisionState = otherID, "n2", metal.Enroll })
	a := w.want(201, "POST", "/v1/portgroups", "1.115", `{"uuid":"`+groupID+`","name":"bond0","node_uuid":"`+nodeID+`","address":"52-54-00-AA-00-01","properties":{"miimon":100,"snmp_password":"hush"}}`)
	if g := a.Object(t); g["mode"] != "active-backup" || g["address"] != "52:54:00:aa:00:01" || g["standalone_ports_supported"] != true || strings.Contains(a.Body, "hush") ||
		a.Header.Get("Location") != "http://salvor.example/v1/portgroups/"+groupID {
		t.Errorf("created: %s %v", a.Body, a.Header)
	}
	port := func(more string) string {
		return `{"node_uuid":"` + nodeID + `","portgroup_uuid":"` + groupID + `"` + more + `}`
	}
	one := w.want(201, "POST", "/v1/ports", "1.115", port(`,"address":"52:54:00:00:00:01","physical_network":"p1"`)).Object(t)["uuid"].(string)
	w.refuse([]refusal{
		{"POST", "/v1/ports", "1.115", port(`,"address":"52:54:00:00:00:02","physical_network":"p2"`), 409, "p2"},
		{"POST", "/v1/ports", "1.115", strings.Replace(port(`,"address":"52:54:00:00:00:02"`), nodeID, otherID, 1), 400, "different node"},
		{"POST", "/v1/ports", "1.115", strings.Replace(port(`,"address":"52:54:00:00:00:02"`), groupID, ghostID, 1), 400, "could not be found"},
		{"POST", "/v1/portgroups", "1.115", `{"node_uuid":"` + nodeID + `","name":"bond0"}`, 409, "bond0"}, {"POST", "/v1/portgroups", "1.115", `{"node_uuid":"` + nodeID + `","address":"52:54:00:aa:00:01"}`, 409, "52:54:00:aa:00:01"},
		{"POST", "/v1/portgroups", "1.115", `{}`, 400, "node_uuid"}, {"POST", "/v1/portgroups", "1.115", `{"node_uuid":"` + ghostID + `"}`, 400, "could not be found"}, {"POST", "/v1/portgroups", "1.115", `{"node_uuid":"` + nodeID + `","address":"x"}`, 400, "MAC"},
		{"POST", "/v1/portgroups", "1.115", `{"node_uuid":"` + nodeID + `","name":"a b"}`, 400, "not valid"}, {"POST", "/v1/portgroups", "1.115", `{"node_uuid":"` + nodeID + `","physical_network":""}`, 400, "non-empty"},
		{"PATCH", "/v1/ports/" + one, "1.102", `[{"op":"replace","path":"/physical_network","value":"p3"}]`, 400, "portgroup"},
		{"PATCH", "/v1/portgroups/bond0", "1.115", `[{"op":"replace","path":"/node_uuid","value":"` + otherID + `"}]`, 400, "ports"},
		{"PATCH", "/v1/portgroups/bond0", "1.115", `[{"op":"replace","path":"/standalone_ports_supported","value":false}]`, 409, "pxe_enabled"},
		{"PATCH", "/v1/portgroups/bond0", "1.115", `[{"op":"remove","path":"/node_uuid"}]`, 400, "node_uuid"}, {"DELETE", "/v1/portgroups/bond0", "1.115", "", 400, "contains ports"},
	})
	w.want(200, "PATCH", "/v1/portgroups/bond0", "1.115", `[{"op":"replace","path":"/physical_network","value":"p4"}]`)
	two := w.want(201, "POST", "/v1/ports", "1.115", port(`,"address":"52:54:00:00:00:02","pxe_enabled":false`)).Object(t)
	if got := w.want(200, "GET", "/v1/ports/"+one, "1.115", "").Object(t); got["physical_network"] != "p4" || two["physical_network"] != "p4" {
		t.Errorf("the network of the portgroup: %v, %v", got["physical_network"], two["physical_network"])
	}
	for path, want := range map[string]int{
		"/v1/portgroups/bond0/ports": 2, "/v1/portgroups/" + groupID + "/ports/detail": 2, "/v1/ports?portgroup=bond0": 2, "/v1/portgroups": 1, "/v1/portgroups/detail": 1, "/v1/nodes/n1/portgroups": 1, "/v1/nodes/n2/portgroups/detail": 0,
		"/v1/portgroups?node=n1": 1, "/v1/portgroups?address=52:54:00:AA:00:01": 1, "/v1/portgroups?shard=s1,s2": 1, "/v1/portgroups?shard=s2": 0, "/v1/portgroups?conductor_groups=North,south": 1, "/v1/ports?conductor_groups=south": 0,
		"/v1/ports?conductor_groups=NORTH": 2, "/v1/ports?shard=s1": 2, "/v1/ports?description_contains=x": 0,
	} {
		o := w.want(200, "GET", path, "1.115", "").Object(t)
		rows, ok := o["ports"].([]any)
		if !ok {
			rows = o["portgroups"].([]any)
		}
		if len(rows) != want {
			t.Errorf("%s: %d", path, len(rows))
		}
	}
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Active })
	w.refuse([]refusal{{"PATCH", "/v1/ports/" + one, "1.115", `[{"op":"remove","path":"/portgroup_uuid"}]`, 409, "connectivity"}})
	w.lock(nodeID)
	w.refuse([]refusal{{"PATCH", "/v1/portgroups/bond0", "1.115", `[{"op":"replace","path":"/mode","value":"x"}]`, 409, "locked"}, {"DELETE", "/v1/portgroups/bond0", "1.115", "", 409, "locked"}})
	w.free()
	w.edit(nodeID, func(n *metal.Node) { n.Maintenance = true })
	for _, id := range []string{one, two["uuid"].(string)} {
		w.want(200, "PATCH", "/v1/ports/"+id, "1.115", `[{"op":"remove","path":"/portgroup_uuid"}]`)
	}
	w.want(200, "PATCH", "/v1/portgroups/bond0", "1.115", `[{"op":"replace","path":"/node_uuid","value":"`+otherID+`"}]`)
	w.want(204, "DELETE", "/v1/portgroups/bond0", "1.115", "")
}

func TestChassisLife(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	if empty := w.want(201, "POST", "/v1/chassis", "1.8", "").Object(t); empty["description"] != nil || !record.IsUUID(empty["uuid"].(string)) {
		t.Errorf("without a body: %v", empty)
	}
	w.want(201, "POST", "/v1/chassis", "1.8", `{"uuid":"`+chassisID+`","description":"rack 1","extra":{"a":1}}`)
	w.refuse([]refusal{
		{"POST", "/v1/chassis", "1.8", `{"uuid":"` + chassisID + `"}`, 409, chassisID}, {"POST", "/v1/chassis", "1.8", `{"bogus":1}`, 400, "bogus"}, {"POST", "/v1/chassis", "1.8", `{"description":"` + strings.Repeat("x", 256) + `"}`, 400, "255"},
		{"GET", "/v1/chassis/" + ghostID, "1.8", "", 404, ghostID}, {"GET", "/v1/chassis/rack", "1.8", "", 400, "UUID"}, {"GET", "/v1/chassis/" + ghostID + "/nodes", "1.8", "", 404, ghostID},
		{"POST", "/v1/nodes", "1.82", `{"driver":"fake-hardware","chassis_uuid":"` + ghostID + `"}`, 400, "Chassis " + ghostID}, {"PATCH", "/v1/nodes/n1", "1.82", `[{"op":"add","path":"/chassis_uuid","value":"` + ghostID + `"}]`, 400, ghostID},
		{"POST", "/v1/nodes", "1.82", `{"driver":"fake-hardware","chassis_uuid":"rack"}`, 400, "Expected a UUID"},
	})
	if got := w.want(200, "PATCH", "/v1/chassis/"+chassisID, "1.8", `[{"op":"replace","path":"/description","value":"rack 2"},{"op":"remove","path":"/extra/a"}]`).Object(t); got["description"] != "rack 2" {
		t.Errorf("patched: %v", got)
	}
	w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"add","path":"/chassis_uuid","value":"`+chassisID+`"}]`)
	for path, want := range map[string]string{
		"/v1/chassis/" + chassisID + "/nodes": "n1", "/v1/chassis/" + chassisID + "/nodes/detail": "n1", "/v1/nodes?chassis_uuid=" + chassisID: "n1", "/v1/chassis/" + chassisID + "/nodes?maintenance=true": "",
	} {
		if got := strings.Join(names(t, w.want(200, "GET", path, "1.82", "")), " "); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	w.refuse([]refusal{{"DELETE", "/v1/chassis/" + chassisID, "1.8", "", 400, "contains nodes"}, {"PATCH", "/v1/nodes/n1", "1.24", `[{"op":"remove","path":"/chassis_uuid"}]`, 406, "1.25"}})
	w.want(200, "PATCH", "/v1/nodes/n1", "1.25", `[{"op":"remove","path":"/chassis_uuid"}]`)
	w.want(204, "DELETE", "/v1/chassis/"+chassisID, "1.8", "")
	if got := len(w.want(200, "GET", "/v1/chassis/detail", "1.8", "").Object(t)["chassis"].([]any)); got != 1 {
		t.Errorf("%d chassis left", got)
	}
}

func TestPortLinks(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	address := 0
	post := func(version, more string) answer {
		address++
		return w.ask("POST", "/v1/ports", version, fmt.Sprintf(`{"node_uuid":%q,"address":"52:54:00:00:02:%02x",%s}`, nodeID, address, more))
	}
	for _, r := range []struct {
		version, more string
		status        int
	}{
		{"1.19", `"local_link_connection":{"port_id":"a","switch_id":"0a:1b:2c:3d:4e:5f","switch_info":"s"}`, 201}, {"1.19", `"local_link_connection":{}`, 201}, {"1.19", `"local_link_connection":null`, 201},
		{"1.63", `"local_link_connection":{"network_type":"unmanaged"}`, 406}, {"1.64", `"local_link_connection":{"network_type":"unmanaged"}`, 201}, {"1.64", `"local_link_connection":{"network_type":"managed"}`, 400},
		{"1.64", `"local_link_connection":{"switch_id":"0a:1b:2c:3d:4e:5f"}`, 400}, {"1.89", `"local_link_connection":{"port_id":"a","vtep-logical-switch":"l","vtep-physical-switch":"p"}`, 406},
		{"1.90", `"local_link_connection":{"port_id":"a","vtep-logical-switch":"l","vtep-physical-switch":"p"}`, 201}, {"1.104", `"local_link_connection":{"port_id":"a","vtep-logical-switch":"l","vtep-physical-switch":"p"}`, 201},
		{"1.105", `"local_link_connection":{"port_id":"a","vtep-logical-switch":"l","vtep-physical-switch":"p"}`, 400}, {"1.53", `"is_smartnic":true`, 400}, {"1.53", `"is_smartnic":true,"local_link_connection":{"port_id":"a"}`, 400},
		{"1.53", `"is_smartnic":true,"local_link_connection":{"port_id":"a","hostname":"h"}`, 201}, {"1.94", `"node_ident":"n1"`, 400},
	} {
		if a := post(r.version, r.more); a.Status != r.status {
			t.Errorf("%s at %s: %d %s", r.more, r.version, a.Status, a.Body)
		}
	}
	w.refuse([]refusal{
		{"POST", "/v1/ports", "1.93", `{"node_ident":"n1","address":"52:54:00:00:03:01"}`, 406, "1.94"}, {"POST", "/v1/ports", "1.94", `{"node_ident":"ghost","address":"52:54:00:00:03:01"}`, 400, "ghost"},
	})
	if p := w.want(201, "POST", "/v1/ports", "1.94", `{"node_ident":"n1","address":"52:54:00:00:03:01"}`).Object(t); p["node_uuid"] != nodeID || p["node_ident"] != nil {
		t.Errorf("by the node's name: %v", p)
	}
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Inspecting })
	id := w.want(200, "GET", "/v1/ports", "1.1", "").Object(t)["ports"].([]any)[0].(map[string]any)["uuid"].(string)
	w.refuse([]refusal{{"PATCH", "/v1/ports/" + id, "1.82", `[{"op":"add","path":"/extra/a","value":1}]`, 409, "inspecting"}})
}

// TestChassisRace removes a chassis while a node is made in it: one of both is refused.
func TestChassisRace(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		c := &metal.Chassis{}
		must.OK(t, w.config.Chassis.Create(t.Context(), c, record.Asker{}))
		var made, removed error
		var both sync.WaitGroup
		both.Go(func() {
			made = w.nodes.Create(context.Background(), &metal.Node{Name: fmt.Sprint("in", i), Driver: "fake-hardware", ChassisUUID: c.ID}, record.Asker{})
		})
		both.Go(func() { removed = w.config.Chassis.Remove(context.Background(), c.ID, record.Asker{}) })
		both.Wait()
		if (made == nil) == (removed == nil) {
			t.Fatalf("made: %v, removed: %v", made, removed)
		}
	}
}
