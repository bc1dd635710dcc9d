package ironic_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"salvor/access"
	"salvor/api"
	"salvor/api/ironic"
	"salvor/metal"
	"salvor/test/fixture"
	"salvor/test/must"
)

const (
	owned   = "aaaaaaaa-0000-4000-8000-000000000001"
	leased  = "aaaaaaaa-0000-4000-8000-000000000002"
	foreign = "aaaaaaaa-0000-4000-8000-000000000003"
)

// persona is the API as one principal sees it.
func (w *world) persona(s access.Scope, roles ...string) http.Handler {
	s.Roles = roles
	c := w.config
	c.Policy = access.Policy{EnforceScope: true}
	c.Auth = fixture.FixedAuth{Principal: access.Principal{User: "ann", Role: access.Scoped, Scope: s}}
	return ironic.New(c)
}

// tenancy adds three nodes: one of project p1, one that it leases, one of others.
func (w *world) tenancy() {
	for i, of := range [][2]string{{"p1", ""}, {"p2", "p1"}, {"p2", "p3"}} {
		id := []string{owned, leased, foreign}[i]
		w.node(func(n *metal.Node) {
			n.ID, n.Name, n.Owner, n.Lessee = id, "n"+id[35:], of[0], of[1]
			n.DriverInfo, n.LastError, n.ProvisionState = metal.Object{"redfish_address": "bmc.example"}, "bmc.example is away", metal.Manageable
		})
	}
}

func TestProjectsSeeTheirOwn(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	project := access.Scope{Project: "p1", ProjectName: "one"}
	reader, member := w.persona(project, "reader"), w.persona(project, "member", "reader")
	admin, system := w.persona(project, "admin", "manager", "member", "reader"), w.persona(access.Scope{System: true}, "admin", "member", "reader")
	patch := func(path, value string) string {
		return fmt.Sprintf(`[{"op": "add", "path": %q, "value": %q}]`, path, value)
	}
	for _, tt := range []struct {
		who                http.Handler
		method, path, body string
		want               int
	}{
		{reader, "GET", "/v1/nodes/" + owned, "", 200},
		{reader, "GET", "/v1/nodes/" + leased, "", 200},
		{reader, "GET", "/v1/nodes/" + foreign, "", 404},
		{reader, "GET", "/v1/nodes/" + foreign + "/states", "", 404},
		{reader, "GET", "/v1/nodes/" + leased + "/history", "", 403},
		{reader, "GET", "/v1/nodes/" + owned + "/history", "", 200},
		{reader, "GET", "/v1/nodes?owner=p2", "", 403},
		{reader, "GET", "/v1/nodes?marker=" + foreign, "", 404},
		{reader, "GET", "/v1/nodes?marker=" + strings.Replace(foreign, "3", "9", 1), "", 404},
		{reader, "GET", "/v1/nodes?marker=" + leased, "", 200},
		{system, "GET", "/v1/nodes?marker=" + foreign, "", 200},
		{reader, "PATCH", "/v1/nodes/" + owned, patch("/extra/a", "b"), 403},
		{reader, "PUT", "/v1/nodes/" + owned + "/states/power", `{"target": "power on"}`, 403},
		{reader, "GET", "/v1/drivers", "", 403},
		{reader, "GET", "/v1/conductors", "", 403},
		{member, "PATCH", "/v1/nodes/" + leased, patch("/extra/a", "b"), 200},
		{member, "PATCH", "/v1/nodes/" + leased, patch("/driver_info/a", "b"), 403},
		{member, "PATCH", "/v1/nodes/" + owned, patch("/driver_info/a", "b"), 200},
		{member, "PATCH", "/v1/nodes/" + owned, patch("/owner", "p2"), 403},
		{member, "PATCH", "/v1/nodes/" + owned, patch("/rescue_interface", "fake"), 403},
		{admin, "PATCH", "/v1/nodes/" + owned, patch("/rescue_interface", "fake"), 200},
		{member, "DELETE", "/v1/nodes/" + foreign, "", 404},
		{admin, "DELETE", "/v1/nodes/" + leased, "", 403},
		{member, "POST", "/v1/nodes", `{"driver": "fake-hardware"}`, 403},
		{admin, "POST", "/v1/nodes", `{"driver": "fake-hardware", "owner": "p2"}`, 403},
		{member, "POST", "/v1/ports", `{"address": "52:54:00:00:00:01", "node_uuid": "` + owned + `"}`, 403},
		{admin, "POST", "/v1/ports", `{"address": "52:54:00:00:00:02", "node_uuid": "` + foreign + `"}`, 400},
		{admin, "POST", "/v1/ports", `{"address": "52:54:00:00:00:03", "node_uuid": "` + leased + `"}`, 403},
		{admin, "POST", "/v1/ports", `{"address": "52:54:00:00:00:04"}`, 400},
		{admin, "POST", "/v1/ports", `{"address": "52:54:00:00:00:05", "node_uuid": "` + owned + `"}`, 201},
		{system, "POST", "/v1/ports", `{"address": "52:54:00:00:00:06", "node_uuid": "` + foreign + `"}`, 201},
		{system, "GET", "/v1/nodes/" + foreign, "", 200},
		{system, "GET", "/v1/drivers", "", 200},
		{w.persona(project), "GET", "/v1/nodes", "", 403},
		{w.persona(access.Scope{}, "admin", "reader"), "GET", "/v1/nodes", "", 403},
	} {
		if a := ask(tt.who, tt.method, tt.path, "1.82", tt.body); a.Status != tt.want {
			t.Errorf("%s %s %s: %d, want %d: %s", tt.method, tt.path, tt.body, a.Status, tt.want, a.errorText())
		}
	}
	listed := func(who http.Handler, path string) string { return ask(who, "GET", path, "1.82", "").Body }
	for path, key := range map[string]string{"/v1/nodes": foreign, "/v1/nodes/detail": foreign, "/v1/ports": "52:54:00:00:00:06", "/v1/ports/detail": "52:54:00:00:00:06"} {
		if strings.Contains(listed(reader, path), key) || !strings.Contains(listed(system, path), key) {
			t.Errorf("%s: a project sees %s, or the system does not", path, listed(reader, path))
		}
	}
	if body := listed(reader, "/v1/nodes"); !strings.Contains(body, owned) || !strings.Contains(body, leased) {
		t.Error(body)
	}
	for path, hidden := range map[string]bool{"/v1/nodes/" + owned: false, "/v1/nodes/" + leased: true, "/v1/nodes/detail": true} {
		body := listed(member, path)
		if path == "/v1/nodes/detail" {
			_, body, _ = strings.Cut(body, leased)
		}
		if strings.Contains(body, "bmc.example") == hidden {
			t.Errorf("%s: what tells of the BMC is hidden: %v: %s", path, !hidden, body)
		}
	}
}

