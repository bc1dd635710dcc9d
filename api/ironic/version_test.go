package ironic_test

import (
	"fmt"
	"strings"
	"testing"

	"salvor/api/ironic"
	"salvor/metal"
)

// TestFirstVersions asks for everything that has a first version in the one before it and
// in its own. before is what Ironic answers to the older: 404 to a new endpoint, 406 to a
// new field or filter, 400 where it says so.
func TestFirstVersions(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Manageable })
	for _, tt := range []struct {
		since         int
		method, path  string
		body          string
		before, after int
	}{
		// Endpoints.
		{22, "GET", "/v1/lookup?addresses=52:54:00:00:00:99", "", 404, 404},
		{37, "GET", "/v1/nodes/n1/traits", "", 406, 200},
		{49, "GET", "/v1/conductors", "", 404, 200},
		{52, "GET", "/v1/allocations", "", 404, 200},
		{52, "POST", "/v1/allocations", `{"resource_class":"none"}`, 405, 201},
		{52, "GET", "/v1/nodes/n1/allocation", "", 404, 404},
		{54, "POST", "/v1/events", `{"events":[{"event":"network.bind_port","port_id":"` + nodeID + `","mac_address":"52:54:00:00:00:01","status":"ACTIVE"}]}`, 404, 204},
		{55, "GET", "/v1/deploy_templates", "", 404, 200},
		{55, "POST", "/v1/deploy_templates", `{"name":"CUSTOM_T","steps":[{"interface":"bios","step":"x","args":{},"priority":1}]}`, 405, 201},
		{78, "GET", "/v1/nodes/n1/history", "", 404, 200},
		{82, "GET", "/v1/shards", "", 404, 200},
		{83, "GET", "/v1/nodes/n1/children", "", 404, 200},
		{84, "POST", "/v1/continue_inspection", `{"inventory":{"interfaces":[{"mac_address":"52:54:00:00:00:98"}]}}`, 404, 404},
		{92, "GET", "/v1/runbooks", "", 404, 200},
		{92, "POST", "/v1/runbooks", `{"name":"CUSTOM_R","steps":[{"interface":"bios","step":"x","args":{},"order":1}]}`, 405, 201},
		{96, "GET", "/v1/inspection_rules", "", 404, 200},
		{96, "POST", "/v1/inspection_rules", `{"actions":[{"op":"fail","args":{"msg":"x"}}]}`, 405, 201},
		{96, "DELETE", "/v1/inspection_rules", "", 405, 204},
		{112, "GET", "/v1/runbooks/CUSTOM_R/traits", "", 404, 200},
		{112, "PUT", "/v1/runbooks/CUSTOM_R/traits/CUSTOM_X", "", 405, 204},
		// Filters.
		{9, "GET", "/v1/nodes?provision_state=active", "", 406, 200},
		{16, "GET", "/v1/nodes?driver=fake-hardware", "", 406, 200},
		{46, "GET", "/v1/nodes?conductor_group=x", "", 406, 200},
		{60, "GET", "/v1/allocations?owner=x", "", 406, 200},
		{82, "GET", "/v1/nodes?shard=a,b", "", 406, 200},
		{82, "GET", "/v1/nodes?sharded=true", "", 406, 200},
		{83, "GET", "/v1/nodes?parent_node=n1", "", 406, 200},
		{83, "GET", "/v1/nodes?include_children=true", "", 406, 200},
		{104, "GET", "/v1/nodes?instance_name=x", "", 406, 200},
		// Fields that are set.
		{60, "POST", "/v1/allocations", `{"resource_class":"none","owner":"o"}`, 406, 201},
		{58, "POST", "/v1/allocations", `{"node":"nope"}`, 400, 400},
		{82, "POST", "/v1/nodes", `{"driver":"fake-hardware","shard":"a"}`, 406, 201},
		{83, "POST", "/v1/nodes", `{"driver":"fake-hardware","parent_node":"n1"}`, 406, 201},
		{86, "POST", "/v1/nodes", `{"driver":"fake-hardware","firmware_interface":"no-firmware"}`, 406, 201},
		{95, "POST", "/v1/nodes", `{"driver":"fake-hardware","disable_power_off":true}`, 406, 201},
		{104, "POST", "/v1/nodes", `{"driver":"fake-hardware","instance_name":"i"}`, 406, 201},
		{83, "PATCH", "/v1/nodes/n1", `[{"op":"remove","path":"/parent_node"}]`, 406, 200},
		{95, "PATCH", "/v1/nodes/n1", `[{"op":"add","path":"/disable_power_off","value":true}]`, 406, 200},
		{104, "PATCH", "/v1/nodes/n1", `[{"op":"add","path":"/instance_name","value":"x"}]`, 406, 200},
		{112, "PATCH", "/v1/runbooks/CUSTOM_R", `[{"op":"add","path":"/description","value":"x"}]`, 406, 200},
		{112, "POST", "/v1/runbooks", `{"name":"any-name","steps":[{"interface":"bios","step":"x","args":{},"order":1}]}`, 400, 201},
		// Fields that are asked for.
		{60, "GET", "/v1/allocations?fields=owner", "", 406, 200},
		{112, "GET", "/v1/runbooks?fields=traits", "", 406, 200},
		{113, "GET", "/v1/nodes/n1/history?fields=project", "", 406, 200},
		{115, "GET", "/v1/nodes/n1/history?fields=state,duration_seconds", "", 406, 200},
	} {
		older, own := fmt.Sprintf("1.%d", tt.since-1), fmt.Sprintf("1.%d", tt.since)
		if a := w.ask(tt.method, tt.path, older, tt.body); a.Status != tt.before {
			t.Errorf("%s %s at %s: %d, want %d: %s", tt.method, tt.path, older, a.Status, tt.before, a.Body)
		}
		for _, version := range []string{own, "latest"} {
			if version == "latest" && tt.method == "POST" {
				continue // it was made just now
			}
			if a := w.ask(tt.method, tt.path, version, tt.body); a.Status != tt.after {
				t.Errorf("%s %s at %s: %d, want %d: %s", tt.method, tt.path, version, a.Status, tt.after, a.Body)
			}
		}
	}
}

