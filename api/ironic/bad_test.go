package ironic_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"salvor/metal"
)

// refusal is a request that must be a clear 4xx.
type refusal struct {
	method, path, version, body string
	status                      int
	message                     string
}

func (w *world) refuse(rows []refusal) {
	w.Helper()
	for _, r := range rows {
		a := w.ask(r.method, r.path, r.version, r.body)
		name := fmt.Sprintf("%s %.80s %.80s at %s", r.method, r.path, r.body, r.version)
		if a.Status != r.status || !strings.Contains(a.errorText(), r.message) {
			w.Errorf("%s: %d %.300s; want %d %q", name, a.Status, a.Body, r.status, r.message)
		}
		if a.errorText() == a.Body || a.Header.Get("Content-Type") != "application/json" {
			w.Errorf("%s: not Ironic's form of an error: %.300s", name, a.Body)
		}
	}
}

func TestBadNodes(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	deep := `{"driver":"fake-hardware","extra":` + strings.Repeat(`{"a":`, 30) + "1" + strings.Repeat("}", 31)
	bomb := strings.Repeat("[", 500_000)
	post := func(version, body string, status int, message string) refusal {
		return refusal{"POST", "/v1/nodes", version, body, status, message}
	}
	w.refuse([]refusal{
		post("1.82", ``, 400, "JSON object is required"),
		post("1.82", `{`, 400, "Malformed JSON"),
		post("1.82", `{"driver":"fake-hardware"} trailing`, 400, "Malformed JSON"),
		post("1.82", `[]`, 400, "must be a JSON object"),
		post("1.82", `null`, 400, "must be a JSON object"),
		post("1.82", `"x"`, 400, "must be a JSON object"),
		post("1.82", deep, 400, "nested deeper than 25"),
		post("1.82", bomb, 400, "more than 262144 values"),
		post("1.82", `{"extra":"`+strings.Repeat("x", 1<<20)+`"}`, 413, "larger than 1048576 bytes"),
		post("1.82", "{\"driver\":\"\xff\"}", 400, "UTF-8"),
		post("1.82", `{"driver":"fake-hardware","extra":{"a":"\u0000"}}`, 400, "NUL"),
		post("1.82", `{"driver":"fake-hardware","extra":{"\u0000":1}}`, 400, "NUL"),
		post("1.82", `{}`, 400, "driver"),
		post("1.82", `{"driver":null}`, 400, "driver"),
		post("1.82", `{"driver":7}`, 400, "must be a string"),
		post("1.82", `{"driver":"nope"}`, 400, "No valid host was found. Reason: No conductor service registered which supports driver nope for conductor group \"\""),
		post("1.82", `{"driver":"fake-hardware","conductor_group":"far"}`, 400, "No valid host"),
		post("1.82", `{"driver":"fake-hardware","extra":{"a":1e400}}`, 400, "out of range"),
		post("1.82", `{"driver":"fake-hardware","bogus":1}`, 400, "'bogus' was unexpected"),
		post("1.82", `{"driver":"fake-hardware","provision_state":"active"}`, 400, "unexpected"),
		post("1.82", `{"driver":"fake-hardware","traits":["A"]}`, 400, "traits"),
		post("1.82", `{"driver":"fake-hardware","protected":true}`, 400, "protected"),
		post("1.82", `{"driver":"fake-hardware","parent_node":"x"}`, 406, "1.83"),
		post("1.82", `{"driver":"fake-hardware","disable_power_off":true}`, 406, "1.95"),
		post("1.81", `{"driver":"fake-hardware","shard":"x"}`, 406, "1.82"),
		post("1.4", `{"driver":"fake-hardware","name":"x"}`, 406, "1.5"),
		post("1.30", `{"driver":"fake-hardware","power_interface":"fake"}`, 406, "1.31"),
		post("1.37", `{"driver":"fake-hardware","rescue_interface":"fake"}`, 406, "1.38"),
		post("1.82", `{"driver":"fake-hardware","rescue_interface":"agent"}`, 400, "rescue"),
		post("1.82", `{"driver":"fake-hardware","uuid":"x"}`, 400, "Expected UUID for uuid"),
		post("1.82", `{"driver":"fake-hardware","uuid":7}`, 400, "must be a string"),
		post("1.82", `{"driver":"fake-hardware","uuid":"`+nodeID+`"}`, 409, ""),
		post("1.82", `{"driver":"fake-hardware","instance_uuid":"x"}`, 400, "Expected a UUID"),
		post("1.82", `{"driver":"fake-hardware","chassis_uuid":"`+nodeID+`"}`, 400, "chassis_uuid"),
		post("1.82", `{"driver":"fake-hardware","name":"`+strings.Repeat("n", 256)+`"}`, 400, "not valid"),
		post("1.82", `{"driver":"fake-hardware","name":"a/b"}`, 400, "not valid"),
		post("1.82", `{"driver":"fake-hardware","name":"`+nodeID+`"}`, 400, "not valid"),
		post("1.82", `{"driver":"fake-hardware","extra":[]}`, 400, "must be an object"),
		post("1.82", `{"driver":"fake-hardware","maintenance":"perhaps"}`, 400, "must be a boolean"),
		post("1.82", `{"driver":"fake-hardware","automated_clean":[]}`, 400, "must be a boolean"),
		post("1.82", `{"driver":"fake-hardware","description":"`+strings.Repeat("d", 4097)+`"}`, 400, "4096"),
		post("1.82", `{"driver":"fake-hardware","driver_info":{"fake_password":"******"}}`, 400, "no secret is stored"),
		post("1.82", `{"driver":"fake-hardware","driver_info":{"list":[{"token":"******"}]}}`, 400, "no secret is stored"),
		post("1.82", `{"driver":"fake-hardware","instance_info":{"rescue_password":"x"}}`, 400, "rescue_password"),
		post("1.82", `{"driver":"fake-hardware","instance_info":{"configdrive":"******"}}`, 400, "no secret is stored"),
		{"POST", "/v1/nodes?x=1", "1.82", `{"driver":"fake-hardware"}`, 400, "Unexpected arguments: x"},
		{"GET", "/v1/nodes/" + strings.Repeat("n", 4000), "1.82", "", 404, ""},
		{"GET", "/v1/nodes/%00", "1.82", "", 400, "NUL"},
		{"GET", "/v1/nodes/%ff", "1.82", "", 400, "UTF-8"},
		{"GET", "/v1/nodes/n1/portgroups", "1.23", "", 404, "1.24"},
		{"GET", "/v1/nodes/" + strings.Repeat("a/", 3000), "1.82", "", 404, ""},
		{"GET", "/v1/portgroups", "1.22", "", 404, "1.23"},
		{"GET", "/v1/nodes/n1/states/console", "1.82", "", 400, "does not support console"},
		{"PUT", "/v1/nodes/n1/management/inject_nmi", "1.82", `{"x":1}`, 400, "no arguments"},
		{"POST", "/v1/nodes/n1/vendor_passthru?method=x", "1.82", "{}", 400, "does not support vendor_passthru"},
		{"GET", "/v1/nodes/n1/inventory", "1.82", "", 404, ""},
		{"GET", "/v1/nodes/n1/history/" + nodeID, "1.82", "", 404, ""},
		{"GET", "/v1/nodes/n1/history/x", "1.82", "", 404, ""},
		{"GET", "/v1/drivers/nope", "1.82", "", 404, "nope"},
		{"GET", "/v1/conductors/nope", "1.82", "", 404, "nope"},
		{"PUT", "/v1/nodes/n1/traits/lower", "1.82", "", 400, "Invalid trait"},
		{"PUT", "/v1/nodes/n1/traits", "1.82", `{"traits":"A"}`, 400, "list of strings"},
		{"PUT", "/v1/nodes/n1/traits", "1.82", `{"traits":[1]}`, 400, "list of strings"},
		{"DELETE", "/v1/nodes/n1/traits/CUSTOM_X", "1.82", "", 404, "CUSTOM_X"},
	})
}