// TestPortsStayWithTheirOwner proves that nobody moves an object to a node of others.
func TestPortsStayWithTheirOwner(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	admin := w.persona(access.Scope{Project: "p1"}, "admin", "member", "reader")
	made := ask(admin, "POST", "/v1/ports", "1.82", `{"address": "52:54:00:00:00:05", "node_uuid": "`+owned+`"}`)
	port, _ := made.Object(t)["uuid"].(string)
	move := func(node string) int {
		return ask(admin, "PATCH", "/v1/ports/"+port, "1.82", `[{"op": "replace", "path": "/node_uuid", "value": "`+node+`"}]`).Status
	}
	if got := move(foreign); got != 400 {
		t.Errorf("to a node that is not seen: %d", got)
	}
	if got := move("aaaaaaaa-0000-4000-8000-00000000000f"); got != 400 {
		t.Errorf("to a node that is not there: %d", got)
	}
	if got := move(leased); got != 403 {
		t.Errorf("to a node that is leased: %d", got)
	}
}

// TestVolumesOfProjects proves that members of a project change volumes of their nodes alone, and
// that a target's properties are for those who lead it.
func TestVolumesOfProjects(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	project := access.Scope{Project: "p1"}
	member, admin := w.persona(project, "member", "reader"), w.persona(project, "admin", "member", "reader")
	post := func(who http.Handler, node string) answer {
		return ask(who, "POST", "/v1/volume/targets", "1.82", `{"node_uuid": "`+node+`", "volume_type": "iscsi", "boot_index": 0, "volume_id": "v", "properties": {"target_iqn": "iqn.x"}}`)
	}
	if a := post(member, owned); a.Status != 403 {
		t.Errorf("a member: %d", a.Status)
	}
	if a := post(admin, foreign); a.Status != 400 {
		t.Errorf("on a node of others: %d", a.Status)
	}
	made := post(admin, owned)
	if made.Status != 201 || !strings.Contains(made.Body, "iqn.x") {
		t.Fatalf("%d %s", made.Status, made.Body)
	}
	id, _ := made.Object(t)["uuid"].(string)
	if a := ask(member, "GET", "/v1/volume/targets/"+id, "1.82", ""); a.Status != 200 || strings.Contains(a.Body, "iqn.x") || !strings.Contains(a.Body, "redacted_contents") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := ask(w.persona(access.Scope{Project: "p3"}, "admin", "member", "reader"), "GET", "/v1/volume/targets/"+id, "1.82", ""); a.Status != 404 {
		t.Errorf("seen by others: %d", a.Status)
	}
	// What is nobody's would be everybody's.
	if a := ask(member, "POST", "/v1/allocations", "1.82", `{"resource_class": "x", "owner": null}`); a.Status != 403 {
		t.Errorf("a claim without an owner: %d %s", a.Status, a.Body)
	}
	if a := ask(member, "POST", "/v1/allocations", "1.82", `{"resource_class": "x"}`); a.Status != 201 || a.Object(t)["owner"] != "p1" {
		t.Errorf("a claim: %d %s", a.Status, a.Body)
	}
}