// TestFieldsWithVerbs is the same for what comes with a verb.
func TestFieldsWithVerbs(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.Traits = []string{"CUSTOM_R"} })
	w.want(201, "POST", "/v1/runbooks", "1.92", `{"name":"CUSTOM_R","steps":[{"interface":"deploy","step":"b","args":{"password":"hush"},"order":2},{"interface":"deploy","step":"a","order":1}]}`)
	const step = `[{"interface":"deploy","step":"x"}]`
	for _, tt := range []struct {
		since         int
		state         metal.State
		body          string
		before, after int
	}{
		{15, metal.Manageable, `{"target":"clean","clean_steps":` + step + `}`, 406, 202},
		{35, metal.Active, `{"target":"rebuild","configdrive":"http://x"}`, 400, 202},
		{56, metal.Available, `{"target":"active","configdrive":{"meta_data":{}}}`, 400, 202},
		{59, metal.Available, `{"target":"active","configdrive":{"vendor_data":{}}}`, 400, 202},
		{69, metal.Available, `{"target":"active","deploy_steps":[{"interface":"deploy","step":"x","priority":1}]}`, 406, 202},
		{70, metal.Manageable, `{"target":"clean","clean_steps":` + step + `,"disable_ramdisk":true}`, 406, 202},
		{73, metal.Available, `{"target":"deploy"}`, 406, 202},
		{85, metal.CleanHold, `{"target":"unhold"}`, 406, 202},
		{87, metal.Active, `{"target":"service","service_steps":` + step + `}`, 406, 202},
		{92, metal.Manageable, `{"target":"clean","runbook":"CUSTOM_R"}`, 406, 202},
		{92, metal.Active, `{"target":"service","runbook":"CUSTOM_R"}`, 406, 202},
		{108, metal.Active, `{"target":"service","service_steps":` + step + `,"disable_ramdisk":true}`, 406, 202},
		{110, metal.DeployWait, `{"target":"abort"}`, 406, 202},
	} {
		for version, want := range map[int]int{tt.since - 1: tt.before, tt.since: tt.after} {
			w.free()
			w.edit(nodeID, func(n *metal.Node) { n.ProvisionState, n.TargetProvision = tt.state, tt.state.Info().Target })
			a := w.ask("PUT", "/v1/nodes/n1/states/provision", fmt.Sprintf("1.%d", version), tt.body)
			if a.Status != want {
				t.Errorf("%s at 1.%d: %d, want %d: %s", tt.body, version, a.Status, want, a.Body)
			}
		}
	}
	w.free()
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Manageable })
	w.refuse([]refusal{
		{"PUT", "/v1/nodes/n1/states/provision", "1.92", `{"target":"clean","runbook":"CUSTOM_R","clean_steps":` + step + `}`, 400, "not both"},
		{"PUT", "/v1/nodes/n1/states/provision", "1.112", `{"target":"clean","runbook":"CUSTOM_R"}`, 400, "has no traits"},
		{"PUT", "/v1/nodes/n1/states/provision", "1.92", `{"target":"clean","runbook":"nope"}`, 404, "could not be found"},
		{"PUT", "/v1/nodes/n1/states/provision", "1.92", `{"target":"provide","runbook":"CUSTOM_R"}`, 400, "only valid when"},
		{"PUT", "/v1/nodes/n1/states/provision", "1.92", `{"target":"clean"}`, 400, `"clean_steps" is required`},
	})
	w.want(202, "PUT", "/v1/nodes/n1/states/provision", "1.92", `{"target":"clean","runbook":"CUSTOM_R"}`)
	doc, err := w.store.Document(t.Context(), nil, nodeID, metal.Steps)
	if want := `[{"interface":"deploy","step":"a","order":1},{"interface":"deploy","step":"b","args":{"password":"hush"},"order":2}]`; err != nil || string(doc.Body) != want {
		t.Errorf("steps: %s %v, want %s", doc.Body, err, want)
	}
	w.free()
}

