package ironic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// withHardware makes the world's drivers able to what the fake hardware type can.
func (w *world) withHardware() {
	c := catalog()
	for i := range c.Drivers {
		if c.Drivers[i].Name != "fake-hardware" {
			continue
		}
		for _, kind := range []string{"bios", "console", "raid", "vendor", "firmware"} {
			c.Drivers[i].Interfaces[kind] = set("fake", "no-"+kind)
		}
		c.Drivers[i].Interfaces["vendor"].Enabled[0].Methods = map[string]metal.VendorMethod{
			"look": {HTTPMethods: []string{"GET"}, Description: "Looks."}, "make": {HTTPMethods: []string{"POST", "PUT"}, RequireExclusiveLock: true}, "fire": {HTTPMethods: []string{"POST"}, Async: true},
		}
	}
	description, err := json.Marshal(c)
	if err != nil {
		w.Fatal(err)
	}
	err = w.store.Register(w.Context(), job.Conductor{ID: "c1", Incarnation: "i1", Hostname: "cond1", Groups: []string{""}, Description: description, StartedAt: born, UpdatedAt: born})
	if err != nil {
		w.Fatal(err)
	}
	w.withOptions(metal.Options{RestrictLookup: true, AllowDeletingAvailable: true})
}

// commandAndAnswer asks while the conductor answers with result or cause, and gives what the conductor was handed.
func (w *world) commandAndAnswer(kind job.Kind, result string, cause error, status int, method, path, version, body string) (args, answer string) {
	w.Helper()
	handed := w.answerer(w.Context(), kind, result, cause)
	a := w.want(status, method, "/v1/nodes/n1"+path, version, body)
	return string(<-handed), a.Body
}

func TestIndicators(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	const path, one = "/management/indicators", "/management/indicators/led@system"
	_, got := w.commandAndAnswer("list indicators", `{"system":{"led":{"readonly":false,"states":["on","off"]}},"chassis":{"a":{"readonly":true,"states":[]}}}`, nil, 200, "GET", path, "1.63", "")
	var list struct {
		Indicators []struct {
			Name, Component string
			ReadOnly        bool
			States          []string
			Links           []map[string]string
		}
	}
	if err := json.Unmarshal([]byte(got), &list); err != nil || len(list.Indicators) != 2 {
		t.Fatalf("%s: %v", got, err)
	}
	if a, b := list.Indicators[0], list.Indicators[1]; a.Name != "a@chassis" || !a.ReadOnly || b.Name != "led@system" || b.Component != "system" || len(b.States) != 2 ||
		b.Links[0]["href"] != "http://salvor.example/v1/nodes/"+nodeID+one {
		t.Errorf("list: %s", got)
	}
	args, got := w.commandAndAnswer("get indicator", `"on"`, nil, 200, "GET", one, "1.63", "")
	if got != `{"state":"on"}` || args != `{"component":"system","name":"led"}` {
		t.Errorf("get: %s for %s", got, args)
	}
	if args, _ := w.commandAndAnswer("set indicator", `null`, nil, 204, "PUT", one, "1.63", `{"state":"blinking"}`); args != `{"component":"system","name":"led","state":"blinking"}` {
		t.Errorf("set: %s", args)
	}
	w.commandAndAnswer("get indicator", `null`, problem.NotFoundf("there is no such lamp"), 404, "GET", "/management/indicators/x@y", "1.63", "")
	w.refuse([]refusal{
		{"GET", "/v1/nodes/n1" + path, "1.62", "", 404, ""}, {"GET", "/v1/nodes/n1" + path + "/led", "1.63", "", 400, "Malformed indicator name"},
		{"PUT", "/v1/nodes/n1" + one, "1.63", `{"state":"purple"}`, 400, "state"}, {"PUT", "/v1/nodes/n1" + one, "1.63", `{}`, 400, "state"}, {"PUT", "/v1/nodes/n1" + one, "1.63", `{"state":"on","x":1}`, 400, "x"},
	})
}