func TestProjectAdminMakesOwnNodes(t *testing.T) {
	w := newWorld(t)
	admin := w.persona(access.Scope{Project: "p1"}, "admin", "member", "reader")
	if a := ask(admin, "POST", "/v1/nodes", "1.79", `{"driver": "fake-hardware"}`); a.Status != 403 {
		t.Errorf("below 1.80: %d %s", a.Status, a.Body)
	}
	a := ask(admin, "POST", "/v1/nodes", "1.80", `{"driver": "fake-hardware", "name": "mine"}`)
	if a.Status != 201 || a.Object(t)["owner"] != "p1" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if a := ask(admin, "DELETE", "/v1/nodes/mine", "1.80", ""); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// TestNobodyWithoutAToken proves that the endpoints without a credential are Ironic's own.
func TestNobodyWithoutAToken(t *testing.T) {
	w := newWorld(t)
	c := w.config
	k := must.Get(api.NewKeystone(api.KeystoneOptions{URL: "http://keystone.invalid/v3"}))(t)
	c.Auth = k
	h := ironic.New(c)
	for path, want := range map[string]int{"/": 200, "/v1": 200, "/v1/lookup": 400, "/v1/nodes": 401, "/v1/nothing": 401, "/v1/drivers": 401} {
		a := ask(h, "GET", path, "1.82", "")
		if a.Status != want || want == 401 && a.Header.Get("Www-Authenticate") != `Keystone uri="http://keystone.invalid/v3"` {
			t.Errorf("%s: %d %v", path, a.Status, a.Header)
		}
	}
}

// TestPublicRunbooks: whoever sees one is told that it may not be changed, and of others' nothing.
func TestPublicRunbooks(t *testing.T) {
	w := newWorld(t)
	body := func(name, more string) string {
		return `{"name":"` + name + `","steps":[{"interface":"bios","step":"apply","args":{},"order":1}]` + more + `}`
	}
	w.want(201, "POST", "/v1/runbooks", "1.112", body("CUSTOM_ALL", `,"public":true`))
	w.want(201, "POST", "/v1/runbooks", "1.112", body("CUSTOM_MINE", `,"owner":"p1"`))
	w.want(201, "POST", "/v1/runbooks", "1.112", body("CUSTOM_THEIRS", `,"owner":"p2"`))
	p1 := w.persona(access.Scope{Project: "p1"}, "admin", "manager", "member", "reader")
	for path, want := range map[string][3]int{"CUSTOM_ALL": {200, 403, 403}, "CUSTOM_MINE": {200, 200, 204}, "CUSTOM_THEIRS": {404, 404, 404}, "CUSTOM_NONE": {404, 404, 404}} {
		for i, ask1 := range [][2]string{{"GET", ""}, {"PATCH", `[{"op":"replace","path":"/description","value":"d"}]`}, {"DELETE", ""}} {
			if a := ask(p1, ask1[0], "/v1/runbooks/"+path, "1.112", ask1[1]); a.Status != want[i] {
				t.Errorf("%s %s: %d, want %d: %s", ask1[0], path, a.Status, want[i], a.errorText())
			}
		}
	}
}
