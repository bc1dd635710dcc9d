package ironic_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDeployTemplates(t *testing.T) {
	w := newWorld(t)
	made := w.want(201, "POST", "/v1/deploy_templates", "1.55", `{"name":"CUSTOM_T","steps":[{"interface":"bios","step":"apply_configuration","args":{"settings":[{"name":"a","value":"b"}],"password":"hush"},"priority":"150"}],"extra":{"k":1}}`)
	got := made.Object(t)
	uuid := got["uuid"].(string)
	want := map[string]any{
		"uuid": uuid, "name": "CUSTOM_T", "extra": map[string]any{"k": 1.0}, "created_at": "2026-03-04T05:06:07+00:00", "updated_at": nil, "links": got["links"],
		"steps": []any{map[string]any{"interface": "bios", "step": "apply_configuration", "priority": 150.0, "args": map[string]any{"settings": []any{map[string]any{"name": "a", "value": "b"}}, "password": "******"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" || made.Header.Get("Location") != "http://salvor.example/v1/deploy_templates/"+uuid || len(got["links"].([]any)) != 2 {
		t.Errorf("template (-want +got):\n%s\nLocation %s", diff, made.Header.Get("Location"))
	}
	list := w.want(200, "GET", "/v1/deploy_templates", "1.55", "").Object(t)["deploy_templates"].([]any)[0].(map[string]any)
	if len(list) != 3 || list["name"] != "CUSTOM_T" {
		t.Errorf("list: %v", list)
	}
	if got := w.want(200, "GET", "/v1/deploy_templates?detail=true", "1.55", "").Body; !strings.Contains(got, `"priority":150`) || strings.Contains(got, "hush") {
		t.Errorf("detail: %s", got)
	}
	w.want(200, "PATCH", "/v1/deploy_templates/CUSTOM_T", "1.55", `[{"op":"replace","path":"/steps/0/priority","value":5},{"op":"add","path":"/steps/1","value":{"interface":"raid","step":"x","args":{},"priority":1}},
		{"op":"replace","path":"/steps/0/args","value":{"settings":[{"name":"a","value":"b"}],"password":"******"}},{"op":"replace","path":"/name","value":"CUSTOM_U"}]`)
	stored, err := w.config.DeployTemplates.Get(t.Context(), uuid)
	if err != nil || stored.Name != "CUSTOM_U" || len(stored.Steps) != 2 || stored.Steps[0].Args["password"] != "hush" || stored.Steps[0].Priority != 5 {
		t.Errorf("patched: %+v %v", stored, err)
	}
	step := func(s string) string { return `{"name":"CUSTOM_V","steps":[` + s + `]}` }
	post := func(body, message string) refusal {
		return refusal{"POST", "/v1/deploy_templates", "1.55", body, 400, message}
	}
	w.refuse([]refusal{
		post(`{"name":"invalid-name","steps":[{"interface":"bios","step":"x","args":{},"priority":1}]}`, "Invalid trait"), post(`{"steps":[]}`, "name"), post(`{"name":"CUSTOM_V"}`, "steps"),
		post(step(""), "at least one"), post(step(`{"interface":"foo","step":"x","args":{},"priority":1}`), "interface"), post(step(`{"interface":"bios","step":"x","args":{},"priority":-1}`), "priority"),
		post(step(`{"interface":"bios","step":"x","priority":1}`), "args"), post(step(`{"interface":"bios","step":"x","args":{},"priority":1,"foo":1}`), "foo"),
		post(step(`{"interface":"bios","step":"x","args":{},"priority":1},{"interface":"bios","step":"x","args":{},"priority":2}`), "Duplicate"),
		post(step(`{"interface":"bios","step":"x","args":{"password":"******"},"priority":1}`), "no secret is stored"),
		{"POST", "/v1/deploy_templates", "1.55", `{"name":"CUSTOM_U","steps":[{"interface":"bios","step":"x","args":{},"priority":1}]}`, 409, "already exists"},
		{"PATCH", "/v1/deploy_templates/CUSTOM_U", "1.55", `[{"op":"remove","path":"/name"}]`, 400, "name"}, {"PATCH", "/v1/deploy_templates/CUSTOM_U", "1.55", `[{"op":"remove","path":"/steps"}]`, 400, "steps"},
		{"PATCH", "/v1/deploy_templates/CUSTOM_U", "1.55", `[{"op":"replace","path":"/uuid","value":"` + nodeID + `"}]`, 400, "Cannot patch /uuid"},
		{"GET", "/v1/deploy_templates?sort_key=steps", "1.55", "", 400, "sort"}, {"GET", "/v1/deploy_templates/nope", "1.55", "", 404, "nope"},
	})
	w.want(204, "DELETE", "/v1/deploy_templates/CUSTOM_U", "1.55", "")
	w.want(404, "GET", "/v1/deploy_templates/"+uuid, "1.55", "")
}

func TestRunbooks(t *testing.T) {
	w := newWorld(t)
	const steps = `"steps":[{"interface":"deploy","step":"erase","args":{"token":"hush"},"order":1}]`
	got := w.want(201, "POST", "/v1/runbooks", "1.112", `{"name":"wipe-all",`+steps+`,"description":"d","disable_ramdisk":true,"owner":"p"}`).Object(t)
	want := map[string]any{
		"uuid": got["uuid"], "name": "wipe-all", "description": "d", "extra": map[string]any{}, "public": false, "owner": "p", "disable_ramdisk": true, "traits": []any{},
		"created_at": "2026-03-04T05:06:07+00:00", "updated_at": nil, "links": got["links"],
		"steps": []any{map[string]any{"interface": "deploy", "step": "erase", "order": 1.0, "args": map[string]any{"token": "******"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runbook (-want +got):\n%s", diff)
	}
	if old := w.want(200, "GET", "/v1/runbooks/wipe-all", "1.111", "").Object(t); old["traits"] != nil || old["description"] != nil {
		t.Errorf("at 1.111: %v", old)
	}
	w.want(204, "PUT", "/v1/runbooks/wipe-all/traits", "1.112", `{"traits":["CUSTOM_B","CUSTOM_A","CUSTOM_A"]}`)
	w.want(204, "PUT", "/v1/runbooks/wipe-all/traits/CUSTOM_C", "1.112", "")
	w.want(204, "DELETE", "/v1/runbooks/wipe-all/traits/CUSTOM_B", "1.112", "")
	w.want(204, "DELETE", "/v1/runbooks/wipe-all/traits/CUSTOM_NONE", "1.112", "")
	if got := w.want(200, "GET", "/v1/runbooks/wipe-all/traits", "1.112", "").Body; got != `{"traits":["CUSTOM_A","CUSTOM_C"]}` {
		t.Errorf("traits: %s", got)
	}
	w.want(204, "DELETE", "/v1/runbooks/wipe-all/traits", "1.112", "")
	// The owner goes when a runbook becomes everybody's.
	if got := w.want(200, "PATCH", "/v1/runbooks/wipe-all", "1.92", `[{"op":"replace","path":"/public","value":true}]`).Object(t); got["public"] != true || got["owner"] != nil {
		t.Errorf("public: %v", got)
	}
	if got := w.want(200, "PATCH", "/v1/runbooks/wipe-all", "1.92", `[{"op":"replace","path":"/public","value":false},{"op":"add","path":"/owner","value":"q"}]`).Object(t); got["owner"] != "q" {
		t.Errorf("owned: %v", got)
	}
	post := func(version, body, message string) refusal {
		return refusal{"POST", "/v1/runbooks", version, body, 400, message}
	}
	w.refuse([]refusal{
		post("1.111", `{"name":"any",`+steps+`}`, "Invalid trait"), post("1.112", `{"name":"a b",`+steps+`}`, "name"), post("1.112", `{"name":"`+nodeID+`",`+steps+`}`, "UUID"),
		post("1.112", `{"name":"x",`+steps+`,"traits":["CUSTOM_A"]}`, "traits"), post("1.112", `{"name":"x",`+steps+`,"public":true,"owner":"p"}`, "cannot be an owner"),
		post("1.112", `{"name":"x","steps":[{"interface":"deploy","step":"x"}]}`, "order"), post("1.112", `{"name":"x","steps":[]}`, "at least one"),
		post("1.112", `{"name":"x",`+steps+`,"description":"`+strings.Repeat("d", 256)+`"}`, "255"),
		{"POST", "/v1/runbooks", "1.112", `{"name":"wipe-all",` + steps + `}`, 409, "already exists"},
		{"PATCH", "/v1/runbooks/wipe-all", "1.92", `[{"op":"add","path":"/public","value":true},{"op":"add","path":"/owner","value":"x"}]`, 400, "cannot be an owner"},
		{"PATCH", "/v1/runbooks/wipe-all", "1.112", `[{"op":"add","path":"/traits","value":[]}]`, 400, "Cannot patch /traits"},
		{"PUT", "/v1/runbooks/wipe-all/traits", "1.112", `{"traits":["lower"]}`, 400, "Invalid trait"}, {"PUT", "/v1/runbooks/wipe-all/traits/lower", "1.112", "", 400, "Invalid trait"},
		{"GET", "/v1/runbooks/nope/traits", "1.112", "", 404, "nope"},
	})
	w.want(204, "DELETE", "/v1/runbooks/wipe-all", "1.92", "")
}

func TestInspectionRules(t *testing.T) {
	w := newWorld(t)
	const body = `{"description":"d","priority":7,"conditions":[{"op":"!eq","args":{"values":["{node.driver}","ipmi"]}}],"actions":[{"op":"set-attribute","args":{"path":"extra/k","value":"v"}}]}`
	made := w.want(201, "POST", "/v1/inspection_rules", "1.96", body)
	got := made.Object(t)
	want := map[string]any{
		"uuid": got["uuid"], "description": "d", "priority": 7.0, "phase": "main", "sensitive": false, "created_at": "2026-03-04T05:06:07+00:00", "updated_at": nil, "links": got["links"],
		"conditions": []any{map[string]any{"op": "!eq", "args": map[string]any{"values": []any{"{node.driver}", "ipmi"}}}},
		"actions":    []any{map[string]any{"op": "set-attribute", "args": map[string]any{"path": "extra/k", "value": "v"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" || made.Header.Get("Location") != "http://salvor.example/v1/inspection_rules/"+got["uuid"].(string) {
		t.Errorf("rule (-want +got):\n%s", diff)
	}
	path := "/v1/inspection_rules/" + got["uuid"].(string)
	list := w.want(200, "GET", "/v1/inspection_rules?phase=main", "1.96", "").Object(t)["inspection_rules"].([]any)[0].(map[string]any)
	if len(list) != 5 || list["priority"] != 7.0 {
		t.Errorf("list: %v", list)
	}
	if got := w.want(200, "PATCH", path, "1.96", `[{"op":"replace","path":"/priority","value":9},{"op":"add","path":"/actions/-","value":{"op":"log","args":["x"]}},{"op":"remove","path":"/conditions"}]`).Object(t); got["priority"] != 9.0 || len(got["actions"].([]any)) != 2 || len(got["conditions"].([]any)) != 0 {
		t.Errorf("patched: %v", got)
	}
	if got := w.want(200, "PATCH", path, "1.96", `[{"op":"replace","path":"/sensitive","value":true}]`).Object(t); got["actions"] != nil || got["conditions"] != nil {
		t.Errorf("sensitive: %v", got)
	}
	if got := w.want(200, "GET", "/v1/inspection_rules?detail=true", "1.96", "").Body; !strings.Contains(got, `"actions":null`) {
		t.Errorf("sensitive: %s", got)
	}
	post := func(body, message string) refusal {
		return refusal{"POST", "/v1/inspection_rules", "1.96", body, 400, message}
	}
	w.refuse([]refusal{
		{"PATCH", path, "1.96", `[{"op":"replace","path":"/sensitive","value":false}]`, 400, "cannot have the sensitive flag unset"},
		{"PATCH", path, "1.96", `[{"op":"remove","path":"/actions"}]`, 400, "actions"},
		{"PATCH", path, "1.96", `[{"op":"add","path":"/actions/0","value":{"op":"bogus","args":[]}}]`, 400, "unsupported op"},
		post(`{}`, "actions"), post(`{"actions":[]}`, "at least one action"), post(`{"actions":[{"op":"fail","args":["x"]}],"phase":"other"}`, "Invalid phase"),
		post(`{"actions":[{"op":"fail","args":["x"]}],"priority":-1}`, "priority"), post(`{"actions":[{"op":"fail","args":["x"]}],"priority":10000}`, "priority"),
		post(`{"actions":[{"op":"fail","args":["x"]}],"conditions":{}}`, "conditions"), post(`{"actions":[{"op":"fail","args":["x"]}],"bogus":1}`, "bogus"),
		post(`{"actions":[{"op":"set-attribute","args":{"path":"uuid","value":1}}]}`, "cannot change the attribute"),
		{"GET", "/v1/inspection_rules/nope", "1.96", "", 404, ""}, {"GET", "/v1/inspection_rules?sort_key=actions", "1.96", "", 400, "sort"},
	})
	w.want(201, "POST", "/v1/inspection_rules", "1.96", body)
	w.want(204, "DELETE", path, "1.96", "")
	w.want(204, "DELETE", "/v1/inspection_rules", "1.96", "")
	if got := w.want(200, "GET", "/v1/inspection_rules", "1.96", "").Body; got != `{"inspection_rules":[]}` {
		t.Errorf("after all were removed: %s", got)
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	event := func(more string) string {
		return `{"events":[{"event":"network.bind_port","port_id":"` + nodeID + `","mac_address":"52:54:00:00:00:01","status":"ACTIVE"` + more + `}]}`
	}
	w.want(204, "POST", "/v1/events", "1.54", event(`,"device_id":null,"binding:host_id":"`+nodeID+`","binding:vnic_type":"baremetal"`))
	post := func(body, message string) refusal { return refusal{"POST", "/v1/events", "1.54", body, 400, message} }
	w.refuse([]refusal{
		post(`{}`, "at least one"), post(`{"events":[]}`, "at least one"), post(`{"events":[1]}`, "object"), post(`{"events":[{}]}`, "event, mac_address, port_id, status"),
		post(event(`,"bogus":1`), "bogus"), post(event(`,"device_id":"x"`), "device_id"), post(event(`,"status":1`), "status"), post(event(`,"event":"network.other"`), "event"),
		post(`{"events":[],"x":1}`, "x"), {"GET", "/v1/events", "1.54", "", 405, ""},
	})
}
