package ironic_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"salvor/api/ironic"
	"salvor/metal"
)

// fieldHistory is, once more, when Ironic's fields came, from its history of versions.
var fieldHistory = map[int][]string{
	1: {
		"uuid", "driver", "instance_uuid", "chassis_uuid", "power_state", "target_power_state", "provision_state", "target_provision_state", "provision_updated_at", "last_error",
		"reservation", "maintenance", "maintenance_reason", "console_enabled", "driver_info", "instance_info", "properties", "extra", "created_at", "updated_at", "links", "ports",
	},
	3: {"driver_internal_info"}, 5: {"name"}, 6: {"inspection_started_at", "inspection_finished_at"}, 7: {"clean_step"}, 12: {"raid_config", "target_raid_config"}, 14: {"states"},
	20: {"network_interface"}, 21: {"resource_class"}, 24: {"portgroups"},
	31: {"boot_interface", "console_interface", "deploy_interface", "inspect_interface", "management_interface", "power_interface", "raid_interface", "vendor_interface"},
	32: {"volume"}, 33: {"storage_interface"}, 37: {"traits"}, 38: {"rescue_interface"}, 40: {"bios_interface"}, 42: {"fault"}, 44: {"deploy_step"}, 46: {"conductor_group"}, 47: {"automated_clean"},
	48: {"protected", "protected_reason"}, 49: {"conductor"}, 50: {"owner"}, 51: {"description"}, 52: {"allocation_uuid"}, 61: {"retired", "retired_reason"}, 65: {"lessee"},
	66: {"network_data"}, 75: {"boot_mode", "secure_boot"}, 82: {"shard"}, 83: {"parent_node"}, 86: {"firmware_interface"}, 87: {"service_step"},
	95: {"disable_power_off"}, 104: {"instance_name"}, 109: {"health"},
}

func TestFieldsByVersion(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Manageable })
	nodeFields := map[string]bool{}
	for v := 1; v <= int(ironic.MaxVersion); v++ {
		version := fmt.Sprintf("1.%d", v)
		for _, f := range fieldHistory[v] {
			nodeFields[f] = true
			if v > 8 {
				w.refuse([]refusal{{"GET", "/v1/nodes/n1?fields=" + f, fmt.Sprintf("1.%d", v-1), "", 406, version}})
				w.want(200, "GET", "/v1/nodes?fields="+f, version, "")
			}
		}
		got := slices.Sorted(maps.Keys(w.want(200, "GET", "/v1/nodes/"+nodeID, version, "").Object(t)))
		if diff := cmp.Diff(slices.Sorted(maps.Keys(nodeFields)), got); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", version, diff)
		}
	}
	list := w.want(200, "GET", "/v1/nodes", "1.1", "").Object(t)["nodes"].([]any)[0].(map[string]any)
	want := []string{"instance_uuid", "links", "maintenance", "power_state", "provision_state", "uuid"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(list))); diff != "" {
		t.Errorf("list at 1.1 (-want +got):\n%s", diff)
	}
}

func TestStatesOfOldVersions(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Available })
	state := func(version string) any {
		return w.want(200, "GET", "/v1/nodes/"+nodeID, version, "").Object(t)["provision_state"]
	}
	if a, b := state("1.1"), state("1.2"); a != nil || b != "available" {
		t.Errorf("available is %v at 1.1, %v at 1.2", a, b)
	}
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.InspectWait })
	if a, b := state("1.38"), state("1.39"); a != "inspecting" || b != "inspect wait" {
		t.Errorf("inspect wait is %v at 1.38, %v at 1.39", a, b)
	}
	if got := w.want(201, "POST", "/v1/nodes", "1.10", `{"driver":"fake-hardware"}`).Object(t)["provision_state"]; got != "available" {
		t.Errorf("created at 1.10: %v", got)
	}
	if got := w.want(201, "POST", "/v1/nodes", "1.11", `{"driver":"fake-hardware"}`).Object(t)["provision_state"]; got != "enroll" {
		t.Errorf("created at 1.11: %v", got)
	}
}

