package ironic_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"salvor/metal"
)

func TestPortLife(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	a := w.want(201, "POST", "/v1/ports", "1.82", `{"node_uuid":"`+nodeID+`","address":"52-54-00-AA-00-01","extra":{"vif_port_id":"br-tenant"},
		"local_link_connection":{"port_id":"tap0"},"physical_network":"p","pxe_enabled":false,"is_smartnic":false}`)
	p := a.Object(t)
	id := p["uuid"].(string)
	if a.Header.Get("Location") != "http://salvor.example/v1/ports/"+id || p["address"] != "52:54:00:aa:00:01" || p["pxe_enabled"] != false {
		t.Errorf("created: %v %s", a.Header, a.Body)
	}
	w.refuse([]refusal{{"POST", "/v1/ports", "1.82", `{"node_uuid":"` + nodeID + `","address":"52:54:00:aa:00:01"}`, 409, ""}})
	for path, want := range map[string]int{
		"/v1/ports": 1, "/v1/ports/detail": 1, "/v1/ports?node=n1": 1, "/v1/ports?node=" + nodeID: 1, "/v1/ports?node_uuid=" + nodeID: 1, "/v1/ports?address=52:54:00:AA:00:01": 1,
		"/v1/ports?address=52:54:00:aa:00:02": 0, "/v1/nodes/n1/ports": 1, "/v1/nodes/n1/ports/detail": 1, "/v1/ports?fields=uuid,extra": 1, "/v1/ports?sort_key=address&sort_dir=desc": 1,
	} {
		if got := w.want(200, "GET", path, "1.82", "").Object(t)["ports"].([]any); len(got) != want {
			t.Errorf("%s: %d ports", path, len(got))
		}
	}
	if got := w.want(200, "GET", "/v1/nodes/n1/vifs", "1.82", "").Body; got != `{"vifs":[{"id":"br-tenant"}]}` {
		t.Errorf("vifs: %s", got)
	}
	got := w.want(200, "PATCH", "/v1/ports/"+id, "1.82", `[{"op":"replace","path":"/address","value":"52:54:00:AA:00:09"},{"op":"remove","path":"/extra/vif_port_id"},
		{"op":"add","path":"/local_link_connection/switch_id","value":"0a:1b:2c:3d:4e:5f"},{"op":"remove","path":"/physical_network"},{"op":"remove","path":"/pxe_enabled"}]`).Object(t)
	if got["address"] != "52:54:00:aa:00:09" || len(got["extra"].(map[string]any)) != 0 || got["physical_network"] != nil || got["pxe_enabled"] != true {
		t.Errorf("patched: %v", got)
	}
	if diff := cmp.Diff(map[string]any{"port_id": "tap0", "switch_id": "0a:1b:2c:3d:4e:5f"}, got["local_link_connection"]); diff != "" {
		t.Error(diff)
	}
	w.lock(nodeID)
	w.refuse([]refusal{{"DELETE", "/v1/ports/" + id, "1.82", "", 409, "locked"}})
	w.free()
	w.want(204, "DELETE", "/v1/ports/"+id, "1.82", "")
	w.want(404, "GET", "/v1/ports/"+id, "1.82", "")
}

