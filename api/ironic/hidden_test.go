package ironic_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/access"
	"salvor/metal"
)

// TestHiddenIsAbsent: who may not see a node cannot tell it from one that is not there, by whatever request it is asked for.
func TestHiddenIsAbsent(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	system, member := w.persona(access.Scope{System: true}, "admin", "member", "reader"), w.persona(access.Scope{Project: "p1", ProjectName: "one"}, "member", "reader")
	group := ask(system, "POST", "/v1/portgroups", "1.82", `{"node_uuid": "`+foreign+`"}`)
	port := ask(system, "POST", "/v1/ports", "1.82", `{"address": "52:54:00:00:00:06", "node_uuid": "`+foreign+`"}`)
	if group.Status != 201 || port.Status != 201 {
		t.Fatal(group.Body, port.Body)
	}
	text := func(a answer, key string) string { return fmt.Sprint(a.Object(t)[key]) }
	absent := uuid.NewString()
	for _, tt := range []struct{ method, path, body, hidden, absent string }{
		{"GET", "/v1/nodes/%s", "", foreign, absent},
		{"GET", "/v1/nodes/%s", "", "n3", "n9"},
		{"PATCH", "/v1/nodes/%s", `[{"op": "add", "path": "/extra/a", "value": "b"}]`, foreign, absent},
		{"GET", "/v1/nodes/%s/states", "", "n3", "n9"},
		{"GET", "/v1/ports/%s", "", text(port, "uuid"), absent},
		{"GET", "/v1/portgroups/%s", "", text(group, "uuid"), absent},
		{"GET", "/v1/ports?node=%s", "", foreign, absent},
		{"GET", "/v1/ports?node=%s", "", "n3", "n9"},
		{"GET", "/v1/ports?node_uuid=%s", "", foreign, absent},
		{"GET", "/v1/ports?portgroup=%s", "", text(group, "uuid"), absent},
		{"GET", "/v1/portgroups?node=%s", "", "n3", "n9"},
		{"GET", "/v1/volume/connectors?node=%s", "", "n3", "n9"},
		{"GET", "/v1/volume/targets/detail?node=%s", "", foreign, absent},
		{"GET", "/v1/allocations?node=%s", "", "n3", "n9"},
		{"POST", "/v1/allocations", `{"resource_class": "c", "candidate_nodes": ["%s"]}`, "n3", "n9"},
		{"POST", "/v1/allocations", `{"node": "%s"}`, "n3", "n9"},
	} {
		told := func(ident string) string {
			fill := func(s string) string { return strings.ReplaceAll(s, "%s", ident) }
			a := ask(member, tt.method, fill(tt.path), "1.82", fill(tt.body))
			if a.Status < 400 {
				t.Errorf("%s %s: %d %s", tt.method, fill(tt.path), a.Status, a.Body)
			}
			return fmt.Sprint(a.Status, strings.ReplaceAll(a.errorText(), ident, "IDENT"))
		}
		if hidden, absent := told(tt.hidden), told(tt.absent); hidden != absent {
			t.Errorf("%s %s %s\nhidden: %s\nabsent: %s", tt.method, tt.path, tt.body, hidden, absent)
		}
	}
	for _, path := range []string{"/v1/ports?node=n2", "/v1/ports?node_uuid=" + leased, "/v1/volume/targets?node=n1", "/v1/allocations?node=n1"} {
		if a := ask(member, "GET", path, "1.82", ""); a.Status != 200 {
			t.Errorf("%s: %d %s", path, a.Status, a.errorText())
		}
	}
}

// TestChildrenOfOthers: of a leased node's children those are named that the project sees.
func TestChildrenOfOthers(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	const seen, unseen = "bbbbbbbb-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
	for id, lessee := range map[string]string{seen: "p1", unseen: ""} {
		w.node(func(n *metal.Node) { n.ID, n.Name, n.Owner, n.Lessee, n.ParentNode = id, "", "p2", lessee, leased })
	}
	a := ask(w.persona(access.Scope{Project: "p1"}, "reader"), "GET", "/v1/nodes/"+leased+"/children", "1.83", "")
	if a.Status != 200 || !strings.Contains(a.Body, seen) || strings.Contains(a.Body, unseen) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if body := w.want(200, "GET", "/v1/nodes/"+leased+"/children", "1.83", "").Body; !strings.Contains(body, unseen) {
		t.Error(body)
	}
}