func TestBadQueries(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	get := func(query, version string, status int, message string) refusal {
		return refusal{"GET", "/v1/nodes?" + query, version, "", status, message}
	}
	w.refuse([]refusal{
		get("bogus=1", "1.82", 400, "Unexpected arguments: bogus"),
		get("parent_node=x", "1.82", 406, "1.83"),
		get(strings.Repeat("x=1&", 1000)+strings.Repeat("y", 9000)+"=1", "1.82", 400, "Unexpected arguments"),
		get("%zz", "1.82", 400, "malformed"),
		get("a;b", "1.82", 400, "malformed"),
		get("driver=%00", "1.82", 400, "NUL"),
		get("driver=%ff", "1.82", 400, "UTF-8"),
		get("limit=0", "1.82", 400, "Limit must be positive"),
		get("limit=-1", "1.82", 400, "Limit must be positive"),
		get("limit=x", "1.82", 400, "limit"),
		get("limit=99999999999999999999", "1.82", 400, "limit"),
		get("marker="+strings.Replace(nodeID, "1", "9", 1), "1.82", 404, ""),
		get("marker=x", "1.82", 404, ""),
		get("marker="+strings.Repeat("x", 5000), "1.82", 404, ""),
		get("sort_key=bogus", "1.82", 400, "sort_key"),
		get("sort_key=extra", "1.82", 400, "sort_key"),
		get("sort_key=uuid;drop", "1.82", 400, ""),
		get("sort_key=owner", "1.49", 406, "1.50"),
		get("sort_dir=up", "1.82", 400, "sort direction"),
		get("fields=bogus", "1.82", 400, "bogus"),
		get("fields=", "1.82", 400, "fields"),
		get("fields=uuid", "1.7", 406, "1.8"),
		get("fields=uuid,rescue_interface", "1.37", 406, "1.38"),
		get("fields=uuid&detail=true", "1.82", 400, "detail"),
		get("detail=perhaps", "1.82", 400, "detail"),
		get("detail=true", "1.42", 406, "1.43"),
		get("associated=perhaps", "1.82", 400, "associated"),
		get("provision_state=bogus", "1.82", 400, "bogus"),
		get("provision_state=active", "1.8", 406, "1.9"),
		get("instance_uuid=x", "1.82", 400, "UUID"),
		get("conductor_group=", "1.45", 406, "1.46"),
		{"GET", "/v1/nodes/detail?fields=uuid", "1.82", "", 400, "fields"},
		{"GET", "/v1/nodes/n1?fields=bogus", "1.82", "", 400, "bogus"},
		{"GET", "/v1/nodes/n1?detail=true", "1.82", "", 400, "Unexpected arguments"},
		{"GET", "/v1/drivers?type=odd", "1.82", "", 400, "type"},
		{"GET", "/v1/drivers?fields=bogus", "1.82", "", 400, "bogus"},
		{"GET", "/v1/drivers?fields=name", "1.76", "", 406, "1.77"},
		{"GET", "/v1/drivers?type=dynamic", "1.29", "", 406, "1.30"},
		{"GET", "/v1/conductors?fields=bogus", "1.82", "", 400, "bogus"},
		{"GET", "/v1/conductors?marker=bogus", "1.82", "", 404, "bogus"},
		{"GET", "/v1/ports?node=nope", "1.82", "", 404, ""},
		{"GET", "/v1/ports?node_uuid=nope", "1.82", "", 400, "UUID"},
		{"GET", "/v1/ports?address=nope", "1.82", "", 400, "MAC"},
		{"GET", "/v1/ports?fields=is_smartnic", "1.52", "", 406, "1.53"},
		{"GET", "/v1/ports?fields=name", "1.82", "", 406, "1.88"}, {"GET", "/v1/ports?fields=bogus", "1.82", "", 400, "bogus"},
	})
	for _, f := range []struct{ arg, version, first string }{
		{"driver=x", "1.15", "1.16"}, {"resource_class=x", "1.20", "1.21"}, {"fault=clean%20failure", "1.41", "1.42"}, {"conductor=x", "1.48", "1.49"}, {"owner=x", "1.49", "1.50"},
		{"description_contains=x", "1.50", "1.51"}, {"retired=true", "1.60", "1.61"}, {"lessee=x", "1.64", "1.65"}, {"shard=x", "1.81", "1.82"}, {"sharded=true", "1.81", "1.82"},
	} {
		w.refuse([]refusal{get(f.arg, f.version, 406, f.first)})
		w.want(200, "GET", "/v1/nodes?"+f.arg, f.first, "")
	}
}

