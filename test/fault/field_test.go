package fault

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"salvor/client"
	"salvor/test/must"
	"salvor/wire/ironic"
)

// wrong are values that hardly any field takes.
var wrong = []any{
	nil, true, 7, -1, 1.5, json.Number("1e400"), "", "x", "\x00", "\u202e", strings.Repeat("x", 5000), []any{}, []any{nil}, []any{[]any{7}},
	map[string]any{}, map[string]any{"": nil}, map[string]any{"password": "******"}, nested(20), nested(40), "******",
}

func nested(depth int) any {
	var v any = "end"
	for range depth {
		v = map[string]any{"a": v}
	}
	return v
}

// TestWrongTypes gives every field of every body each wrong value, one at a time.
func TestWrongTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := must.Get(w.api.CreateNode(t.Context(), client.Record{"driver": "fake-hardware", "name": "n1"}))(t)
	port := must.Get(w.api.Create(t.Context(), client.Ports, client.Record{"node_uuid": n.UUID, "address": "52:54:00:00:00:01"}))(t)
	records := w.records(t, n.UUID)
	node := "/v1/nodes/" + n.UUID
	link := map[string]any{"switch_id": "52:54:00:00:00:99", "port_id": "p", "switch_info": "s"}
	bodies := []struct {
		method, path string
		good         map[string]any
	}{
		{"POST", "/v1/nodes", map[string]any{
			"driver": "fake-hardware", "name": "n2", "uuid": "00000000-1111-4222-8333-444444444444", "extra": map[string]any{}, "properties": map[string]any{}, "driver_info": map[string]any{},
			"instance_info": map[string]any{}, "instance_uuid": nil, "chassis_uuid": nil, "maintenance": false, "resource_class": "c", "automated_clean": nil, "owner": "o", "lessee": "l", "description": "d",
			"network_data": map[string]any{}, "conductor_group": "", "retired": false, "retired_reason": nil, "protected": false, "shard": "s", "boot_interface": "fake", "rescue_interface": "fake",
			"power_interface": "fake", "network_interface": "noop", "deploy_interface": "fake", "storage_interface": "noop", "bogus": 1,
		}},
		{"PUT", node + "/states/provision", map[string]any{
			"target": "bogus", "configdrive": "", "clean_steps": []any{}, "deploy_steps": []any{}, "service_steps": []any{}, "rescue_password": "x", "disable_ramdisk": false, "runbook": "r", "bogus": 1,
		}},
		{"PUT", node + "/states/provision", map[string]any{"target": "manage", "configdrive": "x", "clean_steps": []any{}, "rescue_password": "x"}},
		{"PUT", node + "/states/power", map[string]any{"target": "bogus", "timeout": 5, "bogus": 1}},
		{"PUT", node + "/states/raid", map[string]any{"logical_disks": []any{}}},
		{"PUT", node + "/management/boot_device", map[string]any{"boot_device": "bogus", "persistent": false, "bogus": 1}},
		{"PUT", node + "/maintenance", map[string]any{"reason": "r", "bogus": 1}},
		{"PUT", node + "/traits", map[string]any{"traits": []any{"CUSTOM_A"}, "bogus": 1}},
		{"POST", node + "/vifs", map[string]any{"id": "v", "port_uuid": port.Text("uuid")}},
		{"POST", "/v1/ports", map[string]any{
			"node_uuid": n.UUID, "address": "52:54:00:00:00:02", "pxe_enabled": true, "local_link_connection": link, "extra": map[string]any{}, "uuid": "00000000-1111-4222-8333-555555555555",
			"physical_network": "p", "is_smartnic": false, "name": "p1", "portgroup_uuid": nil, "bogus": 1,
		}},
		{"POST", "/v1/volume/connectors", map[string]any{"node_uuid": n.UUID, "type": "ip", "connector_id": "192.0.2.7", "extra": map[string]any{}, "uuid": "00000000-1111-4222-8333-666666666666", "bogus": 1}},
		{"POST", "/v1/volume/targets", map[string]any{
			"node_uuid": n.UUID, "volume_type": "iscsi", "volume_id": "v", "boot_index": 5, "properties": map[string]any{"auth_password": bmcPassword}, "extra": map[string]any{}, "uuid": "00000000-1111-4222-8333-777777777777", "bogus": 1,
		}},
		{"POST", "/v1/portgroups", map[string]any{
			"node_uuid": n.UUID, "name": "g2", "address": "52:54:00:00:00:03", "mode": "802.3ad", "properties": map[string]any{}, "standalone_ports_supported": true, "extra": map[string]any{}, "bogus": 1,
		}},
		{"POST", "/v1/chassis", map[string]any{"description": "d", "extra": map[string]any{}, "uuid": "00000000-1111-4222-8333-888888888888", "bogus": 1}},
		{"POST", "/v1/heartbeat/" + n.UUID, map[string]any{
			"callback_url": "http://192.0.2.1:1", "agent_version": "9", "agent_token": "x", "agent_verify_ca": "x", "agent_status": "start", "agent_status_message": "m", "bogus": 1,
		}},
		{"POST", "/v1/drivers/fake-hardware/vendor_passthru/lookup", map[string]any{
			"version": "2", "inventory": map[string]any{"interfaces": []any{map[string]any{"mac_address": "52:54:00:00:00:07"}}}, "node_uuid": n.UUID, "bogus": 1,
		}},
		{"POST", node + "/vendor_passthru/heartbeat", map[string]any{"agent_url": "http://192.0.2.1:1", "agent_token": "x"}},
	}
	a := newAsker(t, w.server.URL)
	for _, b := range bodies {
		for field := range maps.Keys(b.good) {
			for _, v := range wrong {
				body := maps.Clone(b.good)
				body[field] = v
				status, _ := a.fire(shot{method: b.method, target: b.path, version: "1.82", body: encode(body)})
				if _, bogus := b.good["bogus"]; bogus && status < 400 {
					t.Errorf("%s %s takes an unknown field: %d", b.method, b.path, status)
				}
			}
		}
	}
	a.patches(node, []string{
		"/name", "/driver", "/extra", "/extra/a", "/extra/a/b", "/properties", "/properties/cpus", "/driver_info", "/driver_info/fake_password", "/driver_info/rescue_kernel", "/driver_info/rescue_ssh_interfaces",
		"/instance_info", "/instance_info/capabilities", "/instance_uuid", "/chassis_uuid", "/maintenance", "/maintenance_reason", "/resource_class", "/automated_clean", "/owner", "/lessee", "/description",
		"/network_data", "/network_data/links", "/conductor_group", "/retired", "/protected", "/shard", "/boot_interface", "/rescue_interface", "/traits", "/provision_state", "/bogus",
	})
	a.patches("/v1/ports/"+port.Text("uuid"), []string{
		"/address", "/node_uuid", "/extra", "/extra/vif_port_id", "/pxe_enabled", "/local_link_connection", "/local_link_connection/port_id", "/physical_network", "/is_smartnic", "/uuid", "/bogus",
	})
	a.patches(records["portgroups"], []string{"/name", "/node_uuid", "/address", "/mode", "/properties/miimon", "/standalone_ports_supported", "/extra/a", "/uuid"})
	a.patches(records["connectors"], []string{"/type", "/connector_id", "/node_uuid", "/extra", "/extra/a", "/uuid"})
	a.patches(records["targets"], []string{"/volume_type", "/volume_id", "/boot_index", "/properties", "/properties/auth_password", "/properties/a/b", "/node_uuid", "/extra/a", "/uuid"})
	w.noSecrets(t, "log", w.server.Log())
	if log := w.server.Log(); strings.Contains(log, "panic") || strings.Contains(log, "level=ERROR") {
		t.Error(lines(log, "panic", "level=ERROR"))
	}
}

