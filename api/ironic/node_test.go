package ironic_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestNodeLife(t *testing.T) {
	w := newWorld(t)
	a := w.want(201, "POST", "/v1/nodes", "1.82", `{"driver":"fake-hardware","name":"n1","driver_info":{"fake_password":"hush","a":1},"extra":{"k":"v"},"resource_class":"big"}`)
	n := a.Object(t)
	id := n["uuid"].(string)
	if got, want := a.Header.Get("Location"), "http://salvor.example/v1/nodes/"+id; got != want {
		t.Errorf("Location %q, want %q", got, want)
	}
	if n["provision_state"] != "enroll" || n["power_interface"] != "fake" || n["driver_info"].(map[string]any)["fake_password"] != "******" {
		t.Errorf("created: %s", a.Body)
	}
	w.want(409, "POST", "/v1/nodes", "1.82", `{"driver":"fake-hardware","name":"n1"}`)
	for _, ident := range []string{id, "n1"} {
		if got := w.want(200, "GET", "/v1/nodes/"+ident, "1.82", ""); got.Object(t)["uuid"] != id {
			t.Errorf("get %s: %s", ident, got.Body)
		}
	}
	a = w.want(200, "PATCH", "/v1/nodes/n1", "1.82", `[{"op":"add","path":"/extra/new","value":{"deep":[1]}},{"op":"remove","path":"/extra/k"},{"op":"replace","path":"/name","value":"n2"}]`)
	if got := a.Object(t); got["name"] != "n2" || len(got["extra"].(map[string]any)) != 1 {
		t.Errorf("patched: %s", a.Body)
	}
	a = w.want(202, "PUT", "/v1/nodes/n2/states/provision", "1.82", `{"target":"manage"}`)
	if a.Body != "" || a.Header.Get("Location") != "http://salvor.example/v1/nodes/n2/states" {
		t.Errorf("manage: %q, Location %q", a.Body, a.Header.Get("Location"))
	}
	if got := w.want(200, "GET", "/v1/nodes/n2/states", "1.82", "").Object(t); got["provision_state"] != "verifying" || got["target_provision_state"] != "manageable" {
		t.Errorf("states: %v", got)
	}
	w.want(409, "DELETE", "/v1/nodes/n2", "1.82", "")
	w.want(202, "PUT", "/v1/nodes/n2/maintenance", "1.82", `{"reason":"why"}`)
	if got := w.want(200, "GET", "/v1/nodes/n2?fields=maintenance,maintenance_reason", "1.82", "").Object(t); got["maintenance_reason"] != "why" || len(got) != 3 {
		t.Errorf("maintenance: %v", got)
	}
	w.want(202, "DELETE", "/v1/nodes/n2/maintenance", "1.82", "")
	w.want(404, "GET", "/v1/nodes/nope", "1.82", "")
}

func TestRootAndVersions(t *testing.T) {
	w := newWorld(t)
	a := w.want(200, "GET", "/", "", "")
	if a.Header.Get("X-OpenStack-Ironic-API-Version") != "" || !strings.Contains(a.Body, `"version":"1.115"`) {
		t.Errorf("root: %v %s", a.Header, a.Body)
	}
	for _, tt := range []struct {
		version            string
		status             int
		spoken, minV, maxV string
	}{
		{"", 200, "1.1", "1.1", "1.115"}, {"1.38", 200, "1.38", "1.1", "1.115"}, {"latest", 200, "1.115", "1.1", "1.115"},
		{"1.116", 406, "", "1.1", "1.115"}, {"2.1", 406, "", "1.1", "1.115"}, {"1.0", 406, "", "1.1", "1.115"}, {"nonsense", 406, "", "", ""}, {"1.", 406, "", "", ""},
	} {
		a := w.ask("GET", "/v1", tt.version, "")
		h := a.Header
		if a.Status != tt.status || h.Get("X-OpenStack-Ironic-API-Version") != tt.spoken || h.Get("X-OpenStack-Ironic-API-Minimum-Version") != tt.minV ||
			h.Get("X-OpenStack-Ironic-API-Maximum-Version") != tt.maxV || !strings.HasPrefix(h.Get("Openstack-Request-Id"), "req-") {
			t.Errorf("version %q: %d %v", tt.version, a.Status, h)
		}
		if tt.status == 406 && !strings.Contains(a.errorText(), "[1.1, 1.115]") {
			t.Errorf("version %q: %s", tt.version, a.Body)
		}
	}
	w.want(404, "GET", "/v1/nothing", "1.82", "")
	w.want(200, "GET", "/v1/nodes/", "1.82", "")
	a = w.want(405, "PUT", "/v1/nodes", "1.82", "")
	if a.Header.Get("Allow") != "GET, POST" || a.Header.Get("X-OpenStack-Ironic-API-Version") != "" {
		t.Errorf("405: %v", a.Header)
	}
	if got := w.want(http.StatusNotFound, "GET", "/v1/conductors", "1.48", ""); got.Header.Get("X-OpenStack-Ironic-API-Version") != "1.48" {
		t.Errorf("newer route: %v", got.Header)
	}
}
