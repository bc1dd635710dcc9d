package ironic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"salvor/access"
	"salvor/api/ironic"
	"salvor/metal"
	"salvor/test/must"
)

const (
	otherID     = "22222222-2222-4333-8444-555555555555"
	connectorID = "33333333-2222-4333-8444-555555555555"
	targetID    = "44444444-2222-4333-8444-555555555555"
	ghostID     = "99999999-2222-4333-8444-555555555555"
)

// volumes adds two nodes that are off, and a connector and a target of the first.
func (w *world) volumes() {
	w.Helper()
	w.node(func(n *metal.Node) { n.PowerState = metal.PowerOff })
	w.node(func(n *metal.Node) { n.ID, n.Name, n.PowerState = otherID, "n2", metal.PowerOff })
	w.want(201, "POST", "/v1/volume/connectors", "1.32", `{"uuid":"`+connectorID+`","node_uuid":"`+nodeID+`","type":"iqn","connector_id":"iqn.2026-01.org.salvor:n1","extra":{"a":1}}`)
	w.want(201, "POST", "/v1/volume/targets", "1.32", `{"uuid":"`+targetID+`","node_uuid":"`+nodeID+`","volume_type":"iscsi","boot_index":0,"volume_id":"vol-1",
		"properties":{"auth_method":"CHAP","auth_username":"hush","auth_password":"hush","target_portal":"192.0.2.1:3260","target_lun":1}}`)
}

func linksOf(path string) string {
	return `[{"href":"http://salvor.example/v1/` + path + `","rel":"self"},{"href":"http://salvor.example/` + path + `","rel":"bookmark"}]`
}