func TestRequestIDByVersion(t *testing.T) {
	w := newWorld(t)
	for version, want := range map[string]bool{"1.106": false, "1.107": true} {
		for _, path := range []string{"/v1/nodes", "/v1/nodes/nope"} {
			h := w.ask("GET", path, version, "").Header
			if got := h.Get("X-Openstack-Request-Id"); (got != "") != want || want && got != h.Get("Openstack-Request-Id") {
				t.Errorf("%s at %s: %v", path, version, h)
			}
		}
	}
}

func TestJSONSuffix(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	w.node(func(n *metal.Node) { n.ID, n.Name = strings.Replace(nodeID, "1", "2", 1), "odd.json" })
	for _, tt := range []struct {
		path, version string
		status        int
		name          string
	}{
		{"/v1/nodes/n1.json", "1.90", 200, "n1"}, {"/v1/nodes/" + nodeID + ".json", "1.90", 200, "n1"}, {"/v1/nodes/odd.json", "1.90", 200, "odd.json"},
		{"/v1/nodes/n1.json", "1.91", 404, ""}, {"/v1/nodes/" + nodeID + ".json", "1.91", 404, ""}, {"/v1/nodes/odd.json", "1.91", 200, "odd.json"},
		{"/v1/nodes/no.json", "1.90", 404, ""}, {"/v1/nodes.json", "1.90", 200, ""}, {"/v1/nodes.json", "1.91", 404, ""}, {"/v1/nodes/n1/states.json", "1.90", 200, ""},
	} {
		a := w.ask("GET", tt.path, tt.version, "")
		if a.Status != tt.status || tt.name != "" && a.Object(t)["name"] != tt.name {
			t.Errorf("%s at %s: %d %s", tt.path, tt.version, a.Status, a.Body)
		}
	}
}