func TestBadPatches(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) {
		n.ProvisionState = metal.Enroll
		n.DriverInfo = metal.Object{"fake_password": "hush", "plain": "seen"}
		n.Extra = metal.Object{"list": []any{"a"}}
	})
	patch := func(body string, status int, message string) refusal {
		return refusal{"PATCH", "/v1/nodes/n1", "1.82", body, status, message}
	}
	op := func(s string) string { return "[" + s + "]" }
	rows := []refusal{
		patch(``, 400, "Malformed"), patch(`{}`, 400, "must be a list"), patch(`[]`, 400, "no operation"), patch(`[1]`, 400, "must be an object"), patch(`[null]`, 400, "must be an object"),
		patch(op(`{"op":"add","path":"/extra/x"}`), 400, "needs a value"),
		patch(op(`{"op":"bogus","path":"/extra/x","value":1}`), 400, "add, replace or remove"),
		patch(op(`{"op":"copy","from":"/driver_info/fake_password","path":"/extra/x"}`), 400, ""),
		patch(op(`{"op":"move","path":"/extra/x","value":1}`), 400, "add, replace or remove"),
		patch(op(`{"op":"test","path":"/driver_info/fake_password","value":"hush"}`), 400, "add, replace or remove"),
		patch(op(`{"op":7,"path":"/extra/x","value":1}`), 400, "add, replace or remove"),
		patch(op(`{"op":"add","path":7,"value":1}`), 400, "path"),
		patch(op(`{"op":"add","path":"","value":1}`), 400, "path"), patch(op(`{"op":"add","path":"/","value":1}`), 400, "path"),
		patch(op(`{"op":"add","path":"extra/x","value":1}`), 400, "path"), patch(op(`{"op":"add","path":"//x","value":1}`), 400, "path"),
		patch(op(`{"op":"add","path":"/extra/x","value":1,"more":2}`), 400, "unexpected key"),
		patch(op(`{"op":"replace","path":"/extra/none","value":1}`), 400, "Couldn't apply patch"),
		patch(op(`{"op":"remove","path":"/extra/none"}`), 400, "Couldn't apply patch"),
		patch(op(`{"op":"add","path":"/extra/list/99999999","value":1}`), 400, "Couldn't apply patch"),
		patch(op(`{"op":"add","path":"/extra/list/-2","value":1}`), 400, "Couldn't apply patch"),
		patch(op(`{"op":"add","path":"/extra/a/b/c","value":1}`), 400, "Couldn't apply patch"),
		patch(op(`{"op":"remove","path":"/driver"}`), 400, "driver"),
		patch(op(`{"op":"replace","path":"/driver","value":"nope"}`), 400, "No valid host"),
		patch(op(`{"op":"replace","path":"/name","value":7}`), 400, "must be a string"),
		patch(op(`{"op":"replace","path":"/extra","value":7}`), 400, "must be an object"),
		patch(op(`{"op":"replace","path":"/protected","value":true}`), 409, "active and rescue"),
		patch(op(`{"op":"replace","path":"/protected_reason","value":"x"}`), 400, "protected"),
		patch(op(`{"op":"replace","path":"/retired_reason","value":"x"}`), 400, "retired"),
		patch(op(`{"op":"add","path":"/instance_info/rescue_password","value":"x"}`), 400, "rescue_password"),
		patch(op(`{"op":"add","path":"/driver_info/other_password","value":"******"}`), 400, "no secret is stored"),
		patch(op(`{"op":"add","path":"/network_interface","value":"nope"}`), 400, "network"),
		patch("["+strings.Repeat(`{"op":"add","path":"/extra/x","value":1},`, 600)+`{"op":"add","path":"/extra/x","value":1}]`, 400, "more than 500"),
		{"PATCH", "/v1/nodes/n1?reset_interfaces=true", "1.82", `[{"op":"add","path":"/extra/x","value":1}]`, 400, "reset_interfaces"},
		{"PATCH", "/v1/nodes/n1?reset_interfaces=true", "1.44", `[{"op":"add","path":"/driver","value":"redfish"}]`, 406, "1.45"},
		{"PATCH", "/v1/nodes/n1?bogus=true", "1.82", `[{"op":"add","path":"/extra/x","value":1}]`, 400, "bogus"},
		{"PATCH", "/v1/nodes/n1", "1.49", `[{"op":"add","path":"/owner","value":"x"}]`, 406, "1.50"},
		{"PATCH", "/v1/nodes/n1", "1.82", `[{"op":"add","path":"/instance_name","value":"x"}]`, 406, "1.104"},
		{"PATCH", "/v1/nodes/nope", "1.82", `[{"op":"add","path":"/extra/x","value":1}]`, 404, ""},
	}
	for _, field := range []string{
		"uuid", "id", "power_state", "target_power_state", "provision_state", "target_provision_state", "provision_updated_at", "reservation", "last_error", "driver_internal_info",
		"created_at", "updated_at", "maintenance_reason", "fault", "console_enabled", "clean_step", "deploy_step", "raid_config", "target_raid_config", "traits", "links", "bogus",
		"inspection_started_at", "inspection_finished_at", "conductor", "allocation_uuid", "boot_mode", "secure_boot",
	} {
		rows = append(rows, patch(op(`{"op":"replace","path":"/`+field+`","value":"x"}`), 400, "Cannot patch /"+field+". Only the following can be updated"))
	}
	w.refuse(rows)
	half := strings.Repeat("x", 600_000)
	w.want(200, "PATCH", "/v1/nodes/"+strings.ToUpper(nodeID), "1.82", `[{"op":"add","path":"/extra/one","value":"`+half+`"}]`)
	w.refuse([]refusal{patch(op(`{"op":"add","path":"/extra/two","value":"`+half+`"}`), 400, "larger than 1048576 bytes")})
	got := w.want(200, "GET", "/v1/nodes/n1", "1.82", "").Object(t)
	if extra := got["extra"].(map[string]any); extra["x"] != nil || extra["two"] != nil {
		t.Errorf("a refused patch left its mark: %v", got)
	}
	if strings.Contains(w.log.String(), "hush") {
		t.Error("a secret is in the log")
	}
}