func TestBootModes(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	for path, c := range map[string]struct {
		kind         job.Kind
		body, handed string
		bad          []string
	}{
		"/states/boot_mode":   {"set boot mode", `{"target":"uefi"}`, `{"mode":"uefi"}`, []string{`{}`, `{"target":"bogus"}`, `{"target":7}`, `{"target":"uefi","x":1}`}},
		"/states/secure_boot": {"set secure boot", `{"target":true}`, `{"on":true}`, []string{`{}`, `{"target":null}`, `{"target":"bogus"}`}},
	} {
		if args, _ := w.commandAndAnswer(c.kind, `null`, nil, 202, "PUT", path, "1.76", c.body); args != c.handed {
			t.Errorf("%s: %s", path, args)
		}
		w.commandAndAnswer(c.kind, `null`, problem.Unsupportedf("it cannot"), 400, "PUT", path, "1.76", c.body)
		rows := []refusal{{"PUT", "/v1/nodes/n1" + path, "1.75", c.body, 404, ""}}
		for _, bad := range c.bad {
			rows = append(rows, refusal{"PUT", "/v1/nodes/n1" + path, "1.76", bad, 400, ""})
		}
		w.refuse(rows)
		w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Rescuing })
		w.refuse([]refusal{{"PUT", "/v1/nodes/n1" + path, "1.76", c.body, 409, "rescuing"}})
		w.edit(nodeID, func(n *metal.Node) { n.ProvisionState = metal.Active })
	}
}

func TestVirtualMedia(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	const path, url = "/vmedia", "https://user:hunter2@images.example/a.iso?sig=t0ken"
	args, got := w.commandAndAnswer("attach virtual media", `null`, nil, 204, "POST", path, "1.89", `{"device_type":"cdrom","image_url":"`+url+`","image_download_source":"http"}`)
	if got != "" || args != `{"device_type":"cdrom"}` {
		t.Errorf("attach: %q, handed %s", got, args)
	}
	if args, _ := w.commandAndAnswer("detach virtual media", `null`, nil, 204, "DELETE", path, "1.89", ""); args != `{}` {
		t.Errorf("detach: %s", args)
	}
	if args, _ := w.commandAndAnswer("detach virtual media", `null`, nil, 204, "DELETE", path+"?device_types=cdrom,disk", "1.89", ""); args != `{"device_types":["cdrom","disk"]}` {
		t.Errorf("detach: %s", args)
	}
	if _, got := w.commandAndAnswer("get virtual media", `[{"media_types":["CD"],"inserted":true,"image":"http://x/y"}]`, nil, 200, "GET", path, "1.93", ""); got != `[{"media_types":["CD"],"inserted":true,"image":"http://x/y"}]` {
		t.Errorf("get: %s", got)
	}
	post := func(version, body string, status int, message string) refusal {
		return refusal{"POST", "/v1/nodes/n1" + path, version, body, status, message}
	}
	w.refuse([]refusal{
		post("1.88", `{"device_type":"cdrom","image_url":"http://x/y"}`, 404, ""), {"GET", "/v1/nodes/n1" + path, "1.92", "", 404, ""}, {"DELETE", "/v1/nodes/n1" + path, "1.88", "", 404, ""},
		post("1.89", `{"image_url":"http://x/y"}`, 400, "device_type"), post("1.89", `{"device_type":"tape","image_url":"http://x/y"}`, 400, "cdrom, disk, floppy"),
		post("1.89", `{"device_type":"cdrom"}`, 400, "image_url"), post("1.89", `{"device_type":"cdrom","image_url":"file:///etc/passwd"}`, 400, "image_url"), post("1.89", `{"device_type":"cdrom","image_url":"gopher://x/y"}`, 400, "gopher"),
		post("1.89", `{"device_type":"cdrom","image_url":"http://x/y","image_download_source":"local"}`, 400, "http is supported"), post("1.89", `{"device_type":"cdrom","image_url":"http://x/y","x":1}`, 400, "x"),
		{"DELETE", "/v1/nodes/n1" + path + "?device_types=tape", "1.89", "", 400, "Invalid device type(s) tape"}, {"DELETE", "/v1/nodes/n1" + path + "?x=1", "1.89", "", 400, "x"},
	})
	w.edit(nodeID, func(n *metal.Node) { n.Maintenance, n.Fault = true, metal.PowerFailure })
	w.refuse([]refusal{post("1.89", `{"device_type":"cdrom","image_url":"http://x/y"}`, 503, "power failure")})
	if strings.Contains(w.log.String(), "hunter2") || strings.Contains(w.log.String(), "t0ken") {
		t.Error("the log tells the credential of an image")
	}
}