func TestRootListsWhatThereIs(t *testing.T) {
	w := newWorld(t)
	for name, since := range map[string]int{
		"nodes": 1, "ports": 1, "chassis": 1, "drivers": 1, "lookup": 22, "heartbeat": 22, "portgroups": 23, "volume": 32, "conductors": 49, "allocations": 52,
		"events": 54, "deploy_templates": 55, "shards": 82, "continue_inspection": 84, "runbooks": 92, "inspection_rules": 96,
	} {
		for v := max(since-1, 1); v <= since; v++ {
			links, ok := w.want(200, "GET", "/v1", fmt.Sprintf("1.%d", v), "").Object(t)[name].([]any)
			if ok != (v >= since) || ok && links[0].(map[string]any)["href"] != "http://salvor.example/v1/"+name+"/" {
				t.Errorf("%s at 1.%d: %v", name, v, links)
			}
		}
	}
	if ironic.MaxVersion != 115 {
		t.Errorf("the newest version is %d", ironic.MaxVersion)
	}
}

func TestFamilies(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	child := w.want(201, "POST", "/v1/nodes", "1.83", `{"driver":"fake-hardware","name":"c1","parent_node":"n1"}`).Object(t)
	if child["parent_node"] != nodeID {
		t.Errorf("the parent's name became %v", child["parent_node"])
	}
	names := func(query, version string) string {
		var out []string
		for _, e := range w.want(200, "GET", "/v1/nodes"+query, version, "").Object(t)["nodes"].([]any) {
			out = append(out, e.(map[string]any)["name"].(string))
		}
		return strings.Join(out, " ")
	}
	for _, tt := range []struct{ query, version, want string }{
		{"", "1.82", "n1"}, {"/detail", "1.115", "n1"}, {"?include_children=true", "1.83", "n1 c1"}, {"?include_children=false", "1.83", "n1"},
		{"?parent_node=n1", "1.83", "c1"}, {"?parent_node=" + nodeID, "1.83", "c1"}, {"?parent_node=c1", "1.83", ""}, {"?parent_node=nope", "1.83", ""},
	} {
		if got := names(tt.query, tt.version); got != tt.want {
			t.Errorf("%q at %s: %q, want %q", tt.query, tt.version, got, tt.want)
		}
	}
	got := w.want(200, "GET", "/v1/nodes/n1/children", "1.83", "").Object(t)
	if list := got["children"].([]any); len(list) != 1 || list[0] != child["uuid"] {
		t.Errorf("children: %v", got)
	}
	w.refuse([]refusal{
		{"PATCH", "/v1/nodes/n1", "1.83", `[{"op":"add","path":"/parent_node","value":"nope"}]`, 400, "Requested value was invalid"},
		{"PATCH", "/v1/nodes/n1", "1.83", `[{"op":"add","path":"/parent_node","value":"n1"}]`, 400, "Requested value was invalid"},
		{"POST", "/v1/nodes", "1.83", `{"driver":"fake-hardware","owner":"o","parent_node":"n1"}`, 400, "Requested value was invalid"},
	})
	for _, shard := range []string{"a", "b"} {
		w.want(201, "POST", "/v1/nodes", "1.82", `{"driver":"fake-hardware","name":"s`+shard+`","shard":"`+shard+`"}`)
	}
	if got := names("?shard=a,b", "1.82"); got != "sa sb" {
		t.Errorf("shards: %q", got)
	}
	if got := w.want(200, "GET", "/v1/shards", "1.82", "").Body; !strings.Contains(got, `{"count":2,"name":"None"}`) || !strings.Contains(got, `{"count":1,"name":"a"}`) {
		t.Errorf("shards: %s", got)
	}
}
