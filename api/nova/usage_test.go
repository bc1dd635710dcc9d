package nova_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
)

func TestVersions(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/compute", "/compute/"} {
		all := w.want(200, "GET", path, "", "").Object(t)["versions"].([]any)
		if len(all) != 2 || at(all[1], "version") != "2.88" || at(all[1], "min_version") != "2.1" || at(all[1], "id") != "v2.1" || at(all[0], "version") != "" {
			t.Error(all)
		}
	}
	for path, version := range map[string]string{"/compute/v2.1/": "2.88", "/compute/v2.1": "2.88", "/compute/v2/": "", "/compute/v2.1/" + projectA: "2.88"} {
		if o := w.want(200, "GET", path, "", "").Object(t); at(o, "version", "version") != version {
			t.Errorf("%s: %v", path, o)
		}
	}
	id := w.create("")
	for _, path := range []string{"/compute/v2/servers/", "/compute/v2.1/" + projectA + "/servers/", "/compute/v2/" + projectA + "/servers/"} {
		w.want(200, "GET", path+id, "", "")
	}
	for version, status := range map[string]int{"2.89": 406, "2.0": 406, "3.1": 406, "2.x": 400, "nonsense": 400, "latest": 200, "2.88": 200} {
		if a := w.want(status, "GET", "/servers", version, ""); len(a.Header["Vary"]) != 2 {
			t.Errorf("%s: %v", version, a.Header)
		}
	}
	if a := fixture.Ask(w.handler, "GET", "/compute/v2.1/servers", nil, "X-OpenStack-Nova-API-Version", "2.53"); a.Header.Get("X-OpenStack-Nova-API-Version") != "2.53" {
		t.Error(a)
	}
	w.want(404, "GET", "/nonsense", "", "")
	if name, _ := w.want(405, "PATCH", "/servers", "", "").fault(); name != "badMethod" {
		t.Error(name)
	}
}

func TestFlavors(t *testing.T) {
	w := newWorld(t)
	if l := w.want(200, "GET", "/flavors", "", "").Object(t)["flavors"].([]any); len(l) != 1 || at(l[0], "id") != "1" {
		t.Error(l)
	}
	w.want(403, "POST", "/flavors", "", `{"flavor": {"name": "x", "ram": 1, "vcpus": 1, "disk": 1}}`)
	w.as(boss)
	a := w.want(200, "POST", "/flavors", "2.55", `{"flavor": {"name": "m1.big", "ram": 2048, "vcpus": 2, "disk": 20, "id": "7", "swap": 512, "OS-FLV-EXT-DATA:ephemeral": 3, "description": "large"}}`)
	if o := a.Object(t); at(o, "flavor", "id") != "7" || at(o, "flavor", "swap") != 512.0 || at(o, "flavor", "description") != "large" {
		t.Error(a.Body)
	}
	w.want(409, "POST", "/flavors", "", `{"flavor": {"name": "m1.big", "ram": 2048, "vcpus": 2, "disk": 20}}`)
	w.want(400, "POST", "/flavors", "", `{"flavor": {"name": "m1.big", "ram": 0, "vcpus": 2, "disk": 20}}`)
	w.want(200, "POST", "/flavors/7/os-extra_specs", "", `{"extra_specs": {"hw:a": "b"}}`)
	if o := w.want(200, "GET", "/flavors/7", "2.61", "").Object(t); at(o, "flavor", "extra_specs", "hw:a") != "b" {
		t.Error(o)
	}
	w.want(200, "PUT", "/flavors/7/os-extra_specs/c", "", `{"c": "d"}`)
	w.want(200, "GET", "/flavors/7/os-extra_specs/c", "", "")
	w.want(200, "DELETE", "/flavors/7/os-extra_specs/c", "", "")
	w.want(404, "GET", "/flavors/7/os-extra_specs/c", "", "")
	for query, n := range map[string]int{"": 2, "?is_public=None": 3, "?is_public=false": 1, "?minRam=1000": 1, "?limit=1": 1, "?marker=1": 1, "?sort_key=name&sort_dir=desc": 2} {
		if l := w.want(200, "GET", "/flavors/detail"+query, "", "").Object(t)["flavors"].([]any); len(l) != n {
			t.Errorf("%s: %v", query, l)
		}
	}
	w.want(400, "GET", "/flavors?marker=nonsense", "", "")
	w.want(200, "PUT", "/flavors/7", "2.55", `{"flavor": {"description": "larger"}}`)
	w.want(404, "GET", "/flavors/m1.big", "", "") // a name is no id
	w.want(202, "DELETE", "/flavors/7", "", "")
	w.want(404, "DELETE", "/flavors/7", "", "")
	w.want(404, "GET", "/flavors/1/os-flavor-access", "", "")
	w.want(200, "GET", "/flavors/x/os-flavor-access", "", "")
}