// TestNodeAnswer pins a whole node, byte for byte.
func TestNodeAnswer(t *testing.T) {
	w := newWorld(t)
	yes := true
	n := w.node(func(n *metal.Node) {
		n.DriverInfo = metal.Object{"redfish_address": "https://bmc", "redfish_password": "hush", "deep": map[string]any{"api_token": "hush", "n": 1.5}}
		n.InstanceInfo = metal.Object{"image_url": "http://signed?sig=hush", "configdrive": "hush", "root_gb": 10.0}
		n.Properties, n.Extra = metal.Object{"cpus": 4.0}, metal.Object{"note": "a<b & \"c\" é"}
		n.Traits, n.AutomatedClean, n.PowerState = []string{"CUSTOM_A"}, &yes, metal.PowerOn
		n.LastError, n.Description = "it \"broke\"\n", "ünïcode"
		n.Interfaces = map[string]string{"rescue": "no-rescue"}
	})
	got := w.want(200, "GET", "/v1/nodes/n1", "1.82", "").Body
	created := n.CreatedAt.UTC().Format(time.RFC3339)
	link := func(below string) string {
		return `[{"href":"http://salvor.example/v1/nodes/` + nodeID + below + `","rel":"self"},{"href":"http://salvor.example/nodes/` + nodeID + below + `","rel":"bookmark"}]`
	}
	want := `{"uuid":"` + nodeID + `","name":"n1","driver":"fake-hardware","instance_uuid":null,"chassis_uuid":null,"power_state":"power on","target_power_state":null,` +
		`"provision_state":"active","target_provision_state":null,"provision_updated_at":"2026-03-04T05:06:07+00:00","last_error":"it \"broke\"\n","reservation":null,` +
		`"maintenance":false,"maintenance_reason":null,"fault":null,"console_enabled":false,` +
		`"driver_info":{"deep":{"api_token":"******","n":1.5},"redfish_address":"https://bmc","redfish_password":"******"},"driver_internal_info":{},` +
		`"instance_info":{"configdrive":"******","image_url":"******","root_gb":10},"properties":{"cpus":4},"extra":{"note":"a\u003cb \u0026 \"c\" é"},` +
		`"clean_step":{},"deploy_step":{},"raid_config":{},"target_raid_config":{},"inspection_started_at":null,"inspection_finished_at":null,"resource_class":null,` +
		`"bios_interface":"no-bios","boot_interface":"fake","console_interface":"no-console","deploy_interface":"direct","inspect_interface":"no-inspect",` +
		`"management_interface":"fake","network_interface":"noop","power_interface":"fake","raid_interface":"no-raid","rescue_interface":"no-rescue",` +
		`"storage_interface":"noop","vendor_interface":"no-vendor","traits":["CUSTOM_A"],"conductor_group":"","automated_clean":true,"protected":false,"protected_reason":null,` +
		`"conductor":"cond1","owner":null,"description":"ünïcode","allocation_uuid":null,"retired":false,"retired_reason":null,"lessee":null,"network_data":{},` +
		`"boot_mode":null,"secure_boot":null,"shard":null,"created_at":"` + strings.TrimSuffix(created, "Z") + `+00:00","updated_at":null,` +
		`"links":` + link("") + `,"ports":` + link("/ports") + `,"states":` + link("/states") + `,"portgroups":` + link("/portgroups") + `,"volume":` + link("/volume") + `}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if strings.Contains(got, "hush") {
		t.Error("a secret is shown")
	}
}

func TestMaskIsKeptNotStored(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) {
		n.ProvisionState = metal.Enroll
		n.DriverInfo = metal.Object{"fake_password": "hush", "deep": map[string]any{"list": []any{map[string]any{"token": "deep hush"}}}}
		n.InstanceInfo = metal.Object{"configdrive": "cd", "image_url": "http://i"}
	})
	w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"replace","path":"/driver_info","value":{"fake_password":"******","new":1,"deep":{"list":[{"token":"******"}]}}},
		{"op":"replace","path":"/instance_info","value":{"configdrive":"******","image_url":"******"}}]`)
	w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"replace","path":"/driver_info/fake_password","value":"******"}]`)
	w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"add","path":"/extra/password","value":"******"}]`) // extra is no place of secrets
	n, err := w.nodes.Node(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	want := metal.Object{"fake_password": "hush", "new": 1.0, "deep": map[string]any{"list": []any{map[string]any{"token": "deep hush"}}}}
	if diff := cmp.Diff(want, n.DriverInfo); diff != "" {
		t.Errorf("driver_info (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(metal.Object{"configdrive": "cd", "image_url": "http://i"}, n.InstanceInfo); diff != "" {
		t.Errorf("instance_info (-want +got):\n%s", diff)
	}
	w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"replace","path":"/driver_info/fake_password","value":"fresh"}]`)
	if n, err = w.nodes.Node(t.Context(), "n1"); err != nil || n.DriverInfo["fake_password"] != "fresh" {
		t.Errorf("new password: %v %v", n.DriverInfo, err)
	}
}

func TestPatchResets(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"add","path":"/owner","value":"o"},{"op":"add","path":"/rescue_interface","value":"no-rescue"},{"op":"add","path":"/retired","value":true},
		{"op":"add","path":"/retired_reason","value":"old"},{"op":"add","path":"/instance_uuid","value":"`+nodeID+`"},{"op":"add","path":"/maintenance","value":true},{"op":"add","path":"/automated_clean","value":false}]`)
	got := w.want(200, "GET", "/v1/nodes/n1", "1.82", "").Object(t)
	if got["owner"] != "o" || got["rescue_interface"] != "no-rescue" || got["retired_reason"] != "old" || got["instance_uuid"] != nodeID || got["maintenance"] != true || got["automated_clean"] != false {
		t.Errorf("set: %v", got)
	}
	w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"remove","path":"/owner"},{"op":"replace","path":"/rescue_interface","value":null},{"op":"replace","path":"/retired","value":"false"},
		{"op":"remove","path":"/retired_reason"},{"op":"remove","path":"/instance_uuid"},{"op":"remove","path":"/maintenance"},{"op":"remove","path":"/automated_clean"},{"op":"remove","path":"/name"},{"op":"remove","path":"/extra"}]`)
	got = w.want(200, "GET", "/v1/nodes/"+nodeID, "1.82", "").Object(t)
	if got["owner"] != nil || got["rescue_interface"] != "fake" || got["retired"] != false || got["retired_reason"] != nil || got["instance_uuid"] != nil || got["maintenance"] != false || got["automated_clean"] != nil || got["name"] != nil {
		t.Errorf("reset: %v", got)
	}
	w.want(200, "PATCH", "/v1/nodes/"+nodeID, "1.82", `[{"op":"add","path":"/boot_interface","value":"fake"}]`)
	w.refuse([]refusal{{"PATCH", "/v1/nodes/" + nodeID, "1.82", `[{"op":"replace","path":"/driver","value":"redfish"}]`, 400, "boot"}})
	got = w.want(200, "PATCH", "/v1/nodes/"+nodeID+"?reset_interfaces=true", "1.82", `[{"op":"replace","path":"/driver","value":"redfish"},{"op":"add","path":"/rescue_interface","value":"agent"}]`).Object(t)
	if got["boot_interface"] != "ipxe" || got["rescue_interface"] != "agent" || got["power_interface"] != "redfish" {
		t.Errorf("reset interfaces: %v", got)
	}
}
