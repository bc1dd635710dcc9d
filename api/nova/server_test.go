package nova_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"salvor/compute"
)

func TestServerLife(t *testing.T) {
	w := newWorld(t)
	a := w.want(202, "POST", "/servers", "2.1", `{"server": {"name": "web", "flavorRef": "1", "imageRef": "`+imageOne+`", "metadata": {"a": "b"}, "adminPass": "hush-hush"}}`)
	id, _ := at(a.Object(t), "server", "id").(string)
	if at(a.Object(t), "server", "adminPass") != "hush-hush" || !strings.HasSuffix(a.Header.Get("Location"), "/compute/v2.1/servers/"+id) {
		t.Fatal(a.Body, a.Header)
	}
	if strings.Contains(w.log.String(), "hush-hush") {
		t.Error("the log tells a password")
	}
	o := w.want(200, "GET", "/servers/"+id, "2.1", "").Object(t)
	if at(o, "server", "status") != "BUILD" || at(o, "server", "OS-EXT-STS:vm_state") != "building" || at(o, "server", "image", "id") != imageOne || at(o, "server", "flavor", "id") != "1" {
		t.Fatal(o)
	}
	w.finish(id, compute.Active, compute.PowerOn)
	o = w.want(200, "GET", "/servers/"+id, "2.88", "").Object(t)
	if at(o, "server", "status") != "ACTIVE" || at(o, "server", "flavor", "original_name") != "m1.tiny" || at(o, "server", "OS-EXT-STS:power_state") != 1.0 {
		t.Fatal(o)
	}
	w.want(200, "PUT", "/servers/"+id, "2.19", `{"server": {"name": "db", "description": "d"}}`)
	for _, filter := range []string{"name=db", "name=^db$", "name=^d", "status=ACTIVE", "status=active", "flavor=1", "image=" + imageOne, "limit=1", "changes-since=2020-01-01T00:00:00Z", "vm_state=stopped"} {
		l := w.want(200, "GET", "/servers?"+filter, "2.66", "").Object(t)
		if servers, _ := l["servers"].([]any); len(servers) != 1 {
			t.Errorf("%s: %v", filter, l)
		}
	}
	for _, filter := range []string{"name=web", "status=SHUTOFF", "status=REBOOT", "flavor=7", "image=" + nothing, "name=%5Ew.%2B", "tags=x", "changes-before=2020-01-01"} {
		l := w.want(200, "GET", "/servers?"+filter, "2.66", "").Object(t)
		if servers, _ := l["servers"].([]any); len(servers) != 0 {
			t.Errorf("%s: %v", filter, l)
		}
	}
	w.want(204, "DELETE", "/servers/"+id, "", "")
	w.want(400, "GET", "/servers?name=%28", "", "")
	w.want(400, "GET", "/servers?nonsense=1", "2.75", "")
	w.want(200, "GET", "/servers?nonsense=1", "2.74", "")
	w.want(403, "GET", "/servers?all_tenants=1", "", "")
}

func TestServersOfOthers(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.as(eve)
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/servers/" + id, ""}, {"DELETE", "/servers/" + id, ""}, {"PUT", "/servers/" + id, `{"server": {"name": "mine"}}`},
		{"POST", "/servers/" + id + "/action", `{"os-stop": null}`}, {"POST", "/servers/" + id + "/action", `{"rescue": null}`}, {"GET", "/servers/" + id + "/metadata", ""},
		{"GET", "/servers/" + id + "/os-volume_attachments", ""}, {"GET", "/servers/" + id + "/os-instance-actions", ""}, {"GET", "/servers/" + id + "/ips", ""},
	} {
		a := w.want(404, r.method, r.path, "", r.body)
		if name, message := a.fault(); name != "itemNotFound" || message != "Instance "+id+" could not be found." {
			t.Errorf("%s %s: %s", r.method, r.path, a.Body)
		}
	}
	if l := w.want(200, "GET", "/servers/detail", "", ""); l.Body != `{"servers":[]}` {
		t.Error(l.Body)
	}
	w.as(peep)
	w.want(200, "GET", "/servers/"+id, "", "")
	w.want(403, "DELETE", "/servers/"+id, "", "")
	w.want(403, "POST", "/servers/"+id+"/action", "", `{"os-stop": null}`)
	w.as(boss)
	o := w.want(200, "GET", "/servers/"+id, "2.16", "").Object(t)
	if at(o, "server", "OS-EXT-SRV-ATTR:host") != "rack1" || at(o, "server", "host_status") != "UP" {
		t.Error(o)
	}
	for _, path := range []string{"/os-services", "/os-hypervisors", "/os-aggregates", "/os-migrations"} {
		w.as(ann)
		w.want(403, "GET", path, "", "")
		w.as(boss)
		w.want(200, "GET", path, "", "")
	}
}