func TestKeypairs(t *testing.T) {
	w := newWorld(t)
	const public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB0bUX5bQCpXWHbfJZ3f1nSkT3Jv6GkO3D1mYcQ5o5Yt ann@example"
	o := w.want(201, "POST", "/os-keypairs", "2.2", `{"keypair": {"name": "mine", "public_key": "`+public+`"}}`).Object(t)
	if at(o, "keypair", "public_key") != public || at(o, "keypair", "private_key") != nil || len(at(o, "keypair", "fingerprint").(string)) != 47 {
		t.Error(o)
	}
	o = w.want(200, "POST", "/os-keypairs", "2.1", `{"keypair": {"name": "made"}}`).Object(t)
	private, _ := at(o, "keypair", "private_key").(string)
	if !strings.HasPrefix(private, "-----BEGIN OPENSSH PRIVATE KEY-----") || strings.Contains(w.want(200, "GET", "/os-keypairs/made", "", "").Body, "PRIVATE") {
		t.Error(o)
	}
	w.want(409, "POST", "/os-keypairs", "", `{"keypair": {"name": "made"}}`)
	for _, body := range []string{`{"keypair": {}}`, `{"keypair": {"name": "x", "public_key": "nonsense"}}`, `{"keypair": {"name": "a/b"}}`, `{"keypair": {"name": "x", "type": "ssh"}}`} {
		w.want(400, "POST", "/os-keypairs", "2.1", body)
	}
	w.want(403, "GET", "/os-keypairs?user_id=eve", "2.10", "")
	if l := w.want(200, "GET", "/os-keypairs?limit=1", "2.35", "").Object(t); len(l["keypairs"].([]any)) != 1 || l["keypairs_links"] == nil {
		t.Error(l)
	}
	id := w.create(`, "key_name": "mine"`)
	if o := w.want(200, "GET", "/servers/"+id, "", "").Object(t); at(o, "server", "key_name") != "mine" {
		t.Error(o)
	}
	w.as(eve)
	w.want(404, "GET", "/os-keypairs/mine", "", "")
	w.as(ann)
	w.want(204, "DELETE", "/os-keypairs/mine", "2.2", "")
	w.want(404, "DELETE", "/os-keypairs/mine", "2.2", "")
}

func TestServices(t *testing.T) {
	w := newWorld(t)
	w.as(boss)
	row := func(version string) map[string]any {
		t.Helper()
		return w.want(200, "GET", "/os-services?host=rack1&binary=nova-compute", version, "").Object(t)["services"].([]any)[0].(map[string]any)
	}
	if r := row("2.53"); r["id"] != hostOne || r["state"] != "up" || r["status"] != "enabled" || r["forced_down"] != false || strings.HasSuffix(r["updated_at"].(string), "Z") {
		t.Error(r)
	}
	if r := row("2.10"); r["id"] == hostOne || r["forced_down"] != nil {
		t.Error(r)
	}
	for _, q := range []string{"?host=other", "?binary=nova-conductor"} {
		if l := w.want(200, "GET", "/os-services"+q, "", "").Object(t)["services"].([]any); len(l) != 0 {
			t.Error(l)
		}
	}
	w.want(400, "GET", "/os-services?nonsense=1", "2.75", "")
	w.want(200, "PUT", "/os-services/disable-log-reason", "2.1", `{"host": "rack1", "binary": "nova-compute", "disabled_reason": "why"}`)
	if r := row("2.53"); r["status"] != "disabled" || r["disabled_reason"] != "why" {
		t.Error(r)
	}
	w.want(200, "PUT", "/os-services/enable", "2.1", `{"host": "rack1", "binary": "nova-compute"}`)
	if r := row("2.53"); r["status"] != "enabled" || r["disabled_reason"] != nil {
		t.Error(r)
	}
	w.want(404, "PUT", "/os-services/enable", "2.1", `{"host": "other", "binary": "nova-compute"}`)
	w.want(404, "PUT", "/os-services/force-down", "2.10", `{"host": "rack1", "binary": "nova-compute", "forced_down": true}`)
	if o := w.want(200, "PUT", "/os-services/force-down", "2.11", `{"host": "rack1", "binary": "nova-compute", "forced_down": true}`).Object(t); at(o, "service", "forced_down") != true {
		t.Error(o)
	}
	if _, message := w.want(400, "PUT", "/os-services/force-down", "2.53", `{}`).fault(); message != "Invalid uuid force-down" {
		t.Error(message)
	}
	if o := w.want(200, "PUT", "/os-services/"+hostOne, "2.53", `{"forced_down": false, "status": "disabled", "disabled_reason": "r"}`).Object(t); at(o, "service", "status") != "disabled" || at(o, "service", "state") != "up" {
		t.Error(o)
	}
	for _, body := range []string{`{}`, `{"status": "enabled", "disabled_reason": "r"}`, `{"status": "gone"}`} {
		w.want(400, "PUT", "/os-services/"+hostOne, "2.53", body)
	}
	w.want(404, "PUT", "/os-services/"+nothing, "2.53", `{"status": "enabled"}`)
	w.now = born.Add(time.Minute)
	if r := row("2.53"); r["state"] != "down" {
		t.Error(r)
	}
	o := w.want(200, "GET", "/os-availability-zone", "", "").Object(t)
	if at(o["availabilityZoneInfo"].([]any)[0], "zoneName") != "nova" {
		t.Error(o)
	}
	w.want(200, "GET", "/os-availability-zone/detail", "", "")
}

