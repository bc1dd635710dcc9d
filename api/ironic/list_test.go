package ironic_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"salvor/api/ironic"
	"salvor/metal"
	"salvor/record"
)

// fleet adds nodes n01 to nNN.
func (w *world) fleet(count int) {
	w.Helper()
	for i := 1; i <= count; i++ {
		w.node(func(n *metal.Node) {
			n.ID, n.Name = fmt.Sprintf("11111111-2222-4333-8444-%012d", i), fmt.Sprintf("n%02d", i)
			if n.Maintenance, n.Owner = i%2 == 0, "o"+fmt.Sprint(i%3); i%5 == 0 {
				n.ProvisionState = metal.Enroll
			}
		})
	}
}

func names(t *testing.T, a answer) []string {
	t.Helper()
	out := []string{}
	for _, n := range a.Object(t)["nodes"].([]any) {
		out = append(out, n.(map[string]any)["name"].(string))
	}
	return out
}

func TestPages(t *testing.T) {
	w := newWorld(t)
	w.fleet(7)
	var seen []string
	path := "/v1/nodes?limit=3&fields=name,uuid&sort_key=name&sort_dir=desc"
	for pages := 0; path != ""; pages++ {
		if pages > 4 {
			t.Fatal("no end of pages")
		}
		a := w.want(200, "GET", path, "1.82", "")
		seen = append(seen, names(t, a)...)
		next, _ := a.Object(t)["next"].(string)
		if path = strings.TrimPrefix(next, "http://salvor.example"); next != "" {
			u, _ := url.Parse(next)
			if q := u.Query(); q.Get("fields") != "name,uuid" || q.Get("limit") != "3" || q.Get("sort_dir") != "desc" || !record.IsUUID(q.Get("marker")) {
				t.Errorf("next: %s", next)
			}
		}
	}
	if diff := cmp.Diff([]string{"n07", "n06", "n05", "n04", "n03", "n02", "n01"}, seen); diff != "" {
		t.Error(diff)
	}
	w.config.MaxLimit = 2
	w.handler = ironic.New(w.config)
	for _, path := range []string{"/v1/nodes", "/v1/nodes?limit=1000", "/v1/nodes/detail"} {
		a := w.want(200, "GET", path, "1.82", "")
		if got := names(t, a); len(got) != 2 || a.Object(t)["next"] == nil {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestFilters(t *testing.T) {
	w := newWorld(t)
	w.fleet(6)
	for query, want := range map[string]string{
		"maintenance=true": "n02 n04 n06", "maintenance=false": "n01 n03 n05", "owner=o1": "n01 n04", "provision_state=enroll": "n05", "driver=redfish": "", "associated=true": "",
		"associated=no&limit=2": "n01 n02", "conductor_group=": "n01 n02 n03 n04 n05 n06", "conductor_group=far": "", "project=o2&maintenance=true": "n02", "retired=true": "", "sharded=false&owner=o0": "n03 n06",
		"conductor=cond1&owner=o0": "n03 n06", "conductor=other": "", "description_contains=%25": "", "resource_class=x": "", "lessee=x": "", "fault=clean%20failure": "", "shard=x": "",
		"instance_uuid=" + nodeID: "", "chassis_uuid=" + nodeID: "",
	} {
		if got := strings.Join(names(t, w.want(200, "GET", "/v1/nodes?"+query, "1.82", "")), " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	full := w.want(200, "GET", "/v1/nodes/detail?limit=1", "1.82", "").Object(t)["nodes"].([]any)[0]
	if same := w.want(200, "GET", "/v1/nodes?detail=true&limit=1", "1.82", "").Object(t)["nodes"].([]any)[0]; cmp.Diff(full, same) != "" {
		t.Error(cmp.Diff(full, same))
	}
}

func TestDriversAndConductors(t *testing.T) {
	w := newWorld(t)
	d := w.want(200, "GET", "/v1/drivers", "1.82", "").Object(t)["drivers"].([]any)
	if len(d) != 2 || d[0].(map[string]any)["name"] != "fake-hardware" || d[0].(map[string]any)["type"] != "dynamic" || d[0].(map[string]any)["default_power_interface"] != nil {
		t.Errorf("drivers: %v", d)
	}
	one := w.want(200, "GET", "/v1/drivers/redfish", "1.82", "").Object(t)
	if one["default_rescue_interface"] != "no-rescue" || cmp.Diff([]any{"no-rescue", "agent"}, one["enabled_rescue_interfaces"]) != "" || cmp.Diff([]any{"cond1"}, one["hosts"]) != "" {
		t.Errorf("redfish: %v", one)
	}
	if old := w.want(200, "GET", "/v1/drivers/redfish", "1.37", "").Object(t); old["default_rescue_interface"] != nil || old["default_power_interface"] != "redfish" {
		t.Errorf("redfish at 1.37: %v", old)
	}
	if old := w.want(200, "GET", "/v1/drivers/redfish", "1.13", "").Object(t); len(old) != 3 {
		t.Errorf("redfish at 1.13: %v", old)
	}
	if got := w.want(200, "GET", "/v1/drivers?type=classic", "1.82", "").Body; got != `{"drivers":[]}` {
		t.Errorf("classic: %s", got)
	}
	if got := w.want(200, "GET", "/v1/drivers/redfish/properties", "1.82", "").Body; got != `{"redfish_address":"URL of the BMC. Required."}` {
		t.Errorf("properties: %s", got)
	}
	w.want(200, "GET", "/v1/drivers/redfish?fields=name,default_boot_interface", "1.82", "")
	if got := w.want(200, "GET", "/v1/drivers/redfish/vendor_passthru/methods", "1.82", "").Body; got != `{}` {
		t.Errorf("methods: %s", got)
	}
	const links = `"links":[{"href":"http://salvor.example/v1/conductors/cond1","rel":"self"},{"href":"http://salvor.example/conductors/cond1","rel":"bookmark"}]`
	if got := w.want(200, "GET", "/v1/conductors", "1.49", "").Body; got != `{"conductors":[{"alive":true,"conductor_group":"","hostname":"cond1",`+links+`}]}` {
		t.Errorf("conductors: %s", got)
	}
	c := w.want(200, "GET", "/v1/conductors/cond1", "1.49", "").Object(t)
	if cmp.Diff([]any{"fake-hardware", "redfish"}, c["drivers"]) != "" || c["alive"] != true {
		t.Errorf("conductor: %v", c)
	}
	w.want(200, "GET", "/v1/conductors?detail=true&sort_key=alive&sort_dir=desc", "1.82", "")
}

func TestTraitsAndHistory(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	w.want(204, "PUT", "/v1/nodes/n1/traits", "1.37", `{"traits":["CUSTOM_B","CUSTOM_A","CUSTOM_B"]}`)
	w.want(204, "PUT", "/v1/nodes/n1/traits/HW_CPU_X86_VMX", "1.37", "")
	w.want(204, "DELETE", "/v1/nodes/n1/traits/CUSTOM_A", "1.37", "")
	if got := w.want(200, "GET", "/v1/nodes/n1/traits", "1.37", "").Body; got != `{"traits":["CUSTOM_B","HW_CPU_X86_VMX"]}` {
		t.Errorf("traits: %s", got)
	}
	w.want(204, "DELETE", "/v1/nodes/n1/traits", "1.37", "")
	var many []string
	for i := range 51 {
		many = append(many, fmt.Sprintf("%q", fmt.Sprintf("CUSTOM_%d", i)))
	}
	w.refuse([]refusal{{"PUT", "/v1/nodes/n1/traits", "1.82", `{"traits":[` + strings.Join(many, ",") + `]}`, 400, "more than 50"}})
	w.want(202, "PUT", "/v1/nodes/n1/maintenance", "1.82", "")
	all := w.want(200, "GET", "/v1/nodes/n1/history", "1.78", "").Object(t)["history"].([]any)
	if len(all) < 5 {
		t.Fatalf("history: %v", all)
	}
	var seen []any
	for path := "/v1/nodes/n1/history?limit=2&sort_dir=desc"; path != ""; {
		o := w.want(200, "GET", path, "1.82", "").Object(t)
		seen = append(seen, o["history"].([]any)...)
		next, _ := o["next"].(string)
		path = strings.TrimPrefix(next, "http://salvor.example")
	}
	for i, e := range seen {
		if diff := cmp.Diff(all[len(all)-1-i], e); diff != "" {
			t.Error(diff)
		}
	}
	id := all[2].(map[string]any)["uuid"].(string)
	if one := w.want(200, "GET", "/v1/nodes/n1/history/"+id, "1.82", "").Object(t); one["uuid"] != id || one["node_uuid"] != nodeID || one["event"] == "" {
		t.Errorf("one event: %v", one)
	}
	w.want(200, "GET", "/v1/nodes/n1/history?detail=true&marker="+id, "1.82", "")
	w.want(404, "GET", "/v1/nodes/n1/history?marker=x", "1.82", "")
}