// shapes are the fields of a server by the first microversion that has them.
var shapes = []struct {
	since    int
	name     string
	admin    bool
	vanishes int
}{
	{1, "id", false, 0}, {1, "accessIPv4", false, 0}, {1, "OS-EXT-STS:vm_state", false, 0}, {1, "os-extended-volumes:volumes_attached", false, 0}, {1, "hostId", false, 0},
	{1, "OS-EXT-SRV-ATTR:host", true, 0}, {1, "OS-EXT-SRV-ATTR:instance_name", true, 0}, {1, "OS-SRV-USG:launched_at", false, 0}, {1, "config_drive", false, 0},
	{3, "OS-EXT-SRV-ATTR:hostname", true, 0}, {3, "OS-EXT-SRV-ATTR:root_device_name", true, 0}, {9, "locked", false, 0}, {16, "host_status", true, 0}, {19, "description", false, 0},
	{26, "tags", false, 0}, {63, "trusted_image_certificates", false, 0}, {71, "server_groups", false, 0}, {73, "locked_reason", false, 0},
}

func TestServerShapes(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	for _, minor := range []int{1, 2, 3, 8, 9, 16, 19, 26, 46, 47, 53, 63, 71, 73, 75, 79, 88} {
		for _, admin := range []bool{false, true} {
			if w.as(ann); admin {
				w.as(boss)
			}
			version := fmt.Sprintf("2.%d", minor)
			a := w.want(200, "GET", "/servers/"+id, version, "")
			srv, _ := at(a.Object(t), "server").(map[string]any)
			list := w.want(200, "GET", "/servers/detail", version, "").Object(t)
			listed, _ := list["servers"].([]any)[0].(map[string]any)
			for _, f := range shapes {
				want := minor >= f.since && (admin || !f.admin)
				if _, ok := srv[f.name]; ok != want {
					t.Errorf("at %s, admin %v: %s is there: %v", version, admin, f.name, ok)
				}
				if _, ok := listed[f.name]; ok != (want && f.name != "server_groups") {
					t.Errorf("in a list at %s, admin %v: %s is there: %v", version, admin, f.name, ok)
				}
			}
			if _, embedded := at(srv, "flavor").(map[string]any)["vcpus"]; embedded != (minor >= 47) {
				t.Errorf("at %s: flavor %v", version, srv["flavor"])
			}
			if got := a.Header.Get("Openstack-Api-Version"); got != "compute "+version || a.Header.Get("X-Openstack-Nova-Api-Version") != version || !slices.Contains(a.Header["Vary"], "OpenStack-API-Version") {
				t.Errorf("headers %v", a.Header)
			}
		}
	}
}