// TestOrderTellsNothing: who may not see the errors of the nodes that it leases cannot sort by them either.
func TestOrderTellsNothing(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	for want, h := range map[int]http.Handler{403: w.persona(access.Scope{Project: "p1"}, "member", "reader"), 200: w.persona(access.Scope{System: true}, "reader")} {
		if a := ask(h, "GET", "/v1/nodes?sort_key=last_error", "1.83", ""); a.Status != want {
			t.Errorf("%d, want %d: %s", a.Status, want, a.errorText())
		}
	}
}

// TestConfigDriveOfProjects: the policy reads a provision request whole before it asks which runbook it names.
func TestConfigDriveOfProjects(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	w.edit(owned, func(n *metal.Node) { n.ProvisionState = metal.Available })
	member := w.persona(access.Scope{Project: "p1"}, "member", "reader")
	body := `{"target": "active", "configdrive": "` + strings.Repeat("QUFB", 1<<19) + `"}`
	if a := ask(member, "PUT", "/v1/nodes/"+owned+"/states/provision", "1.92", body); a.Status == 413 {
		t.Errorf("%d %s", a.Status, a.errorText())
	}
}

// TestAPasswordGoesToNoOtherHost: a project that may change where a node's controller is, but reads its password as the mask, cannot
// have the password sent to a host of its own.
func TestAPasswordGoesToNoOtherHost(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	info := func() metal.Object {
		return metal.Object{"redfish_address": "https://10.0.0.9", "redfish_username": "root", "redfish_password": "hush", "ipmi_password": "hush2", "ilo_password": "hush3"}
	}
	member, system := w.persona(access.Scope{Project: "p1"}, "member", "reader"), w.persona(access.Scope{System: true}, "admin", "member", "reader")
	for _, tt := range []struct {
		as           http.Handler
		status       int
		words, patch string
	}{
		{member, 400, "_password", `[{"op":"replace","path":"/driver_info/redfish_address","value":"http://192.0.2.66"}]`},
		{member, 400, "_password", `[{"op":"add","path":"/driver_info/redfish_verify_ca","value":false}]`},
		{member, 400, "_password", `[{"op":"add","path":"/driver_info/redfish_tls_legacy","value":true}]`},
		{member, 400, "_password", `[{"op":"add","path":"/driver_info/redfish_quirks","value":"tls_minimum=1.0"}]`},
		{member, 400, "_password", `[{"op":"remove","path":"/driver_info/redfish_address"}]`},
		{member, 400, "ipmi_password", `[{"op":"add","path":"/driver_info/ipmi_address","value":"192.0.2.66"}]`},
		{member, 400, "_password", `[{"op":"add","path":"/driver_info/ilo_address","value":"192.0.2.66"},{"op":"add","path":"/driver_info/ilo_password","value":"mine"}]`},
		{member, 400, "ilo_password", `[{"op":"add","path":"/driver_info/client_port","value":4433},{"op":"add","path":"/driver_info/redfish_password","value":"mine"}]`},
		{member, 400, "ilo_password", `[{"op":"add","path":"/driver_info/redfish_tls_legacy","value":true},{"op":"add","path":"/driver_info/redfish_password","value":"mine"}]`},
		{member, 400, "_password", `[{"op":"replace","path":"/driver_info/redfish_address","value":"http://192.0.2.66"},{"op":"replace","path":"/driver_info/redfish_password","value":"******"}]`},
		{member, 400, "_password", `[{"op":"replace","path":"/driver_info","value":{"redfish_address":"http://192.0.2.66","redfish_password":"******"}}]`},
		{member, 200, "", `[{"op":"replace","path":"/driver_info/redfish_address","value":"http://192.0.2.66"},{"op":"replace","path":"/driver_info/redfish_password","value":"mine"},{"op":"remove","path":"/driver_info/ilo_password"}]`},
		{member, 200, "", `[{"op":"replace","path":"/driver_info","value":{"redfish_address":"http://192.0.2.66","redfish_password":"hush"}}]`},
		{member, 200, "", `[{"op":"replace","path":"/driver_info/redfish_address","value":"http://192.0.2.66"},{"op":"remove","path":"/driver_info/redfish_password"},{"op":"remove","path":"/driver_info/ilo_password"}]`},
		{member, 200, "", `[{"op":"replace","path":"/driver_info/redfish_username","value":"admin"}]`},
		{system, 200, "", `[{"op":"replace","path":"/driver_info/redfish_address","value":"http://192.0.2.66"}]`},
	} {
		w.edit(owned, func(n *metal.Node) { n.ProvisionState, n.DriverInfo = metal.Enroll, info() })
		if a := ask(tt.as, "PATCH", "/v1/nodes/"+owned, "1.82", tt.patch); a.Status != tt.status || !strings.Contains(a.errorText(), tt.words) || strings.Contains(a.Body, "hush") {
			t.Errorf("%s: %d %s", tt.patch, a.Status, a.errorText())
		}
	}
}