// records gives a node that is off a record of each other kind, and where they are.
func (w *world) records(t *testing.T, node string) map[string]string {
	t.Helper()
	must.OK(t, w.api.SetPower(t.Context(), node, ironic.PowerRequest{Target: "power off"}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.Get((&machine{w: w, id: node}).wait(ctx, func(n *client.Node) bool { return n.PowerState == "power off" }))(t)
	at := map[string]string{}
	for kind, r := range map[client.Collection]client.Record{
		client.Portgroups:       {"name": "g1"},
		client.VolumeConnectors: {"type": "iqn", "connector_id": "iqn.2026-01.org.salvor:n1"},
		client.VolumeTargets:    {"volume_type": "iscsi", "volume_id": "v0", "boot_index": 0, "properties": map[string]any{"auth_username": bmcPassword, "auth_password": bmcPassword}},
	} {
		r["node_uuid"] = node
		made := must.Get(w.api.Create(t.Context(), kind, r))(t)
		if text := encode(made); strings.Contains(text, bmcPassword) {
			t.Errorf("a credential is shown: %s", text)
		}
		at[kind.Envelope] = kind.Path + "/" + made.Text("uuid")
	}
	return at
}

// patches tries every operation on every path with every wrong value.
func (a *asker) patches(target string, paths []string) {
	a.Helper()
	for _, path := range append(slices.Clone(paths), "", "/", "extra", "/extra/~", "/extra/~9", "/extra/-", "/extra/0") {
		for _, op := range []any{"add", "replace", "remove", "test", "", nil, 7} {
			for _, v := range wrong {
				a.fire(shot{method: "PATCH", target: target, version: "1.82", body: encode([]any{map[string]any{"op": op, "path": path, "value": v}})})
			}
		}
	}
}