// TestVolumeAnswers pins whole answers, byte for byte.
func TestVolumeAnswers(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	const times = `"created_at":"2026-03-04T05:06:07+00:00","updated_at":null`
	connector := `{"uuid":"` + connectorID + `","node_uuid":"` + nodeID + `","type":"iqn","connector_id":"iqn.2026-01.org.salvor:n1","extra":{"a":1},` + times + `,"links":` + linksOf("volume/connectors/"+connectorID) + `}`
	brief := `{"uuid":"` + connectorID + `","node_uuid":"` + nodeID + `","type":"iqn","connector_id":"iqn.2026-01.org.salvor:n1","links":` + linksOf("volume/connectors/"+connectorID) + `}`
	target := `{"uuid":"` + targetID + `","node_uuid":"` + nodeID + `","volume_type":"iscsi","boot_index":0,"volume_id":"vol-1","properties":{"auth_method":"CHAP","auth_password":"******",` +
		`"auth_username":"******","target_lun":1,"target_portal":"192.0.2.1:3260"},"extra":{},` + times + `,"links":` + linksOf("volume/targets/"+targetID) + `}`
	briefTarget := `{"uuid":"` + targetID + `","node_uuid":"` + nodeID + `","volume_type":"iscsi","boot_index":0,"volume_id":"vol-1","links":` + linksOf("volume/targets/"+targetID) + `}`
	for path, want := range map[string]string{
		"/v1/volume":                                                      `{"links":` + linksOf("volume/") + `,"connectors":` + linksOf("volume/connectors") + `,"targets":` + linksOf("volume/targets") + `}`,
		"/v1/nodes/n1/volume":                                             `{"links":` + linksOf("nodes/"+nodeID+"/volume/") + `,"connectors":` + linksOf("nodes/"+nodeID+"/volume/connectors") + `,"targets":` + linksOf("nodes/"+nodeID+"/volume/targets") + `}`,
		"/v1/volume/connectors":                                           `{"connectors":[` + brief + `]}`,
		"/v1/nodes/n1/volume/connectors":                                  `{"connectors":[` + brief + `]}`,
		"/v1/nodes/n2/volume/connectors":                                  `{"connectors":[]}`,
		"/v1/volume/connectors/detail":                                    `{"connectors":[` + connector + `]}`,
		"/v1/volume/connectors/":                                          `{"connectors":[` + brief + `]}`,
		"/v1/volume/connectors/" + connectorID:                            connector,
		"/v1/volume/connectors?detail=true":                               `{"connectors":[` + connector + `]}`,
		"/v1/nodes/n1/volume/connectors/detail":                           `{"connectors":[` + connector + `]}`,
		"/v1/volume/targets":                                              `{"targets":[` + briefTarget + `]}`,
		"/v1/volume/targets/detail":                                       `{"targets":[` + target + `]}`,
		"/v1/nodes/" + nodeID + "/volume/targets?detail=True":             `{"targets":[` + target + `]}`,
		"/v1/volume/targets/" + targetID:                                  target,
		"/v1/volume/targets/" + strings.ToUpper(targetID):                 target,
		"/v1/volume/targets/" + targetID + "?fields=boot_index,volume_id": `{"boot_index":0,"volume_id":"vol-1","links":` + linksOf("volume/targets/"+targetID) + `}`,
	} {
		if diff := cmp.Diff(want, w.want(200, "GET", path, "1.32", "").Body); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	node := w.want(200, "GET", "/v1/nodes/n1", "1.32", "").Object(t)
	if b, _ := json.Marshal(node["volume"]); !strings.Contains(string(b), `/v1/nodes/`+nodeID+`/volume"`) {
		t.Errorf("links of the node: %s", b)
	}
	if old := w.want(200, "GET", "/v1/nodes/n1", "1.31", "").Object(t); old["volume"] != nil {
		t.Errorf("links of the node at 1.31: %v", old["volume"])
	}
}

func TestVolumeFilters(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	for i := range 3 {
		w.want(201, "POST", "/v1/volume/connectors", "1.82", fmt.Sprintf(`{"node_uuid":%q,"type":"mac","connector_id":"52:54:00:00:00:0%d"}`, otherID, i))
		w.want(201, "POST", "/v1/volume/targets", "1.82", fmt.Sprintf(`{"node_uuid":%q,"volume_type":"fibre_channel","boot_index":%d,"volume_id":"vol-%d"}`, otherID, i, i))
	}
	for query, want := range map[string]int{
		"connectors": 4, "connectors?node=n2": 3, "connectors?node=" + nodeID: 1, "connectors?type=mac": 3, "connectors?type=weird": 0, "connectors?connector_id=52:54:00:00:00:01": 1,
		"connectors?type=iqn&connector_id=52:54:00:00:00:01": 0, "connectors/detail?node=n2&type=mac": 3, "connectors?limit=2": 2, "targets": 4, "targets?boot_index=0": 2, "targets?boot_index=0&node=n2": 1,
		"targets?boot_index=-1": 0, "targets?volume_id=vol-1": 2, "targets?volume_type=fibre_channel": 3, "targets/detail?volume_type=iscsi": 1, "targets?fields=uuid&sort_key=boot_index&sort_dir=desc": 4,
	} {
		o := w.want(200, "GET", "/v1/volume/"+query, "1.32", "").Object(t)
		name, _, _ := strings.Cut(strings.ReplaceAll(query, "/", "?"), "?")
		if got := len(o[name].([]any)); got != want {
			t.Errorf("%s: %d of %d", query, got, want)
		}
	}
	var seen []any
	for path := "/v1/volume/targets?limit=1&sort_key=boot_index&sort_dir=desc&volume_type=fibre_channel"; path != ""; {
		o := w.want(200, "GET", path, "1.32", "").Object(t)
		for _, e := range o["targets"].([]any) {
			seen = append(seen, e.(map[string]any)["boot_index"])
		}
		next, _ := o["next"].(string)
		path = strings.TrimPrefix(next, "http://salvor.example")
	}
	if diff := cmp.Diff([]any{2.0, 1.0, 0.0}, seen); diff != "" {
		t.Error(diff)
	}
}

func TestBadVolumes(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	post := func(kind, body string, status int, message string) refusal {
		return refusal{"POST", "/v1/volume/" + kind, "1.32", strings.ReplaceAll(body, "NODE", `"node_uuid":"`+nodeID+`"`), status, message}
	}
	get := func(path string, status int, message string) refusal {
		return refusal{"GET", "/v1/" + path, "1.32", "", status, message}
	}
	patch := func(path, op string, status int, message string) refusal {
		return refusal{"PATCH", "/v1/volume/" + path, "1.32", op, status, message}
	}
	const c, tg = "connectors/" + connectorID, "targets/" + targetID
	deep := `{NODE,"type":"iqn","connector_id":"x","extra":` + strings.Repeat(`{"a":`, 30) + "1" + strings.Repeat("}", 31)
	rows := []refusal{
		post("connectors", ``, 400, "JSON object"), post("connectors", `[]`, 400, "JSON object"), post("connectors", `{}`, 400, "Missing mandatory field"), post("connectors", `{NODE}`, 400, "type"),
		post("connectors", `{NODE,"type":"iqn"}`, 400, "connector_id"), post("connectors", `{NODE,"connector_id":"x"}`, 400, "type"), post("connectors", `{"type":"iqn","connector_id":"x"}`, 400, "node_uuid"),
		post("connectors", `{NODE,"type":"","connector_id":"x"}`, 400, "type"), post("connectors", `{NODE,"type":"iqn","connector_id":""}`, 400, "connector_id"), post("connectors", `{NODE,"type":7,"connector_id":"x"}`, 400, "string"),
		post("connectors", `{NODE,"type":"`+strings.Repeat("t", 33)+`","connector_id":"x"}`, 400, "32"), post("connectors", `{NODE,"type":"iqn","connector_id":"`+strings.Repeat("x", 256)+`"}`, 400, "255"),
		post("connectors", `{NODE,"type":"iqn","connector_id":"x","bogus":1}`, 400, "'bogus' was unexpected"), post("connectors", `{NODE,"type":"iqn","connector_id":"x","created_at":"now"}`, 400, "unexpected"),
		post("connectors", `{NODE,"type":"iqn","connector_id":"x","extra":[]}`, 400, "extra"), post("connectors", `{NODE,"type":"iqn","connector_id":"x","uuid":"x"}`, 400, "UUID"),
		post("connectors", `{NODE,"type":"iqn","connector_id":"iqn.2026-01.org.salvor:n1"}`, 409, "A volume connector with type 'iqn' and connector ID 'iqn.2026-01.org.salvor:n1' already exists."),
		post("connectors", `{NODE,"type":"ip","connector_id":"x","uuid":"`+connectorID+`"}`, 409, "UUID"),
		post("connectors", `{"node_uuid":"n1","type":"iqn","connector_id":"x"}`, 400, "Expected a UUID"), post("connectors", `{"node_uuid":null,"type":"iqn","connector_id":"x"}`, 400, "node_uuid"),
		post("connectors", `{"node_uuid":"`+ghostID+`","type":"iqn","connector_id":"x"}`, 400, "Invalid input for field/attribute node_uuid. Value: '"+ghostID+"'."),
		post("connectors", deep, 400, "nested deeper than 25"), post("connectors", strings.Repeat("[", 10_000), 400, "nested deeper"), post("connectors", `{"extra":"`+strings.Repeat("x", 1<<20)+`"}`, 413, "1048576"),
		post("targets", `{}`, 400, "Missing mandatory field"), post("targets", `{NODE,"volume_type":"iscsi","volume_id":"v"}`, 400, "boot_index"), post("targets", `{NODE,"volume_type":"iscsi","boot_index":1}`, 400, "volume_id"),
		post("targets", `{NODE,"volume_id":"v","boot_index":1}`, 400, "volume_type"), post("targets", `{NODE,"volume_type":"iscsi","volume_id":"v","boot_index":"1"}`, 400, "integer"),
		post("targets", `{NODE,"volume_type":"iscsi","volume_id":"v","boot_index":1.5}`, 400, "integer"), post("targets", `{NODE,"volume_type":"iscsi","volume_id":"v","boot_index":99999999999}`, 400, "boot_index"),
		post("targets", `{NODE,"volume_type":"iscsi","volume_id":"v","boot_index":null}`, 400, "boot_index"), post("targets", `{NODE,"volume_type":"iscsi","volume_id":"`+strings.Repeat("v", 37)+`","boot_index":1}`, 400, "36"),
		post("targets", `{NODE,"volume_type":"`+strings.Repeat("t", 65)+`","volume_id":"v","boot_index":1}`, 400, "64"), post("targets", `{NODE,"volume_type":"iscsi","volume_id":"v","boot_index":1,"properties":["hush"]}`, 400, "object"),
		post("targets", `{NODE,"volume_type":"iscsi","volume_id":"v","boot_index":0}`, 409, "A volume target with boot index '0' for the same node already exists."),
		post("targets", `{NODE,"volume_type":"iscsi","volume_id":"v","boot_index":1,"properties":{"auth_password":"******"}}`, 400, "no secret is stored"),
		post("targets", `{NODE,"volume_type":"iscsi","volume_id":"v","boot_index":1,"properties":{"auth_username":"******"}}`, 400, "no secret is stored"),
		get("volume/connectors?bogus=1", 400, "Unexpected arguments: bogus"), get("volume/connectors?sort_key=extra", 400, "sort_key"), get("volume/targets?sort_key=properties", 400, "sort_key"),
		get("volume/connectors?marker="+ghostID, 404, ""), get("volume/connectors?marker=bogus", 404, ""), get("volume/connectors?node=ghost", 404, "ghost"), get("volume/targets?boot_index=x", 400, "boot_index"),
		get("volume/connectors?fields=uuid&detail=true", 400, "detail"), get("volume/connectors?fields=bogus", 400, "bogus"), get("volume/connectors/detail?fields=uuid", 400, "fields"), get("volume/connectors?limit=0", 400, "positive"),
		get("volume/connectors/"+ghostID, 404, "Volume connector "+ghostID), get("volume/targets/"+ghostID, 404, "Volume target "+ghostID), get("volume/targets/x", 400, "Expected a UUID"), get("volume/bogus", 404, ""), get("volume?x=1", 400, "x"),
		get("nodes/n1/volume/connectors/"+connectorID, 400, "Malformed"), get("nodes/n1/volume/targets/"+targetID, 400, "Malformed"), get("nodes/ghost/volume/targets", 404, ""), get("nodes/ghost/volume", 404, ""), get("nodes/n1/volume/connectors?node=n2", 400, "node"),
		{"POST", "/v1/nodes/n1/volume/connectors", "1.32", "{}", 405, "not allowed"}, {"PUT", "/v1/volume/connectors", "1.32", "{}", 405, ""},
		{"DELETE", "/v1/volume/connectors/" + ghostID, "1.32", "", 404, ""},
		patch("connectors/"+ghostID, `[{"op":"add","path":"/extra/a","value":1}]`, 404, ""), patch(c, `{}`, 400, "must be a list"), patch(c, `[{"op":"replace","path":"/uuid","value":"x"}]`, 400, "Cannot patch /uuid. Only the following can be updated: /connector_id, /extra, /node_uuid, /type"),
		patch(tg, `[{"op":"replace","path":"/uuid","value":"x"}]`, 400, "Cannot patch /uuid. Only the following can be updated: /boot_index, /extra, /node_uuid, /properties, /volume_id, /volume_type"),
		patch(c, `[{"op":"remove","path":"/type"}]`, 400, "type"), patch(c, `[{"op":"remove","path":"/connector_id"}]`, 400, "connector_id"), patch(c, `[{"op":"remove","path":"/node_uuid"}]`, 400, "node_uuid"), patch(c, `[{"op":"replace","path":"/type","value":""}]`, 400, "type"),
		patch(tg, `[{"op":"remove","path":"/boot_index"}]`, 400, "boot_index"), patch(tg, `[{"op":"replace","path":"/boot_index","value":null}]`, 400, "boot_index"), patch(tg, `[{"op":"replace","path":"/boot_index","value":"0"}]`, 400, "integer"),
		patch(tg, `[{"op":"remove","path":"/volume_id"}]`, 400, "volume_id"), patch(tg, `[{"op":"remove","path":"/volume_type"}]`, 400, "volume_type"), patch(tg, `[{"op":"replace","path":"/properties","value":7}]`, 400, "object"),
		patch(c, `[{"op":"replace","path":"/node_uuid","value":"n2"}]`, 400, "Expected a UUID"), patch(c, `[{"op":"replace","path":"/node_uuid","value":"`+ghostID+`"}]`, 400, "could not be found"),
		patch(tg, `[{"op":"add","path":"/properties/new_password","value":"******"}]`, 400, "no secret is stored"), patch(c, `[{"op":"remove","path":"/extra/none"}]`, 400, "Couldn't apply"),
		patch(c, `[{"op":"add","path":"/extra/a~1b","value":1}]`, 400, "1.98"), {"PATCH", "/v1/volume/" + c, "1.98", `[{"op":"add","path":"/extra/a~2b","value":1}]`, 400, "~"},
	}
	for _, path := range []string{"volume", "volume/connectors", "volume/targets", "volume/connectors/detail", c2(c), c2(tg), "nodes/n1/volume", "nodes/n1/volume/connectors", "nodes/n1/volume/targets"} {
		rows = append(rows, refusal{"GET", "/v1/" + path, "1.31", "", 404, "1.32"})
	}
	w.refuse(rows)
	if got := w.want(200, "PATCH", "/v1/volume/"+c, "1.98", `[{"op":"add","path":"/extra/a~1b~0c","value":1}]`).Object(t)["extra"].(map[string]any); got["a/b~c"] != 1.0 {
		t.Errorf("escaped key: %v", got)
	}
}

func c2(path string) string { return "volume/" + path }

// TestVolumeGuard: what a machine boots from changes only while it is off.
func TestVolumeGuard(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	const op = `[{"op":"add","path":"/extra/a","value":1}]`
	paths := []string{"/v1/volume/connectors/" + connectorID, "/v1/volume/targets/" + targetID}
	kinds := []string{"volume connector", "volume target"}
	for _, power := range []metal.Power{metal.PowerOn, metal.PowerError, metal.PowerUnknown} {
		w.edit(nodeID, func(n *metal.Node) { n.PowerState = power })
		for i, path := range paths {
			w.refuse([]refusal{
				{"PATCH", path, "1.32", op, 400, `The requested action "` + kinds[i] + ` update" can not be performed on node "` + nodeID + `" while it is in state "`},
				{"DELETE", path, "1.32", "", 400, `The requested action "` + kinds[i] + ` deletion"`},
			})
		}
	}
	w.want(201, "POST", "/v1/volume/targets", "1.32", `{"node_uuid":"`+nodeID+`","volume_type":"iscsi","boot_index":7,"volume_id":"v"}`) // a creation is no change of what runs
	w.edit(nodeID, func(n *metal.Node) { n.PowerState = metal.PowerOff })
	w.edit(otherID, func(n *metal.Node) { n.PowerState = metal.PowerOn })
	w.refuse([]refusal{{"PATCH", paths[0], "1.32", `[{"op":"replace","path":"/node_uuid","value":"` + otherID + `"}]`, 400, otherID}})
	w.lock(nodeID)
	for _, path := range paths {
		w.refuse([]refusal{{"PATCH", path, "1.32", op, 409, "locked"}, {"DELETE", path, "1.32", "", 409, "locked"}})
	}
	w.free()
	w.edit(otherID, func(n *metal.Node) { n.PowerState = metal.PowerOff })
	for i, path := range paths {
		got := w.want(200, "PATCH", path, "1.32", `[{"op":"replace","path":"/node_uuid","value":"`+otherID+`"}]`).Object(t)
		if got["node_uuid"] != otherID {
			t.Errorf("moved: %v", got)
		}
		history := w.want(200, "GET", "/v1/nodes/n2/history", "1.82", "").Body
		if !strings.Contains(history, kinds[i]) {
			t.Errorf("the timeline is silent: %s", history)
		}
	}
	w.edit(otherID, func(n *metal.Node) { n.PowerState = metal.PowerOn })
	for i, state := range []metal.State{metal.Enroll, metal.AdoptFailed} {
		w.edit(otherID, func(n *metal.Node) { n.ProvisionState = state })
		w.refuse([]refusal{{"DELETE", paths[i], "1.82", "", 400, `The requested action "` + kinds[i] + ` deletion"`}})
		w.want(204, "DELETE", paths[i], "1.83", "")
		w.want(404, "GET", paths[i], "1.32", "")
	}
}

func TestStrictConnectors(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	post := func(kind, id string) int {
		b, _ := json.Marshal(map[string]string{"node_uuid": nodeID, "type": kind, "connector_id": id})
		return w.ask("POST", "/v1/volume/connectors", "1.32", string(b)).Status
	}
	if post("weird", "x") != 201 || post("iqn", "no-iqn") != 201 {
		t.Error("a lenient door refuses")
	}
	w.config.Connectors = metal.NewConnectors(w.store, w.nodes, true)
	w.handler = ironic.New(w.config)
	if post("weird", "y") != 400 || post("iqn", "still-no-iqn") != 400 || post("wwpn", "10:00:00:00:c9:2b:5b:01") != 201 {
		t.Error("a strict door takes anything, or nothing")
	}
}

// TestTargetPropertiesByPolicy: a member of the project that owns the node does not learn where its storage is.
func TestTargetPropertiesByPolicy(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	w.edit(nodeID, func(n *metal.Node) { n.Owner = "p1" })
	project := access.Scope{Project: "p1", ProjectName: "one"}
	path := "/v1/volume/targets/" + targetID
	for _, tt := range []struct {
		who   http.Handler
		shown bool
	}{{w.persona(project, "member", "reader"), false}, {w.persona(project, "admin", "manager", "member", "reader"), true}, {w.persona(access.Scope{System: true}, "reader"), true}, {w.handler, true}} {
		for _, at := range []string{path, "/v1/volume/targets/detail", "/v1/volume/targets?fields=properties", "/v1/nodes/n1/volume/targets/detail"} {
			a := ask(tt.who, "GET", at, "1.82", "")
			if a.Status != 200 || strings.Contains(a.Body, "192.0.2.1:3260") != tt.shown || strings.Contains(a.Body, "redacted_contents") == tt.shown {
				t.Errorf("%s: %d %s", at, a.Status, a.Body)
			}
		}
	}
}

// TestValidateTellsOddConnectors: what the endpoint takes, validate holds to its form.
func TestValidateTellsOddConnectors(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	w.edit(nodeID, func(n *metal.Node) { n.Interfaces = map[string]string{"storage": "external"} })
	w.want(204, "DELETE", "/v1/volume/targets/"+targetID, "1.32", "")
	storage := func() map[string]any {
		return w.want(200, "GET", "/v1/nodes/n1/validate", "1.82", "").Object(t)["storage"].(map[string]any)
	}
	if got := storage(); got["result"] != true {
		t.Errorf("a good connector: %v", got)
	}
	odd := w.want(201, "POST", "/v1/volume/connectors", "1.32", `{"node_uuid":"`+nodeID+`","type":"wwpn","connector_id":"none"}`).Object(t)["uuid"].(string)
	if got := storage(); got["result"] != false || !strings.Contains(got["reason"].(string), "World Wide Name") {
		t.Errorf("an odd connector: %v", got)
	}
	w.want(200, "PATCH", "/v1/volume/connectors/"+odd, "1.32", `[{"op":"replace","path":"/type","value":"weird"}]`)
	if got := storage(); got["result"] != false || !strings.Contains(got["reason"].(string), "not known") {
		t.Errorf("an odd type: %v", got)
	}
	w.edit(nodeID, func(n *metal.Node) { n.Interfaces = nil })
	if got := storage(); got["result"] != true {
		t.Errorf("volumes are left alone: %v", got)
	}
}

// TestStorageCinder: a node that comes from Ironic with the storage interface cinder boots from its targets as one with external does.
// What only Cinder could add to a target is missed in words.
func TestStorageCinder(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	w.edit(nodeID, func(n *metal.Node) {
		n.Interfaces, n.Properties = map[string]string{"storage": "cinder"}, metal.Object{"capabilities": "iscsi_boot:true"}
	})
	storage := func() map[string]any {
		return w.want(200, "GET", "/v1/nodes/n1/validate", "1.82", "").Object(t)["storage"].(map[string]any)
	}
	properties := func(text string) {
		w.want(200, "PATCH", "/v1/volume/targets/"+targetID, "1.32", `[{"op":"replace","path":"/properties","value":`+text+`}]`)
	}
	properties(`{}`)
	if got := storage(); got["result"] != false || !strings.Contains(got["reason"].(string), "salvor does not ask Cinder") {
		t.Errorf("a target that only names a volume: %v", got)
	}
	// What Nova copies from Cinder's connection_info.
	properties(`{"target_portal":"192.0.2.1:3260","target_iqn":"iqn.2010-10.org.openstack:volume-1","target_lun":1,"target_discovered":false,"volume_id":"v","qos_specs":null,"access_mode":"rw","encrypted":false}`)
	if got := storage(); got["reason"] != nil && strings.Contains(got["reason"].(string), "target_") {
		t.Errorf("what Nova gives: %v", got)
	}
}

// TestValidateTellsMissingTraits: Nova asks validate before it deploys.
func TestValidateTellsMissingTraits(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) {
		n.Traits, n.InstanceInfo = []string{"CUSTOM_SLOW"}, metal.Object{"traits": []any{"CUSTOM_SLOW", "CUSTOM_FAST"}}
	})
	got := w.want(200, "GET", "/v1/nodes/n1/validate", "1.82", "").Object(t)["deploy"].(map[string]any)
	if reason, _ := got["reason"].(string); got["result"] != false || !strings.Contains(reason, "no trait CUSTOM_FAST") {
		t.Errorf("a trait that the node lacks: %v", got)
	}
}