func TestCreateRefusals(t *testing.T) {
	w := newWorld(t)
	base := func(more string) string {
		return `{"server": {"name": "web", "flavorRef": "1", "imageRef": "` + imageOne + `"` + more + `}}`
	}
	hinted := func(key, hints string) string {
		return `{"server": {"name": "web", "flavorRef": 1, "imageRef": "` + imageOne + `"}, "` + key + `": ` + hints + `}`
	}
	for _, tt := range []struct {
		version, body string
		status        int
		words         string
	}{
		{"2.1", `{}`, 400, "'server' is a required property"},
		{"2.1", `{"server": null}`, 400, "is not of type 'object'"},
		{"2.1", `{"server": {"flavorRef": "1"}}`, 400, "'name' is a required property"},
		{"2.1", base(`, "nonsense": 1`), 400, "Additional properties are not allowed ('nonsense' was unexpected)"},
		{"2.1", base(`, "description": "d"`), 400, "'description' was unexpected"},
		{"2.19", base(`, "description": "d"`), 202, ""},
		{"2.51", base(`, "networks": "none", "tags": ["a"]`), 400, "'tags' was unexpected"},
		{"2.52", base(`, "networks": "none", "tags": ["a"]`), 202, ""},
		{"2.52", base(`, "networks": "none", "tags": ["a", "a"]`), 400, "non-unique"},
		{"2.52", base(`, "networks": "none", "tags": ["a/b"]`), 400, "does not match"},
		{"2.37", base(``), 400, "'networks' is a required property"},
		{"2.36", base(`, "networks": "none"`), 400, "is not of type 'array'"},
		{"2.37", base(`, "networks": "all"`), 400, "is not one of ['auto', 'none']"},
		{"2.1", base(`, "min_count": 3, "max_count": 2`), 400, "min_count must be <= max_count"},
		{"2.1", base(`, "min_count": 0`), 400, "less than the minimum of 1"},
		{"2.1", base(`, "user_data": "%%%"`), 400, "base64"},
		{"2.1", base(`, "key_name": "nobody"`), 400, "Invalid key_name provided."},
		{"2.1", base(`, "networks": [{"uuid": "` + nothing + `"}]`), 400, "could not be found"},
		{"2.1", base(`, "networks": [{"port": "` + nothing + `"}]`), 400, "Port"},
		{"2.57", base(`, "networks": "none", "personality": []`), 400, "'personality' was unexpected"},
		{"2.56", base(`, "networks": "none", "personality": [{"path": "/a", "contents": "aGk="}]`), 400, "user_data"},
		{"2.56", base(`, "networks": "none", "personality": []`), 202, ""},
		{"2.74", base(`, "networks": "none", "host": "rack1"`), 403, ""},
		{"2.1", base(`, "availability_zone": "nova:rack1"`), 403, ""},
		{"2.1", base(`, "block_device_mapping_v2": [{"source_type": "snapshot", "uuid": "` + nothing + `"}]`), 400, "Block Device Mapping is Invalid"},
		{"2.1", base(`, "block_device_mapping_v2": [{"source_type": "volume", "uuid": "` + nothing + `", "boot_index": "0"}]`), 400, "Boot sequence"},
		{"2.1", `{"server": {"name": "web", "flavorRef": "1", "imageRef": ""}}`, 400, "Invalid imageRef provided."},
		{"2.1", `{"server": {"name": "web", "flavorRef": "1", "imageRef": "` + nothing + `"}}`, 400, "Can not find requested image"},
		{"2.1", `{"server": {"name": "web", "flavorRef": "17", "imageRef": "` + imageOne + `"}}`, 400, "Flavor 17 could not be found."},
		{"2.1", hinted("os:scheduler_hints", `{"group": "x"}`), 400, "The hint group is not supported"},
		{"2.1", hinted("OS-SCH-HNT:scheduler_hints", `{"different_host": ["`+nothing+`"]}`), 400, "The hint different_host is not supported"},
		{"2.1", hinted("os:scheduler_hints", `{"same_host": [], "query": false}`), 400, "The hint query is not supported"},
		{"2.1", hinted("os:scheduler_hints", `{}`), 202, ""}, // as libraries send where nothing was asked
		{"2.1", hinted("os:scheduler_hints", `{"group": "", "same_host": [], "query": null}`), 202, ""},
		{"2.1", base(`, "security_groups": [{"name": "default"}, {"name": "web"}]`), 400, "Security group web is not supported"},
		{"2.1", base(`, "security_groups": [{"name": "default"}]`), 202, ""},
		{"2.1", base(`, "security_groups": []`), 202, ""},
		{"2.1", `{"server": {"name": " web", "flavorRef": 1, "imageRef": "` + imageOne + `"}}`, 400, "name"},
		{"2.1", `[]`, 400, ""}, {"2.1", ``, 400, ""}, {"2.1", `{`, 400, ""},
	} {
		a := w.ask("POST", "/servers", tt.version, tt.body)
		name, message := a.fault()
		if a.Status != tt.status || !strings.Contains(message, tt.words) || tt.status == 400 && name != "badRequest" {
			t.Errorf("%s %s: %d %s", tt.version, tt.body, a.Status, a.Body)
		}
	}
}