func TestHypervisors(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	w.as(boss)
	for version, has := range map[string][]string{
		"2.1": {"vcpus", "cpu_info", "running_vms", "free_disk_gb"}, "2.53": {"vcpus", "servers"}, "2.75": {"servers"}, "2.88": {"uptime", "servers"},
	} {
		r := w.want(200, "GET", "/os-hypervisors/detail?with_servers=true", version, "").Object(t)["hypervisors"].([]any)[0].(map[string]any)
		for _, name := range has {
			if _, ok := r[name]; !ok {
				t.Errorf("at %s: no %s in %v", version, name, r)
			}
		}
		if _, ok := r["vcpus"]; ok && version == "2.88" {
			t.Errorf("%v", r)
		}
		if version == "2.88" {
			if at(r["servers"].([]any)[0], "uuid") != id || r["id"] != hostOne || r["uptime"] == nil {
				t.Error(r)
			}
		}
	}
	w.want(200, "GET", "/os-hypervisors/"+hostOne, "2.53", "")
	w.want(404, "GET", "/os-hypervisors/"+nothing, "2.53", "")
	w.want(400, "GET", "/os-hypervisors/rack1", "2.53", "")
	w.want(404, "GET", "/os-hypervisors/rack1", "2.1", "")
	w.want(200, "GET", "/os-hypervisors/"+hostOne+"/uptime", "2.53", "")
	w.want(404, "GET", "/os-hypervisors/"+hostOne+"/uptime", "2.88", "")
	if o := w.want(200, "GET", "/os-hypervisors/statistics", "2.53", "").Object(t); at(o, "hypervisor_statistics", "count") != 1.0 {
		t.Error(o)
	}
	w.want(200, "GET", "/os-hypervisors/rack/search", "2.1", "")
	w.want(404, "GET", "/os-hypervisors/shelf/search", "2.1", "")
	w.want(200, "GET", "/os-hypervisors/rack/servers", "2.1", "")
	w.want(404, "GET", "/os-hypervisors?hypervisor_hostname_pattern=shelf", "2.53", "")
	w.want(409, "DELETE", "/os-services/"+hostOne, "2.53", "")
}

func TestNetworks(t *testing.T) {
	w := newWorld(t)
	net := &compute.Network{Name: "lan", Bridge: "br0", CIDR: "10.1.0.0/24", Gateway: "10.1.0.1", First: "10.1.0.10", Last: "10.1.0.20", Shared: true}
	must.OK(w, w.services.Networks.Create(t.Context(), net, record.Asker{}))
	own := &compute.Network{Name: "own", Bridge: "br0", CIDR: "10.2.0.0/24", Project: projectB}
	must.OK(w, w.services.Networks.Create(t.Context(), own, record.Asker{}))
	l := w.want(200, "GET", "/os-networks?label=lan", "", "").Object(t)["networks"].([]any)
	if len(l) != 1 || at(l[0], "netmask") != "255.255.255.0" {
		t.Fatal(l)
	}
	w.want(200, "GET", "/os-networks/"+net.ID, "", "")
	w.want(200, "GET", "/os-tenant-networks/lan", "", "")
	w.want(404, "GET", "/os-networks/"+own.ID, "", "")
	id := w.create(`, "networks": [{"uuid": "` + net.ID + `", "fixed_ip": "10.1.0.15"}]`)
	o := w.want(200, "GET", "/servers/"+id, "", "").Object(t)
	lan, _ := at(o, "server", "addresses", "lan").([]any)
	if len(lan) != 1 || at(lan[0], "addr") != "10.1.0.15" || at(lan[0], "version") != 4.0 {
		t.Fatal(o)
	}
	if o := w.want(200, "GET", "/servers/"+id+"/ips", "", "").Object(t); at(o, "addresses", "lan") == nil {
		t.Error(o)
	}
	w.want(200, "GET", "/servers/"+id+"/ips/lan", "", "")
	w.want(404, "GET", "/servers/"+id+"/ips/wan", "", "")
	ports := w.want(200, "GET", "/servers/"+id+"/os-interface", "", "").Object(t)["interfaceAttachments"].([]any)
	if len(ports) != 1 || at(ports[0], "net_id") != net.ID {
		t.Fatal(ports)
	}
	w.want(200, "GET", fmt.Sprintf("/servers/%s/os-interface/%s", id, at(ports[0], "port_id")), "", "")
	w.want(404, "GET", "/servers/"+id+"/os-interface/x", "", "")
	if l := w.want(200, "GET", "/servers?ip=10.1", "", "").Object(t)["servers"].([]any); len(l) != 1 {
		t.Error(l)
	}
	if id := w.create(""); w.want(200, "GET", "/servers/"+id+"/ips", "", "").Object(t)["addresses"].(map[string]any)["lan"] == nil {
		t.Error("a server without wishes did not get the only network")
	}
	w.as(boss)
	w.want(409, "POST", "/servers", "2.37", `{"server": {"name": "x", "flavorRef": "1", "imageRef": "`+imageOne+`", "networks": "auto"}}`)
}