func TestTargetMasks(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	path := "/v1/volume/targets/" + targetID
	w.want(200, "PATCH", path, "1.32", `[{"op":"replace","path":"/properties","value":{"auth_method":"CHAP","auth_username":"******","auth_password":"******","target_portal":"192.0.2.1:3260"}}]`)
	w.want(200, "PATCH", path, "1.32", `[{"op":"replace","path":"/properties/auth_password","value":"******"},{"op":"add","path":"/properties/mutual_auth_password","value":"hush too"}]`)
	got := must.Get(w.config.Targets.Get(t.Context(), targetID))(t)
	want := metal.Object{"auth_method": "CHAP", "auth_username": "hush", "auth_password": "hush", "target_portal": "192.0.2.1:3260", "mutual_auth_password": "hush too"}
	if diff := cmp.Diff(want, got.Properties); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if o := w.want(200, "PATCH", path, "1.32", `[{"op":"remove","path":"/properties"}]`).Object(t); len(o["properties"].(map[string]any)) != 0 {
		t.Errorf("reset: %v", o)
	}
}

// TestNoCredentialIsShown: whatever is put under a credential's key, at any depth, no answer, history or log has it.
func TestNoCredentialIsShown(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	const canary = "c4n4ry"
	keys := rapid.SampledFrom([]string{
		"auth_username", "auth_password", "discovery_auth_username", "discovery_auth_password", "mutual_auth_username", "mutual_auth_password", "AUTH_PASSWORD", "Auth-Username", "authPassword",
		"chap_secret", "chapUser", "secret", "access_key", "token", "x_private_key", "credentials", "initiator_username", "incoming_auth_user", "mutual_chap_name",
	})
	plain := rapid.SampledFrom([]string{"target_portal", "target_iqn", "nested", "list", "auth_method", "volume_id"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			o := map[string]any{keys.Draw(t, "key"): rapid.SampledFrom([]any{canary, []any{canary}, map[string]any{"x": canary}, canary + "é\n"}).Draw(t, "secret")}
			if depth > 0 {
				below := value(depth-1).Draw(t, "below")
				o[plain.Draw(t, "plain")] = rapid.SampledFrom([]any{below, []any{below}, []any{"a", []any{below}}}).Draw(t, "shape")
			}
			return o
		})
	}
	path, index := "/v1/volume/targets/"+targetID, 0
	rapid.Check(t, func(t *rapid.T) {
		properties := must.Get(json.Marshal(value(rapid.IntRange(0, 3).Draw(t, "depth")).Draw(t, "properties")))(t)
		index++
		answers := []answer{
			w.ask("POST", "/v1/volume/targets", "1.32", fmt.Sprintf(`{"node_uuid":%q,"volume_type":"iscsi","volume_id":"v","boot_index":%d,"properties":%s}`, otherID, index, properties)),
			w.ask("PATCH", path, "1.32", fmt.Sprintf(`[{"op":"replace","path":"/properties","value":%s}]`, properties)),
			w.ask("PATCH", path, "1.32", fmt.Sprintf(`[{"op":"replace","path":"/properties","value":[%s]}]`, properties)),
			w.ask("PATCH", path, "1.32", fmt.Sprintf(`[{"op":"add","path":"/properties/none/none","value":%s}]`, properties)),
			w.ask("GET", path, "1.32", ""), w.ask("GET", path+"?fields=properties", "1.32", ""), w.ask("GET", "/v1/volume/targets?fields=properties&limit=3", "1.32", ""),
			w.ask("GET", "/v1/nodes/n1/volume/targets/detail", "1.32", ""), w.ask("GET", "/v1/nodes/n1/history?detail=true&sort_dir=desc&limit=3", "1.82", ""),
		}
		for i, want := range []int{201, 200, 400, 400, 200, 200, 200, 200, 200} {
			if answers[i].Status != want || strings.Contains(answers[i].Body, canary) {
				t.Fatalf("answer %d for %s: %d %s", i, properties, answers[i].Status, answers[i].Body)
			}
		}
		shown := answers[1].Object(w)["properties"]
		again, _ := json.Marshal(shown)
		if a := w.ask("PATCH", path, "1.32", fmt.Sprintf(`[{"op":"replace","path":"/properties","value":%s}]`, again)); a.Status != 200 {
			t.Fatalf("what was shown can not be sent back: %s", a.Body)
		}
		stored := must.Get(w.config.Targets.Get(w.Context(), targetID))(t)
		if b, _ := json.Marshal(stored.Properties); string(b) != canonical(properties) {
			t.Fatalf("sent back and changed: %s, was %s", b, properties)
		}
	})
	if strings.Contains(w.log.String(), canary) {
		t.Error("a credential is in the log")
	}
}