func TestPages(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for range 5 {
		ids = append([]string{w.create("")}, ids...)
	}
	var got []string
	path := "/compute/v2.1/servers?limit=2"
	for rounds := 0; path != "" && rounds < 5; rounds++ {
		o := w.want(200, "GET", path, "2.1", "").Object(t)
		for _, s := range o["servers"].([]any) {
			got = append(got, at(s, "id").(string))
		}
		path = ""
		if links, ok := o["servers_links"].([]any); ok {
			path = strings.TrimPrefix(at(links[0], "href").(string), "http://salvor.example")
		}
	}
	if !slices.Equal(got, ids) {
		t.Errorf("got %v, want %v", got, ids)
	}
	w.want(400, "GET", "/servers?marker="+nothing, "", "")
	w.want(400, "GET", "/servers?limit=-1", "", "")
	w.want(400, "GET", "/servers?sort_key=nonsense", "", "")
	if o := w.want(200, "GET", "/servers?sort_key=created_at&sort_dir=asc&limit=1", "", "").Object(t); at(o["servers"].([]any)[0], "id") != ids[4] {
		t.Error(o)
	}
}

func TestMetadataAndTags(t *testing.T) {
	w := newWorld(t)
	id := w.create(`, "metadata": {"a": "1"}`)
	base := "/servers/" + id
	check := func(a answer, want string) {
		t.Helper()
		if a.Body != want {
			t.Errorf("%s, want %s", a.Body, want)
		}
	}
	check(w.want(200, "GET", base+"/metadata", "", ""), `{"metadata":{"a":"1"}}`)
	check(w.want(200, "POST", base+"/metadata", "", `{"metadata": {"b": "2"}}`), `{"metadata":{"a":"1","b":"2"}}`)
	check(w.want(200, "PUT", base+"/metadata/c", "", `{"meta": {"c": "3"}}`), `{"meta":{"c":"3"}}`)
	w.want(400, "PUT", base+"/metadata/c", "", `{"meta": {"d": "3"}}`)
	w.want(400, "PUT", base+"/metadata/c", "", `{"meta": {"c": 3}}`)
	w.want(204, "DELETE", base+"/metadata/a", "", "")
	w.want(404, "DELETE", base+"/metadata/a", "", "")
	w.want(404, "GET", base+"/metadata/a", "", "")
	check(w.want(200, "PUT", base+"/metadata", "", `{"metadata": {"z": "9"}}`), `{"metadata":{"z":"9"}}`)
	w.want(404, "GET", base+"/tags", "2.25", "")
	check(w.want(200, "GET", base+"/tags", "2.26", ""), `{"tags":[]}`)
	w.want(201, "PUT", base+"/tags/one", "2.26", "")
	w.want(204, "PUT", base+"/tags/one", "2.26", "")
	w.want(204, "GET", base+"/tags/one", "2.26", "")
	w.want(404, "GET", base+"/tags/two", "2.26", "")
	w.want(400, "PUT", base+"/tags/a,b", "2.26", "")
	check(w.want(200, "PUT", base+"/tags", "2.26", `{"tags": ["x", "y"]}`), `{"tags":["x","y"]}`)
	for query, n := range map[string]int{"tags=x,y": 1, "tags=x,q": 0, "tags-any=x,q": 1, "not-tags=x": 0, "not-tags-any=q": 1} {
		if l := w.want(200, "GET", "/servers?"+query, "2.26", "").Object(t)["servers"].([]any); len(l) != n {
			t.Errorf("%s: %v", query, l)
		}
	}
	w.want(204, "DELETE", base+"/tags/x", "2.26", "")
	w.want(404, "DELETE", base+"/tags/x", "2.26", "")
	w.want(204, "DELETE", base+"/tags", "2.26", "")
}