func TestSettings(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	if got := w.want(200, "GET", "/v1/nodes/n1/bios", "1.40", "").Body; got != `{"bios":[]}` {
		t.Errorf("none: %s", got)
	}
	uefi, limit, yes := "Uefi", int64(9), true
	must.OK(t, w.store.Do(t.Context(), func(tx job.Tx) error {
		if err := w.nodes.KeepBIOSSettings(t.Context(), tx, nodeID, []metal.BIOSSetting{{Name: "Turbo"}, {Name: "BootMode", Value: &uefi, AttributeType: "Enumeration", AllowableValues: []string{"Bios", "Uefi"}, MaxLength: &limit, ReadOnly: &yes}}); err != nil {
			return err
		}
		return w.nodes.KeepFirmware(t.Context(), tx, nodeID, []metal.FirmwareComponent{{Component: "bios", InitialVersion: "1", CurrentVersion: "1", Vendor: "Acme"}})
	}))
	const times = `"created_at":"2026-03-04T05:06:07+00:00"`
	links := `"links":[{"href":"http://salvor.example/v1/nodes/` + nodeID + `/bios/BootMode","rel":"self"},{"href":"http://salvor.example/nodes/` + nodeID + `/bios/BootMode","rel":"bookmark"}]`
	if got := w.want(200, "GET", "/v1/nodes/n1/bios", "1.40", "").Body; !strings.HasPrefix(got, `{"bios":[{`+times+`,`+links+`,"name":"BootMode","updated_at":null,"value":"Uefi"},{`) {
		t.Errorf("list: %s", got)
	}
	const registry = `"allowable_values":["Bios","Uefi"],"attribute_type":"Enumeration",` + times + `,`
	if got := w.want(200, "GET", "/v1/nodes/n1/bios?detail=true", "1.74", "").Body; !strings.Contains(got, registry) || !strings.Contains(got, `"read_only":true,"reset_required":null`) {
		t.Errorf("detail: %s", got)
	}
	if got := w.want(200, "GET", "/v1/nodes/n1/bios/BootMode", "1.74", "").Body; !strings.HasPrefix(got, `{"BootMode":{`+registry) {
		t.Errorf("one: %s", got)
	}
	if got := w.want(200, "GET", "/v1/nodes/n1/bios/BootMode", "1.73", "").Body; strings.Contains(got, "attribute_type") {
		t.Errorf("one of old: %s", got)
	}
	if got := w.want(200, "GET", "/v1/nodes/n1/firmware", "1.86", "").Body; got != `{"firmware":[{"component":"bios",`+times+`,"current_version":"1","initial_version":"1","last_version_flashed":null,"updated_at":null}]}` {
		t.Errorf("firmware: %s", got)
	}
	if got := w.want(200, "GET", "/v1/nodes/n1/firmware?fields=component,vendor", "1.114", "").Body; got != `{"firmware":[{"component":"bios",`+times+`,"updated_at":null,"vendor":"Acme"}]}` {
		t.Errorf("firmware fields: %s", got)
	}
	w.refuse([]refusal{
		{"GET", "/v1/nodes/n1/bios", "1.39", "", 404, ""}, {"GET", "/v1/nodes/n1/bios?detail=true", "1.73", "", 406, "1.74"}, {"GET", "/v1/nodes/n1/bios?fields=name", "1.73", "", 406, "1.74"},
		{"GET", "/v1/nodes/n1/bios?fields=name&detail=true", "1.74", "", 400, "subset"}, {"GET", "/v1/nodes/n1/bios?fields=bogus", "1.74", "", 400, "bogus"}, {"GET", "/v1/nodes/n1/bios/No", "1.74", "", 404, "doesn't have a BIOS setting 'No'"},
		{"GET", "/v1/nodes/n1/firmware", "1.85", "", 404, ""}, {"GET", "/v1/nodes/n1/firmware?fields=vendor", "1.113", "", 400, "vendor"}, {"GET", "/v1/nodes/n1/inventory", "1.81", "", 404, "could not be found"},
	})
}