func canonical(b []byte) string {
	var v any
	_ = json.Unmarshal(b, &v)
	out, _ := json.Marshal(v)
	return string(out)
}

// TestMovedTargetKeepsNoCredential: a target that is moved elsewhere has its credentials given anew, or is refused.
func TestMovedTargetKeepsNoCredential(t *testing.T) {
	w := newWorld(t)
	w.volumes()
	path := "/v1/volume/targets/" + targetID
	w.want(200, "PATCH", path, "1.32", `[{"op":"replace","path":"/properties","value":{"auth_username":"u","auth_password":"hush","target_portal":"192.0.2.9:3260","target_iqn":"iqn.a"}}]`)
	for _, patch := range []string{
		`[{"op":"replace","path":"/properties/target_portal","value":"203.0.113.6:3260"}]`,
		`[{"op":"remove","path":"/properties/target_portal"},{"op":"add","path":"/properties/target_portals","value":["203.0.113.6:3260"]}]`,
		`[{"op":"replace","path":"/properties","value":{"auth_username":"******","auth_password":"******","target_portal":"203.0.113.6:3260","target_iqn":"iqn.a"}}]`,
		`[{"op":"replace","path":"/properties","value":{"auth_username":"u","auth_password":"******","target_portal":"203.0.113.6:3260","target_iqn":"iqn.a"}}]`,
	} {
		if a := w.ask("PATCH", path, "1.32", patch); a.Status != 400 || !strings.Contains(a.errorText(), "anew") || strings.Contains(a.Body, "hush") {
			t.Errorf("%s: %d %s", patch, a.Status, a.Body)
		}
	}
	// OpenStack's client unsets a property alone; another value after that is a move.
	w.want(200, "PATCH", path, "1.32", `[{"op":"remove","path":"/properties/target_iqn"}]`)
	if a := w.ask("PATCH", path, "1.32", `[{"op":"add","path":"/properties/target_iqn","value":"iqn.b"}]`); a.Status != 400 || !strings.Contains(a.errorText(), "anew") {
		t.Errorf("another iqn after none: %d %s", a.Status, a.Body)
	}
	w.want(200, "PATCH", path, "1.32", `[{"op":"replace","path":"/properties/target_portal","value":"203.0.113.6:3260"},
		{"op":"replace","path":"/properties/auth_username","value":"u"},{"op":"replace","path":"/properties/auth_password","value":"hush"}]`)
	w.want(200, "PATCH", path, "1.32", `[{"op":"remove","path":"/properties/auth_username"},{"op":"remove","path":"/properties/auth_password"},{"op":"replace","path":"/properties/target_portal","value":"203.0.113.7:3260"}]`)
}