// TestNothingIsUnlimitedThatCannotExist: a list that is always empty is a true answer. A limit of -1 beside it says that one may make such things.
func TestNothingIsUnlimitedThatCannotExist(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		list, key string
		quotas    []string
		limits    []string
	}{
		{"/os-server-groups", "server_groups", []string{"server_groups", "server_group_members"}, []string{"maxServerGroups", "maxServerGroupMembers"}},
		{"/os-security-groups", "security_groups", []string{"security_groups", "security_group_rules"}, []string{"maxSecurityGroups", "maxSecurityGroupRules"}},
		{"/os-floating-ips", "floating_ips", []string{"floating_ips"}, []string{"maxTotalFloatingIps"}},
	} {
		w.want(405, "POST", c.list, "2.1", `{}`)
		w.want(404, "GET", c.list+"/"+nothing, "2.1", "")
		if all := w.want(200, "GET", c.list, "2.1", "").Object(t)[c.key].([]any); len(all) != 0 {
			t.Errorf("%s: %v, want an empty list", c.list, all)
		}
		for _, name := range c.limits {
			if got := at(w.want(200, "GET", "/limits", "2.1", "").Object(t), "limits", "absolute", name); got != 0.0 {
				t.Errorf("GET /limits: %s is %v, want 0", name, got)
			}
		}
		for _, name := range c.quotas {
			for _, path := range []string{"", "/defaults"} {
				if got := at(w.want(200, "GET", "/os-quota-sets/"+projectA+path, "2.1", "").Object(t), "quota_set", name); got != 0.0 {
					t.Errorf("quota%s: %s is %v, want 0", path, name, got)
				}
			}
			if got := at(w.want(200, "GET", "/os-quota-sets/"+projectA+"/detail", "2.1", "").Object(t), "quota_set", name, "limit"); got != 0.0 {
				t.Errorf("quota/detail: the limit of %s is %v, want 0", name, got)
			}
		}
	}
}

func TestSums(t *testing.T) {
	w := newWorld(t)
	w.active()
	if o := w.want(200, "GET", "/limits", "2.57", "").Object(t); at(o, "limits", "absolute", "totalInstancesUsed") != 1.0 || at(o, "limits", "absolute", "maxPersonality") != nil {
		t.Error(o)
	}
	for _, path := range []string{
		"/os-quota-sets/" + projectA, "/os-quota-sets/" + projectA + "/defaults", "/os-quota-sets/" + projectA + "/detail", "/extensions", "/extensions/os-rescue", "/os-server-groups",
		"/os-simple-tenant-usage/" + projectA,
	} {
		w.want(200, "GET", path, "", "")
	}
	w.want(403, "GET", "/os-quota-sets/"+projectB, "", "")
	w.want(403, "GET", "/os-simple-tenant-usage/"+projectB, "", "")
	w.as(boss)
	w.now = born.AddDate(0, 0, 1)
	o := w.want(200, "GET", "/os-simple-tenant-usage?detailed=1", "2.40", "").Object(t)
	usage := o["tenant_usages"].([]any)[0]
	if hours, _ := at(usage, "total_hours").(float64); hours < 23.9 || hours > 24.1 {
		t.Error(o)
	}
}