func TestRAID(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	const path = "/v1/nodes/n1/states/raid"
	w.refuse([]refusal{
		{"PUT", path, "1.12", `{}`, 404, "does not support raid"}, {"PUT", path, "1.11", `{}`, 406, "1.12"},
		{"GET", "/v1/drivers/fake-hardware/raid/logical_disk_properties", "1.12", "", 404, "does not support raid"}, {"GET", "/v1/drivers/fake-hardware/raid/logical_disk_properties", "1.11", "", 406, "1.12"},
	})
	w.withHardware()
	good := `{"logical_disks":[{"size_gb":"MAX","raid_level":"5","is_root_volume":true},{"size_gb":100,"raid_level":"1+0","controller":"c","physical_disks":["a","b"]}]}`
	w.want(204, "PUT", path, "1.12", good)
	if got := w.want(200, "GET", "/v1/nodes/n1/states", "1.12", "").Object(t)["target_raid_config"].(map[string]any); len(got["logical_disks"].([]any)) != 2 {
		t.Errorf("target: %v", got)
	}
	for _, disk := range []string{
		`7`, `{}`, `{"size_gb":1}`, `{"raid_level":"0"}`, `{"size_gb":-1,"raid_level":"0"}`, `{"size_gb":1.5,"raid_level":"0"}`, `{"size_gb":"BIG","raid_level":"0"}`, `{"size_gb":1,"raid_level":"9"}`,
		`{"size_gb":1,"raid_level":"0","bogus":1}`, `{"size_gb":1,"raid_level":"0","physical_disks":["a"]}`, `{"size_gb":1,"raid_level":"0","controller":"c","physical_disks":[1]}`,
		`{"size_gb":1,"raid_level":"0","is_root_volume":true},{"size_gb":1,"raid_level":"0","is_root_volume":true}`, `{"size_gb":1,"raid_level":"0","number_of_physical_disks":0}`, `{"size_gb":1,"raid_level":"0","disk_type":"tape"}`,
	} {
		w.refuse([]refusal{{"PUT", path, "1.12", `{"logical_disks":[` + disk + `]}`, 400, "RAID configuration validation failed"}})
	}
	w.refuse([]refusal{{"PUT", path, "1.12", `{"logical_disks":[]}`, 400, "1 to"}, {"PUT", path, "1.12", `{"x":1}`, 400, "x"}, {"PUT", path, "1.12", `[]`, 400, "object"}})
	w.want(204, "PUT", path, "1.12", `{}`)
	if got := w.want(200, "GET", "/v1/drivers/fake-hardware/raid/logical_disk_properties", "1.12", "").Object(t); got["raid_level"] == "" || len(got) != 10 {
		t.Errorf("properties: %v", got)
	}
	w.lock(nodeID)
	w.refuse([]refusal{{"PUT", path, "1.12", `{}`, 409, "locked"}})
}

func TestConsoleAndNMI(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	w.withHardware()
	if _, got := w.commandAndAnswer("get console", `null`, nil, 200, "GET", "/states/console", "1.1", ""); got != `{"console_enabled":false,"console_info":null}` {
		t.Errorf("off: %s", got)
	}
	if args, _ := w.commandAndAnswer("set console", `null`, nil, 202, "PUT", "/states/console", "1.1", `{"enabled":true}`); args != `{"enabled":true}` {
		t.Errorf("set: %s", args)
	}
	w.edit(nodeID, func(n *metal.Node) { n.ConsoleEnabled = true })
	if _, got := w.commandAndAnswer("get console", `{"type":"socat","url":"tcp://h:1"}`, nil, 200, "GET", "/states/console", "1.1", ""); got != `{"console_enabled":true,"console_info":{"type":"socat","url":"tcp://h:1"}}` {
		t.Errorf("on: %s", got)
	}
	w.commandAndAnswer("inject nmi", `null`, nil, 204, "PUT", "/management/inject_nmi", "1.29", "")
	w.commandAndAnswer("inject nmi", `null`, nil, 204, "PUT", "/management/inject_nmi", "1.29", "{}")
	w.refuse([]refusal{
		{"PUT", "/v1/nodes/n1/management/inject_nmi", "1.28", "", 404, ""}, {"PUT", "/v1/nodes/n1/states/console", "1.1", `{}`, 400, "enabled"}, {"PUT", "/v1/nodes/n1/states/console", "1.1", `{"enabled":"x"}`, 400, "enabled"},
	})
}

