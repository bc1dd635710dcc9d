package ironic_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"salvor/metal"
	"salvor/test/must"
)

// recordWorld has a node that is off with a record of each kind.
func recordWorld(t testing.TB) (*world, []string) {
	w := newWorld(t)
	w.volumes()
	w.want(201, "POST", "/v1/chassis", "1.1", `{"uuid":"`+chassisID+`"}`)
	w.want(201, "POST", "/v1/portgroups", "1.115", `{"uuid":"`+groupID+`","node_uuid":"`+nodeID+`"}`)
	w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Manageable })
	port := w.want(201, "POST", "/v1/ports", "1.115", `{"node_uuid":"`+nodeID+`","address":"52:54:00:00:00:01"}`).Object(t)["uuid"].(string)
	return w, []string{"/v1/volume/targets/" + targetID, "/v1/volume/connectors/" + connectorID, "/v1/portgroups/" + groupID, "/v1/ports/" + port, "/v1/chassis/" + chassisID}
}

func FuzzRecordPatch(f *testing.F) {
	w, paths := recordWorld(f)
	for i, s := range []string{
		`[{"op":"replace","path":"/properties","value":{"auth_password":"******"}}]`, `[{"op":"remove","path":"/extra"},{"op":"add","path":"/extra/a","value":1}]`, `[{"op":"add","path":"/name","value":"n"}]`,
		`[{"op":"add","path":"/local_link_connection/port_id","value":"a"}]`, `[{"op":"add","path":"/extra/~1","value":[[[]]]}]`, `[{"op":"add","path":"/properties/x/y","value":null}]`, `[{"op":"replace","path":"/boot_index","value":1e300}]`,
		`[{"op":"replace","path":"/node_uuid","value":"` + otherID + `"}]`, `[{"op":"add","path":"/portgroup_uuid","value":"` + groupID + `"},{"op":"add","path":"/physical_network","value":"p"}]`, `[]`, `null`,
	} {
		f.Add(s, uint8(i), uint8(115))
	}
	f.Fuzz(func(t *testing.T, body string, kind, version uint8) {
		w := w.on(t)
		a := w.ask("PATCH", paths[int(kind)%len(paths)], fmt.Sprintf("1.%d", 32+int(version)%84), body)
		w.fine(t, a, body)
		stored := must.Get(w.config.Targets.Get(t.Context(), targetID))(t)
		if b, _ := json.Marshal(stored.Properties); strings.Contains(string(b), `"auth_password":"******"`) {
			t.Fatalf("the mask is stored: %s", b)
		}
		if a.Status == 200 && w.ask("GET", paths[int(kind)%len(paths)], "1.115", "").Status != 200 {
			t.Fatalf("a patched record can not be read: %s", body)
		}
	})
}

func FuzzRecordCreate(f *testing.F) {
	w, _ := recordWorld(f)
	kinds := []string{"volume/targets", "volume/connectors", "portgroups", "ports", "chassis"}
	for i, s := range []string{
		`{"node_uuid":"` + nodeID + `","volume_type":"iscsi","volume_id":"v","boot_index":3,"properties":{"auth_password":"x"}}`, `{"node_uuid":"` + nodeID + `","type":"t","connector_id":"c"}`, `{"node_uuid":"` + nodeID + `","name":"g"}`,
		`{"node_uuid":"` + nodeID + `","address":"52:54:00:00:00:09","portgroup_uuid":"` + groupID + `"}`, `{"description":"d"}`, ``, `{"uuid":null}`, `{"extra":{"a":[{}]}}`, `{"boot_index":-0.0}`,
	} {
		f.Add(s, uint8(i), uint8(115))
	}
	f.Fuzz(func(t *testing.T, body string, kind, version uint8) {
		w := w.on(t)
		path := "/v1/" + kinds[int(kind)%len(kinds)]
		a := w.ask("POST", path, fmt.Sprintf("1.%d", 32+int(version)%84), body)
		w.fine(t, a, body)
		if a.Status == 201 {
			w.want(204, "DELETE", path+"/"+a.Object(t)["uuid"].(string), "1.115", "")
		}
	})
}

// TestPatchIsWhatItSays applies random patches of extra both over the API and to a plain map: after each, both are alike.
func TestPatchIsWhatItSays(t *testing.T) {
	w, paths := recordWorld(t)
	names := rapid.SampledFrom([]string{"a", "b", "a/b", "~", "~1", "ü", "-", "0"})
	values := rapid.SampledFrom([]any{nil, true, 7.0, "x", "******", []any{1.0}, map[string]any{"in": "side"}})
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SampledFrom(paths).Draw(t, "record")
		w.refuse([]refusal{{"PATCH", path, "1.115", `[{"op":"add","path":"/extra/","value":1}]`, 400, "not valid"}, {"PATCH", path, "1.115", `[{"op":"add","path":"/extra//a","value":1}]`, 400, "not valid"}})
		want := map[string]any{}
		w.want(200, "PATCH", path, "1.115", `[{"op":"add","path":"/extra","value":{}}]`)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			name, v := names.Draw(t, "name"), values.Draw(t, "value")
			op := rapid.SampledFrom([]string{"add", "replace", "remove"}).Draw(t, "op")
			step := map[string]any{"op": op, "path": "/extra/" + escape.Replace(name), "value": v}
			_, there := want[name]
			if op == "remove" {
				delete(step, "value")
			}
			body, _ := json.Marshal([]any{step})
			a := w.ask("PATCH", path, "1.115", string(body))
			switch {
			case op != "add" && !there:
				if a.Status != 400 {
					t.Fatalf("%s of nothing: %d %s", body, a.Status, a.Body)
				}
				continue
			case op == "remove":
				delete(want, name)
			default:
				want[name] = v
			}
			if a.Status != 200 {
				t.Fatalf("%s: %d %s", body, a.Status, a.Body)
			}
			if diff := cmp.Diff(want, a.Object(w)["extra"]); diff != "" {
				t.Fatalf("after %s (-want +got):\n%s", body, diff)
			}
		}
		var got map[string]any
		_ = json.Unmarshal([]byte(w.want(200, "GET", path+"?fields=extra", "1.115", "").Body), &got)
		if diff := cmp.Diff(want, got["extra"]); diff != "" {
			t.Fatalf("stored (-want +got):\n%s", diff)
		}
	})
}