func TestBadProvision(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	put := func(version, body string, status int, message string) refusal {
		return refusal{"PUT", "/v1/nodes/n1/states/provision", version, body, status, message}
	}
	w.refuse([]refusal{
		put("1.82", `{}`, 400, "target"), put("1.82", `{"target":7}`, 400, "target"), put("1.82", `{"target":null}`, 400, "target"), put("1.82", `x`, 400, "Malformed"),
		put("1.82", `{"target":"bogus"}`, 400, `The requested action "bogus" can not be performed on node "`+nodeID+`" while it is in state "active".`),
		put("1.82", `{"target":"`+strings.Repeat("x", 100_000)+`"}`, 400, "can not be performed"),
		put("1.82", `{"target":"rescue"}`, 400, `A non-empty "rescue_password" is required`),
		put("1.82", `{"target":"rescue","rescue_password":"  "}`, 400, `A non-empty "rescue_password" is required`),
		put("1.82", `{"target":"rescue","rescue_password":null}`, 400, `A non-empty "rescue_password" is required`),
		put("1.82", `{"target":"rescue","rescue_password":7}`, 400, "must be a string"),
		put("1.82", `{"target":"rescue","rescue_password":"a\nb"}`, 400, "one line"),
		put("1.82", `{"target":"rescue","rescue_password":"`+strings.Repeat("p", 2000)+`"}`, 400, "1024"),
		put("1.82", `{"target":"rescue","rescue_password":"x","clean_steps":[]}`, 400, `"clean_steps" is only valid`),
		put("1.82", `{"target":"rescue","rescue_password":"x","configdrive":"y"}`, 400, `"configdrive" is only valid`),
		put("1.82", `{"target":"rescue","rescue_password":"x","bogus":"y"}`, 400, "Unexpected arguments: bogus"),
		put("1.82", `{"target":"deleted","rescue_password":"x"}`, 400, `"rescue_password" is only valid when setting target provision state to rescue`),
		put("1.82", `{"target":"rebuild","configdrive":7}`, 400, "configdrive"),
		put("1.82", `{"target":"rebuild","configdrive":{"bogus":1}}`, 400, "bogus"),
		put("1.55", `{"target":"rebuild","configdrive":{}}`, 400, "1.56"), put("1.34", `{"target":"rebuild","configdrive":"x"}`, 400, "1.35"),
		put("1.68", `{"target":"rebuild","deploy_steps":[]}`, 406, "1.69"),
		put("1.82", `{"target":"rebuild","deploy_steps":{}}`, 400, "list of steps"), put("1.82", `{"target":"rebuild","deploy_steps":[1]}`, 400, "deploy_steps[0]"),
		put("1.82", `{"target":"rebuild","deploy_steps":[{"interface":"deploy","step":"x"}]}`, 400, "priority"),
		put("1.82", `{"target":"rebuild","deploy_steps":[{"interface":"odd","step":"x","priority":1}]}`, 400, "interface"),
		put("1.82", `{"target":"service","service_steps":[]}`, 406, "1.87"), put("1.72", `{"target":"undeploy"}`, 406, "1.73"), put("1.37", `{"target":"rescue"}`, 406, "1.38"),
		{"PUT", "/v1/nodes/nope/states/provision", "1.82", `{"target":"manage"}`, 404, "could not be found"},
	})
	w.edit(nodeID, func(n *metal.Node) { n.Interfaces = map[string]string{"rescue": "no-rescue"} })
	w.refuse([]refusal{put("1.82", `{"target":"rescue","rescue_password":"x"}`, 400, "not supported by its rescue interface no-rescue")})
	w.edit(nodeID, func(n *metal.Node) { n.Driver, n.Interfaces = "redfish", map[string]string{"rescue": "agent"} })
	w.refuse([]refusal{put("1.82", `{"target":"rescue","rescue_password":"x"}`, 400, "redfish_address")})
	w.edit(nodeID, func(n *metal.Node) { n.DriverInfo = metal.Object{"redfish_address": "http://x"} })
	w.refuse([]refusal{put("1.82", `{"target":"rescue","rescue_password":"x"}`, 400, "rescue_kernel")})
	w.edit(nodeID, func(n *metal.Node) { n.Driver = "gone" })
	w.refuse([]refusal{put("1.82", `{"target":"rescue","rescue_password":"x"}`, 503, "gone")})
	if got := w.want(200, "GET", "/v1/nodes/n1", "1.82", "").Object(t); got["provision_state"] != "active" || got["reservation"] != nil {
		t.Errorf("a refused verb left its mark: %v", got)
	}
	w.edit(nodeID, func(n *metal.Node) { n.Driver, n.Interfaces, n.Maintenance = "fake-hardware", nil, true })
	w.refuse([]refusal{put("1.82", `{"target":"rescue","rescue_password":"x"}`, 400, "maintenance")})
	w.edit(nodeID, func(n *metal.Node) { n.Maintenance, n.Protected = false, true })
	w.refuse([]refusal{put("1.82", `{"target":"deleted"}`, 403, "protected"), put("1.82", `{"target":"rebuild"}`, 403, "protected")})
	w.lock(nodeID)
	w.refuse([]refusal{put("1.82", `{"target":"rescue","rescue_password":"x"}`, 409, "locked"), put("1.82", `{"target":"bogus"}`, 409, "locked")})
}