func TestVendorPassthru(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	w.refuse([]refusal{{"POST", "/v1/nodes/n1/vendor_passthru?method=make", "1.1", "", 400, "does not support vendor_passthru"}})
	w.withHardware()
	if got := w.want(200, "GET", "/v1/nodes/n1/vendor_passthru/methods", "1.1", "").Object(t)["look"].(map[string]any); got["async"] != false || got["attach"] != false || got["require_exclusive_lock"] != false || got["http_methods"].([]any)[0] != "GET" {
		t.Errorf("methods: %v", got)
	}
	args, got := w.commandAndAnswer("vendor question", `{"a":1}`, nil, 200, "GET", "/vendor_passthru?method=look", "1.1", "")
	if got != `{"a":1}` || args != `{"method":"look","http_method":"GET"}` {
		t.Errorf("look: %s, handed %s", got, args)
	}
	args, got = w.commandAndAnswer("vendor command", `true`, nil, 200, "PUT", "/vendor_passthru?method=make", "1.1", `{"password":"hunter2"}`)
	if got != `true` || strings.Contains(args, "hunter2") {
		t.Errorf("make: %s, handed %s", got, args)
	}
	if _, got := w.commandAndAnswer("vendor command", `null`, nil, 200, "POST", "/vendor_passthru?method=make", "1.1", ""); got != "null" {
		t.Errorf("make without an answer: %q", got)
	}
	if args, _ := w.commandAndAnswer("vendor command", `null`, nil, 200, "POST", "/vendor_passthru/make", "1.1", ""); args != `{"method":"make","http_method":"POST"}` {
		t.Errorf("make by its path: handed %s", args)
	}
	if _, got := w.commandAndAnswer("vendor command", `true`, nil, 202, "POST", "/vendor_passthru?method=fire", "1.1", "{}"); got != "" {
		t.Errorf("fire: %q", got)
	}
	w.refuse([]refusal{
		{"GET", "/v1/nodes/n1/vendor_passthru", "1.1", "", 400, "Method not specified"}, {"GET", "/v1/nodes/n1/vendor_passthru?method=nope", "1.1", "", 400, "No handler for method nope"},
		{"DELETE", "/v1/nodes/n1/vendor_passthru?method=make", "1.1", "", 400, "does not support HTTP DELETE"}, {"POST", "/v1/nodes/n1/vendor_passthru?method=make", "1.1", "[]", 400, "object"},
		{"POST", "/v1/drivers/fake-hardware/vendor_passthru?method=x", "1.1", "", 400, "No handler for method x"}, {"POST", "/v1/drivers/nope/vendor_passthru?method=x", "1.1", "", 404, "nope"},
	})
}

// TestVIFsOfPortgroups: a portgroup comes before its ports and before ports alone.
func TestVIFsOfPortgroups(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.Interfaces = map[string]string{"network": "flat"} })
	const group = "aaaaaaaa-2222-4333-8444-555555555555"
	must.OK(t, w.store.Do(t.Context(), func(tx job.Tx) error {
		return w.store.Portgroups().Insert(tx, &metal.Portgroup{Record: record.Record{ID: group, CreatedAt: born}, NodeID: nodeID, Name: "bond0", StandalonePorts: true})
	}))
	port := func(mac, more string) string {
		return w.want(201, "POST", "/v1/ports", "1.82", `{"node_uuid":"`+nodeID+`","address":"`+mac+`"`+more+`}`).Object(t)["uuid"].(string)
	}
	alone := port("52:54:00:00:00:01", "")
	vif := func(status int, body string) { w.want(status, "POST", "/v1/nodes/n1/vifs", "1.82", body) }
	holder := func(id string) string {
		for kind, path := range map[string]string{"group": "/v1/portgroups/" + group, "alone": "/v1/ports/" + alone} {
			info, _ := w.want(200, "GET", path, "1.82", "").Object(t)["internal_info"].(map[string]any)
			if info["tenant_vif_port_id"] == id {
				return kind
			}
		}
		return ""
	}
	vif(204, `{"id":"a"}`)
	if got := holder("a"); got != "alone" {
		t.Errorf("an empty portgroup took the VIF: %q", got)
	}
	w.want(204, "DELETE", "/v1/nodes/n1/vifs/a", "1.82", "")
	member := port("52:54:00:00:00:02", `,"portgroup_uuid":"`+group+`"`)
	vif(204, `{"id":"b"}`)
	if got := holder("b"); got != "group" {
		t.Errorf("the VIF went to %q, not to the portgroup", got)
	}
	vif(400, `{"id":"c","port_uuid":"`+member+`"}`) // the group is in use
	w.want(204, "DELETE", "/v1/nodes/n1/vifs/b", "1.82", "")
	vif(204, `{"id":"c","port_uuid":"`+member+`"}`)
	vif(400, `{"id":"d","portgroup_uuid":"`+group+`"}`)
	vif(204, `{"id":"d"}`)
	if got := holder("d"); got != "alone" {
		t.Errorf("the VIF went to %q beside a portgroup whose port is used alone", got)
	}
	vif(400, `{"id":"e"}`)
	vif(409, `{"id":"d"}`)
}