func TestBadPorts(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	id := w.want(201, "POST", "/v1/ports", "1.82", `{"node_uuid":"`+nodeID+`","address":"52:54:00:00:00:01"}`).Object(t)["uuid"].(string)
	post := func(version, more string, status int, message string) refusal {
		return refusal{"POST", "/v1/ports", version, `{"node_uuid":"` + nodeID + `","address":"52:54:00:00:00:02"` + more + `}`, status, message}
	}
	patch := func(version, op string, status int, message string) refusal {
		return refusal{"PATCH", "/v1/ports/" + id, version, "[" + op + "]", status, message}
	}
	w.refuse([]refusal{
		{"POST", "/v1/ports", "1.82", `{}`, 400, "address"}, {"POST", "/v1/ports", "1.82", `7`, 400, "object"},
		{"POST", "/v1/ports", "1.82", `{"address":"52:54:00:00:00:02"}`, 400, "node_uuid"},
		{"POST", "/v1/ports", "1.82", `{"address":"52:54:00:00:00:02","node_uuid":"n1"}`, 400, "Expected a UUID"},
		{"POST", "/v1/ports", "1.82", `{"address":"52:54:00:00:00:02","node_uuid":"99999999-2222-4333-8444-555555555555"}`, 400, "Invalid input for field/attribute node_uuid"},
		{"POST", "/v1/ports", "1.82", `{"address":"nonsense","node_uuid":"` + nodeID + `"}`, 400, "Expected a MAC address but received nonsense."},
		post("1.82", `,"bogus":1`, 400, "'bogus' was unexpected"), post("1.82", `,"name":"x"`, 406, "1.88"), post("1.52", `,"is_smartnic":true`, 406, "1.53"), post("1.18", `,"pxe_enabled":true`, 406, "1.19"),
		post("1.82", `,"uuid":"x"`, 400, "UUID"), post("1.82", `,"uuid":"`+id+`"`, 409, ""), post("1.82", `,"extra":7`, 400, "extra"), post("1.82", `,"pxe_enabled":"x"`, 400, "pxe_enabled"),
		post("1.82", `,"local_link_connection":{"odd":"x"}`, 400, "odd"), post("1.82", `,"local_link_connection":{"switch_id":"x"}`, 400, "switch_id"), post("1.82", `,"local_link_connection":{"port_id":7}`, 400, "port_id"),
		post("1.82", `,"portgroup_uuid":"`+id+`"`, 400, "portgroup_uuid"), post("1.82", `,"internal_info":{}`, 400, "unexpected"),
		patch("1.82", `{"op":"replace","path":"/uuid","value":"x"}`, 400, "Cannot patch /uuid. Only the following can be updated: /address, /extra"),
		patch("1.82", `{"op":"remove","path":"/address"}`, 400, "address"), patch("1.82", `{"op":"remove","path":"/node_uuid"}`, 400, "node_uuid"),
		patch("1.82", `{"op":"replace","path":"/node_uuid","value":"99999999-2222-4333-8444-555555555555"}`, 400, "could not be found"),
		patch("1.33", `{"op":"add","path":"/physical_network","value":"x"}`, 406, "1.34"), patch("1.82", `{"op":"add","path":"/name","value":"x"}`, 406, "1.88"),
		{"PATCH", "/v1/ports/" + nodeID, "1.82", `[{"op":"add","path":"/extra/x","value":1}]`, 404, ""}, {"DELETE", "/v1/ports/" + nodeID, "1.82", "", 404, ""},
		{"GET", "/v1/nodes/nope/ports", "1.82", "", 404, ""}, {"GET", "/v1/ports?portgroup=x", "1.82", "", 404, ""},
	})
	w.edit(nodeID, func(n *metal.Node) { n.InstanceUUID, n.ProvisionState = nodeID, metal.Active })
	w.refuse([]refusal{patch("1.82", `{"op":"replace","path":"/address","value":"52:54:00:00:00:07"}`, 409, "in use"), {"DELETE", "/v1/ports/" + id, "1.82", "", 409, "in use"}})
}

func TestVIFs(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	const path = "/v1/nodes/n1/vifs"
	w.refuse([]refusal{
		{"POST", path, "1.82", `{}`, 400, "id"}, {"POST", path, "1.82", `{"id":7}`, 400, "id"}, {"POST", path, "1.82", `{"id":"br-a","port_uuid":"x","portgroup_uuid":"y"}`, 400, "both"},
		{"POST", path, "1.82", `{"id":"br-a","port_uuid":"x"}`, 400, "not enough free physical ports"}, {"POST", path, "1.27", `{"id":"br-a"}`, 404, ""},
		{"POST", path, "1.66", `{"id":"br-a","port_uuid":"x"}`, 406, "1.67"},
	})
	w.want(204, "POST", path, "1.82", `{"id":"br-a"}`) // a node without a port on the network noop has nothing to wire
	w.want(204, "DELETE", path+"/br-a", "1.82", "")
	w.want(201, "POST", "/v1/ports", "1.82", `{"node_uuid":"`+nodeID+`","address":"52:54:00:00:00:01","pxe_enabled":false}`)
	w.want(204, "DELETE", path+"/br-a", "1.82", "")
	boots := w.want(201, "POST", "/v1/ports", "1.82", `{"node_uuid":"`+nodeID+`","address":"52:54:00:00:00:02","extra":{"keep":1}}`).Object(t)["uuid"].(string)
	w.want(204, "POST", path, "1.82", `{"id":"br-a"}`)
	if got := w.want(200, "GET", "/v1/ports/"+boots, "1.82", "").Object(t); cmp.Diff([]any{map[string]any{"keep": 1.0}, map[string]any{"tenant_vif_port_id": "br-a"}}, []any{got["extra"], got["internal_info"]}) != "" {
		t.Errorf("the port that boots: %v", got)
	}
	w.want(204, "POST", path, "1.82", `{"id":"br-a"}`)
	w.refuse([]refusal{{"POST", path, "1.82", `{"id":"br-b","port_uuid":"` + boots + `"}`, 400, "not enough free"}})
	w.want(204, "POST", path, "1.82", `{"id":"br-b"}`)
	w.want(204, "POST", path, "1.82", `{"id":"br-c"}`) // there is no port for it, and noop wires none
	w.want(204, "DELETE", path+"/br-a", "1.82", "")
	w.want(204, "DELETE", path+"/br-a", "1.82", "")
	// What further keys say is the network's business.
	w.want(204, "POST", path, "1.82", `{"id":"br-a","port_uuid":"`+boots+`","more":"x"}`)
	w.want(204, "DELETE", path+"/br-a", "1.82", "")
	if got := w.want(200, "GET", path, "1.82", "").Body; got != `{"vifs":[{"id":"br-b"}]}` {
		t.Errorf("vifs: %s", got)
	}
	w.lock(nodeID)
	w.refuse([]refusal{{"POST", path, "1.82", `{"id":"br-c"}`, 409, "locked"}})
}