// TestManyCandidates: a list of candidates that is too long is refused before the nodes are looked for.
func TestManyCandidates(t *testing.T) {
	w := newWorld(t)
	w.machines("big", "n1")
	body := `{"resource_class": "big", "candidate_nodes": [` + strings.TrimSuffix(strings.Repeat(`"nobody",`, 1001), ",") + `]}`
	if a := w.want(400, "POST", "/v1/allocations", "1.60", body); !strings.Contains(a.errorText(), "1000") {
		t.Error(a.errorText())
	}
	w.want(400, "GET", "/v1/allocations?detail=true", "1.60", "") // there is no detail of allocations
	w.want(400, "GET", "/v1/nodes?shard="+strings.Repeat("a,", 20_000), "1.82", "")
	w.want(400, "GET", "/v1/nodes?shard="+strings.Repeat("a,", 300)+"b", "1.82", "")
}

// TestLongHost: the name by which the server is called is in ten links of each node of a page.
func TestLongHost(t *testing.T) {
	w := newWorld(t)
	for length, want := range map[int]int{200: 200, 300: 400, 60_000: 400} {
		for _, path := range []string{"/", "/v1", "/v1/nodes/detail"} {
			r := httptest.NewRequest("GET", "http://salvor.example"+path, nil)
			r.Host = strings.Repeat("h", length)
			rec := httptest.NewRecorder()
			w.handler.ServeHTTP(rec, r)
			if rec.Code != want || want == 400 && rec.Body.Len() > 1000 {
				t.Errorf("%s, %d bytes: %d, want %d", path, length, rec.Code, want)
			}
		}
	}
}

// TestOwnerOfNodeInUse: a node in use is given to others by administrators only.
func TestOwnerOfNodeInUse(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	system := access.Scope{System: true}
	for state, of := range map[metal.State]map[string]int{metal.Active: {"member": 400, "admin": 200}, metal.Manageable: {"member": 200, "admin": 200}} {
		w.edit(owned, func(n *metal.Node) { n.ProvisionState = state })
		for role, want := range of {
			who := w.persona(system, role, "member", "reader")
			if a := ask(who, "PATCH", "/v1/nodes/"+owned, "1.82", `[{"op": "replace", "path": "/owner", "value": "p9"}]`); a.Status != want {
				t.Errorf("%s, %s: %d, want %d: %s", state, role, a.Status, want, a.errorText())
			}
		}
	}
}

// TestRunbooksOfOthers: a private runbook of another project cannot be told from one that is not there, and a trait that is set twice is there once.
func TestRunbooksOfOthers(t *testing.T) {
	w := newWorld(t)
	w.tenancy()
	w.want(201, "POST", "/v1/runbooks", "1.112", `{"name": "theirs", "owner": "p2", "steps": [{"interface": "deploy", "step": "s", "order": 1, "args": {}}]}`)
	member := w.persona(access.Scope{Project: "p1"}, "member", "reader")
	told := map[string]string{}
	for _, name := range []string{"theirs", "absent"} {
		a := ask(member, "PUT", "/v1/nodes/"+owned+"/states/provision", "1.92", `{"target": "clean", "runbook": "`+name+`"}`)
		told[name] = fmt.Sprint(a.Status, strings.ReplaceAll(a.errorText(), name, "NAME"))
	}
	if told["theirs"] != told["absent"] || !strings.HasPrefix(told["theirs"], "404") {
		t.Errorf("%q", told)
	}
	for range 2 {
		w.want(204, "PUT", "/v1/runbooks/theirs/traits/CUSTOM_A", "1.112", "")
	}
	if got := w.want(200, "GET", "/v1/runbooks/theirs/traits", "1.112", "").Body; got != `{"traits":["CUSTOM_A"]}` {
		t.Error(got)
	}
}

// TestLongFilters: engines bound how long a pattern may be.
func TestLongFilters(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	for _, path := range []string{"/v1/nodes?description_contains=", "/v1/ports?description_contains=", "/v1/nodes?owner=", "/v1/volume/targets?volume_id="} {
		w.want(400, "GET", path+strings.Repeat("_", 40_000), "1.115", "")
	}
}