// TestAnythingIsNoServerError asks every kind of path with every method and odd bodies: whatever comes back, it is no 500.
func TestAnythingIsNoServerError(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	idents := []string{"n1", nodeID, "nope", url.PathEscape("../../etc"), "%25", "''", "-"}
	paths := []string{"", "/validate", "/states", "/states/power", "/states/provision", "/states/raid", "/maintenance", "/traits", "/traits/X", "/vifs", "/bios", "/bios/x", "/history", "/history/x", "/ports", "/ports/detail", "/inventory", "/firmware", "/vendor_passthru/methods"}
	bodies := []string{"", "null", "[]", "{}", "7", `{"target":[]}`, `[{"op":"add","path":"/extra","value":null}]`, `{"traits":null}`}
	for _, ident := range idents {
		for _, path := range paths {
			for _, method := range []string{"GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"} {
				if method == "DELETE" && path == "" {
					continue
				}
				for i, body := range bodies {
					if i > 0 && (method == "GET" || method == "HEAD") {
						continue
					}
					if a := w.ask(method, "/v1/nodes/"+ident+path, "1.82", body); a.Status >= http.StatusInternalServerError {
						t.Errorf("%s /v1/nodes/%s%s %s: %d %s", method, ident, path, body, a.Status, a.Body)
					}
				}
			}
		}
	}
}

// TestUnknownKeysNameTheNearest: what real Ironic refuses as an additional property, or as a path, is refused with the key that was probably meant.
func TestUnknownKeysNameTheNearest(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	w.refuse([]refusal{
		{"POST", "/v1/nodes", "1.82", `{"driver":"fake-hardware","resource_clas":"x"}`, 400, "('resource_clas' was unexpected); did you mean resource_class?"},
		{"POST", "/v1/ports", "1.82", `{"node_uuid":"` + nodeID + `","adress":"52:54:00:00:00:01"}`, 400, "('adress' was unexpected); did you mean address?"},
		{"POST", "/v1/nodes", "1.82", `{"driver":"fake-hardware","` + strings.Repeat("z", 5000) + `":"x"}`, 400, "was unexpected)"},
		{"PATCH", "/v1/nodes/n1", "1.82", `[{"op":"add","path":"/drivr_info/a","value":"b"}]`, 400, "did you mean /driver_info?"},
	})
}
