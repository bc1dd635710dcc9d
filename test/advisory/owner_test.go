package advisory

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/api/ironic"
	"salvor/job"
	"salvor/metal"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
)

const (
	owned   = "aaaaaaaa-0000-4000-8000-000000000001"
	foreign = "aaaaaaaa-0000-4000-8000-000000000003"
)

// tenancy is the Bare Metal API over a real store, with a node of project p1 and one of p2.
type tenancy struct {
	*testing.T
	config ironic.Config
}

func newTenancy(t *testing.T) *tenancy {
	s, key := storetest.SQLite(t)
	now := func() time.Time { return time.Unix(1.7e9, 0) }
	interfaces := map[string]metal.InterfaceSet{}
	for kind, name := range map[string]string{
		"power": "fake", "management": "fake", "boot": "fake", "network": "noop", "rescue": "fake", "deploy": "fake", "inspect": "no-inspect", "firmware": "no-firmware",
		"storage": "external", "bios": "no-bios", "console": "no-console", "raid": "no-raid", "vendor": "fake",
	} {
		info := metal.InterfaceInfo{Name: name, Unsupported: strings.HasPrefix(name, "no-"), Volumes: kind == "storage"}
		if kind == "vendor" {
			info.Methods = map[string]metal.VendorMethod{"send_raw": {HTTPMethods: []string{"POST"}, Async: true}}
		}
		interfaces[kind] = metal.InterfaceSet{Default: name, Enabled: []metal.InterfaceInfo{info}}
	}
	description := must.Get(json.Marshal(metal.Catalog{Drivers: []metal.DriverInfo{{Name: "fake-hardware", Interfaces: interfaces}}}))(t)
	ctx := context.Background()
	if err := s.Register(ctx, job.Conductor{ID: "c1", Incarnation: "i1", Hostname: "c", Groups: []string{""}, Description: description, StartedAt: now(), UpdatedAt: now()}); err != nil {
		t.Fatal(err)
	}
	dir := metal.NewDirectory(s, now, time.Second, 0)
	nodes := metal.NewNodes(s, s, key, dir, metal.Options{}, now)
	for id, owner := range map[string]string{owned: "p1", foreign: "p2"} {
		n := &metal.Node{ID: id, Name: owner, Driver: "fake-hardware", ProvisionState: metal.Manageable, Owner: owner, CreatedAt: now(), ProvisionedAt: now()}
		must.OK(t, s.Do(ctx, func(tx job.Tx) error { return s.InsertNode(tx, n) }))
	}
	return &tenancy{T: t, config: ironic.Config{
		Nodes: nodes, Collections: metal.NewCollections(s, nodes, false), Directory: dir, Timeline: s, Log: slog.New(slog.DiscardHandler), Policy: access.Policy{EnforceScope: true},
	}}
}

// as asks as a user of a project.
func (w *tenancy) as(project, roles, method, path, body string) answer {
	w.Helper()
	c := w.config
	scope := access.Scope{Project: project, System: project == "system", Roles: strings.Fields(roles)}
	if scope.System {
		scope.Project = ""
	}
	c.Auth = fixture.FixedAuth{Principal: access.Principal{User: "u-" + project, Role: access.Scoped, Scope: scope}}
	return fixture.Ask(ironic.New(c), method, path, body, "X-OpenStack-Ironic-API-Version", latest)
}

const admin = "admin manager member reader"

// TestCVE_2026_44918_NothingIsMovedToNodesOfOthers: ports, port groups, volume connectors
// and targets, and child nodes could be given to a node of another owner.
func TestCVE_2026_44918_NothingIsMovedToNodesOfOthers(t *testing.T) {
	w := newTenancy(t)
	for kind, body := range map[string]string{
		"ports":             `{"address":"52:54:00:00:00:01","node_uuid":%q}`,
		"portgroups":        `{"node_uuid":%q}`,
		"volume/connectors": `{"type":"iqn","connector_id":"iqn.2026-01.example:a","node_uuid":%q}`,
		"volume/targets":    `{"volume_type":"iscsi","boot_index":0,"volume_id":"v","node_uuid":%q}`,
	} {
		made := w.as("p1", admin, "POST", "/v1/"+kind, fmt.Sprintf(body, owned))
		id, _ := made.Object(t)["uuid"].(string)
		if made.Status != 201 || id == "" {
			t.Fatalf("%s: %d %s", kind, made.Status, made.Body)
		}
		if a := w.as("p1", admin, "POST", "/v1/"+kind, fmt.Sprintf(strings.Replace(body, "01", "02", 1), foreign)); a.Status < 400 || a.Status >= 500 {
			t.Errorf("%s is made on a node of others: %d", kind, a.Status)
		}
		for _, op := range []string{"replace", "add"} {
			patch := fmt.Sprintf(`[{"op":%q,"path":"/node_uuid","value":%q}]`, op, foreign)
			if a := w.as("p1", admin, "PATCH", "/v1/"+kind+"/"+id, patch); a.Status < 400 || a.Status >= 500 {
				t.Errorf("%s is moved to a node of others: %d %s", kind, a.Status, a.Body)
			}
		}
		if a := w.as("p2", admin, "PATCH", "/v1/"+kind+"/"+id, fmt.Sprintf(`[{"op":"replace","path":"/node_uuid","value":%q}]`, foreign)); a.Status != 404 && a.Status != 403 {
			t.Errorf("%s of others is fetched: %d", kind, a.Status)
		}
		now := w.as("system", admin, "GET", "/v1/"+kind+"/"+id, "")
		if now.Object(t)["node_uuid"] != owned {
			t.Errorf("%s: %s", kind, now.Body)
		}
	}
	for _, path := range []string{"/parent_node", "/owner"} {
		value := foreign
		if path != "/parent_node" {
			value = "p2"
		}
		if a := w.as("p1", "member reader", "PATCH", "/v1/nodes/"+owned, fmt.Sprintf(`[{"op":"add","path":%q,"value":%q}]`, path, value)); a.Status < 400 || a.Status >= 500 {
			t.Errorf("%s of a node is set: %d %s", path, a.Status, a.Body)
		}
	}
	if a := w.as("p1", admin, "PATCH", "/v1/nodes/"+owned, fmt.Sprintf(`[{"op":"add","path":"/parent_node","value":%q}]`, foreign)); a.Status < 400 || a.Status >= 500 {
		t.Errorf("a node becomes the child of a node of others: %d %s", a.Status, a.Body)
	}
	for _, body := range []string{fmt.Sprintf(`{"node":%q}`, foreign), fmt.Sprintf(`{"resource_class":"x","candidate_nodes":[%q]}`, foreign), `{"resource_class":"x","owner":"p2"}`} {
		if a := w.as("p1", "member reader", "POST", "/v1/allocations", body); a.Status < 400 || a.Status >= 500 {
			t.Errorf("an allocation %s: %d", body, a.Status)
		}
	}
}

// TestLP2154564_VolumePropertiesStayHidden (and LP 2155049): the CHAP secrets of a volume
// target were in the answer of a PATCH, though a GET hid them.
func TestLP2154564_VolumePropertiesStayHidden(t *testing.T) {
	w := newTenancy(t)
	made := w.as("p1", admin, "POST", "/v1/volume/targets",
		fmt.Sprintf(`{"volume_type":"iscsi","boot_index":0,"volume_id":"v","node_uuid":%q,"properties":{"auth_password":"canary-chap","auth_username":"u","target_iqn":"iqn.x"}}`, owned))
	id, _ := made.Object(t)["uuid"].(string)
	all := []answer{made}
	for _, roles := range []string{admin, "member reader", "reader"} {
		for _, path := range []string{"/v1/volume/targets/" + id, "/v1/volume/targets?detail=true", "/v1/nodes/" + owned + "/volume/targets", "/v1/volume/targets/" + id + "?fields=properties"} {
			all = append(all, w.as("p1", roles, "GET", path, ""))
		}
		for _, patch := range []string{`[{"op":"replace","path":"/extra","value":{"a":"b"}}]`, `[{"op":"add","path":"/properties/auth_password","value":"canary-chap2"}]`, `[{"op":"test","path":"/properties/auth_password","value":"canary"}]`} {
			all = append(all, w.as("p1", roles, "PATCH", "/v1/volume/targets/"+id, patch))
		}
	}
	for _, a := range append(all, w.as("system", admin, "GET", "/v1/volume/targets/"+id, ""), w.as("system", admin, "PATCH", "/v1/volume/targets/"+id, `[{"op":"replace","path":"/extra","value":{}}]`)) {
		if strings.Contains(a.Body, "canary-chap") {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
}

// TestCVE_2026_54423_VendorCommandsAreForAdministrators: raw commands to a BMC were open to
// users of a node's project.
func TestCVE_2026_54423_VendorCommandsAreForAdministrators(t *testing.T) {
	w := newTenancy(t)
	for _, who := range [][2]string{{"p1", admin}, {"p1", "member reader"}, {"p1", "reader"}, {"p2", admin}, {"system", "reader"}, {"system", "member reader"}} {
		for _, path := range []string{"/v1/nodes/" + owned + "/vendor_passthru?method=send_raw", "/v1/nodes/" + owned + "/vendor_passthru/send_raw"} {
			a := w.as(who[0], who[1], "POST", path, `{"raw_bytes":"0x00 0x01"}`)
			if a.Status != 403 && a.Status != 404 {
				t.Errorf("%v %s: %d %s", who, path, a.Status, a.Body)
			}
		}
	}
	if a := w.as("system", admin, "POST", "/v1/nodes/"+owned+"/vendor_passthru?method=send_raw", `{"raw_bytes":"0x00 0x01"}`); a.Status != 202 {
		t.Errorf("an administrator: %d %s", a.Status, a.Body)
	}
}

// TestLP2148307_TemplatesAreNotRun: templates that users write were rendered by the
// conductor. What looks like one is text here, and inspection rules fill in by name only.
func TestLP2148307_TemplatesAreNotRun(t *testing.T) {
	w := newTenancy(t)
	for _, text := range []string{"{{ 7*191 }}", "{% for x in range(9**9) %}{% endfor %}", "{{ ''.__class__.__mro__ }}", "${7*191}", "<%= 7*191 %>", "#{7*191}"} {
		b, _ := json.Marshal([]object{{"op": "add", "path": "/extra/t", "value": text}, {"op": "add", "path": "/description", "value": text}})
		a := w.as("p1", admin, "PATCH", "/v1/nodes/"+owned, string(b))
		if extra, _ := a.Object(t)["extra"].(object); a.Status != 200 || extra["t"] != text {
			t.Errorf("%q: %d %s", text, a.Status, a.Body)
		}
	}
	for _, text := range []string{"{node.__class__}", "{inventory.__init__.__globals__}", "{node[driver_info][redfish_password]}", "{0}", "{node.driver_info}", strings.Repeat("{node}", 5000)} {
		b, _ := json.Marshal(object{"actions": []object{{"op": "set-attribute", "args": object{"path": "/extra/x", "value": text}}}})
		if a := w.as("system", admin, "POST", "/v1/inspection_rules", string(b)); a.Status >= 500 {
			t.Errorf("%.60q: %d %s", text, a.Status, a.Body)
		}
	}
}
