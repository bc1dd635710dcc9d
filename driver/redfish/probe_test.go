package redfish

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/rescue"
	"salvor/test/must"
)

// readOnly counts the requests that would change something.
func readOnly(h http.Handler) (http.Handler, *atomic.Int32) {
	var changes atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			changes.Add(1)
		}
		h.ServeHTTP(w, r)
	}), &changes
}

// recordAll reads a whole service as the command line does.
func recordAll(t *testing.T, d *Driver, n *metal.Node) fstest.MapFS {
	t.Helper()
	out, queue, known := fstest.MapFS{}, []string{"/redfish/v1"}, map[string]bool{}
	for len(queue) > 0 {
		found := must.Get(d.RecordResources(t.Context(), n, metal.RecordArgs{Paths: queue[:min(len(queue), metal.MaxRecorded)], Key: "0123456789abcdef"}))(t)
		queue = queue[len(found):]
		for _, one := range found {
			if one.Document != nil {
				out[strings.Trim(one.Name, "/")+"/index.json"] = &fstest.MapFile{Data: must.Get(json.Marshal(one.Document))(t)}
			}
			for _, link := range one.Links {
				if !known[link] {
					known[link], queue = true, append(queue, link)
				}
			}
		}
	}
	return out
}

func ableOf(p metal.Probe, name string) metal.Ability {
	i := slices.IndexFunc(p.Abilities, func(a metal.Ability) bool { return a.Name == name })
	if i < 0 {
		return metal.Ability{}
	}
	return p.Abilities[i]
}

func TestProbe(t *testing.T) {
	bmc := drivertest.NewBMC("admin", password)
	handler, changes := readOnly(bmc)
	server := httptest.NewServer(handler)
	defer server.Close()
	n := node(server.URL)
	n.DriverInfo[QuirksKey] = "settle=1s"
	p := must.Get((&Driver{}).ProbeBMC(t.Context(), n))(t)
	for name, want := range map[string]string{
		"power on": metal.AbleYes, "power off": metal.AbleYes, "reboot": metal.AbleYes, "boot device": metal.AbleYes, "virtual media": metal.AbleYes,
		"rescue by virtual media": metal.AbleYes, "BIOS settings": metal.AbleYes, "RAID": metal.AbleYes, "boot from a volume": metal.AbleNo,
	} {
		if a := ableOf(p, name); a.Able != want || want == metal.AbleNo && a.Detail == "" {
			t.Errorf("%s is %+v, want %s", name, a, want)
		}
	}
	if len(p.Quirks) != 1 || p.Quirks[0] != (metal.ProbedQuirk{Fact: "settle=1s", Source: QuirksKey}) {
		t.Errorf("quirks are %+v", p.Quirks)
	}
	if p.Login != "basic" || !strings.HasPrefix(p.Protocol, "Redfish 1.") || changes.Load() != 0 {
		t.Errorf("login %q, protocol %q, %d changes", p.Login, p.Protocol, changes.Load())
	}
}

// What a BMC does not tell is not known, and what it lacks is named: the rest of the page is there all the same.
func TestProbeOfPoorBMC(t *testing.T) {
	tree := fstest.MapFS{
		"redfish/v1/index.json":         {Data: []byte(`{"Vendor": "Supermicro", "Systems": {"@odata.id": "/redfish/v1/Systems"}}`)},
		"redfish/v1/Systems/index.json": {Data: []byte(`{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}`)},
		"redfish/v1/Systems/1/index.json": {Data: []byte(`{"PowerState": "On", "Boot": {"BootSourceOverrideEnabled": "Disabled"}, "VirtualMedia": {"@odata.id": "/redfish/v1/Systems/1/Drives"},
			"Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/1/Reset"}}}`)},
		"redfish/v1/Systems/1/Drives/index.json": {Data: []byte(`{"Members": [{"@odata.id": "/redfish/v1/Systems/1/Drives/gone"}]}`)},
	}
	server := httptest.NewServer(drivertest.NewReplay(tree, nil))
	defer server.Close()
	p := must.Get((&Driver{}).ProbeBMC(t.Context(), node(server.URL)))(t)
	for name, want := range map[string]string{
		"power on": metal.AbleUnknown, "boot device": metal.AbleUnknown, "boot mode": metal.AbleNo, "secure boot": metal.AbleNo, "HTTP boot": metal.AbleUnknown,
		"virtual media": metal.AbleNo, "rescue by virtual media": metal.AbleNo, "BIOS settings": metal.AbleNo, "firmware update": metal.AbleNo, "event subscriptions": metal.AbleNo,
	} {
		if a := ableOf(p, name); a.Able != want || a.Detail == "" {
			t.Errorf("%s is %+v, want %s with a reason", name, a, want)
		}
	}
	if len(p.Quirks) != 2 || !strings.Contains(p.Quirks[0].Source, "Redfishtool") {
		t.Errorf("quirks are %+v", p.Quirks)
	}
}

// privateTexts are texts in a tree that name a machine or its owner.
func privateTexts(tree fs.FS) []string {
	var out []string
	private := regexp.MustCompile(`^(SerialNumber|UUID|AssetTag|HostName|FQDN|MACAddress|PermanentMACAddress|UserName)$`)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if text, ok := v[name].(string); ok && private.MatchString(name) && len(text) > 5 && strings.ContainsAny(text, "0123456789") && !strings.HasPrefix(text, "v1_") {
					out = append(out, text)
				}
				walk(v[name])
			}
		}
	}
	_ = fs.WalkDir(tree, ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Base(name) == "index.json" && err == nil {
			var doc any
			if text, err := fs.ReadFile(tree, name); err == nil && json.Unmarshal(text, &doc) == nil {
				walk(doc)
			}
		}
		return nil
	})
	return out
}

// leaks are the private texts of a tree that its recording has.
func leaks(tree fs.FS, recording fstest.MapFS) []string {
	var all strings.Builder
	for name, file := range recording {
		all.WriteString(name + "\n" + string(file.Data) + "\n")
	}
	return slices.DeleteFunc(privateTexts(tree), func(text string) bool { return !strings.Contains(all.String(), text) })
}

// A recording has nothing that names the machine, and the driver treats it as the machine itself.
func TestRecording(t *testing.T) {
	tree := fstest.MapFS{
		"redfish/v1/index.json": {Data: []byte(`{"RedfishVersion": "1.6.0", "Systems": {"@odata.id": "/redfish/v1/Systems"}, "Managers": {"@odata.id": "/redfish/v1/Managers"},
			"AccountService": {"@odata.id": "/redfish/v1/AccountService/Accounts"}, "Elsewhere": {"@odata.id": "//192.0.2.1/redfish/v1/x"}}`)},
		"redfish/v1/Systems/index.json":       {Data: []byte(`{"Members": [{"@odata.id": "/redfish/v1/Systems/J1007XK2"}], "Members@odata.nextLink": "/redfish/v1/Systems/Page2"}`)},
		"redfish/v1/Systems/Page2/index.json": {Data: []byte(`{"Members": []}`)},
		"redfish/v1/Systems/J1007XK2/index.json": {Data: []byte(`{"@odata.id": "/redfish/v1/Systems/J1007XK2", "Id": "J1007XK2", "Manufacturer": "Example", "Model": "E1", "PowerState": "Off",
			"SerialNumber": "J1007XK2", "UUID": "38947555-7742-3448-3784-823347823834", "AssetTag": "rack 7, customer 0815", "HostName": "db1.customer.example",
			"Name": "db1", "IndicatorLED": null, "MemorySummary": {"TotalSystemMemoryGiB": 64, "Secret": 4711},
			"Boot": {"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Cd", "Pxe"],
				"UefiTargetBootSourceOverride@Redfish.AllowableValues": ["PciRoot(0x1)/MAC(4711F2A6C1D2,0x1)"]},
			"Links": {"ManagedBy": [{"@odata.id": "/redfish/v1/Managers/0c42a1b2c3d4"}]},
			"Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/J1007XK2/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": ["On", "ForceOff"]}}}`)},
		"redfish/v1/Managers/0c42a1b2c3d4/index.json":              {Data: []byte(`{"FirmwareVersion": "2.1", "VirtualMedia": {"@odata.id": "/redfish/v1/Managers/0c42a1b2c3d4/VirtualMedia"}}`)},
		"redfish/v1/Managers/0c42a1b2c3d4/VirtualMedia/index.json": {Data: []byte(`{"Members": [{"@odata.id": "/redfish/v1/Managers/0c42a1b2c3d4/VirtualMedia/CD1"}]}`)},
		"redfish/v1/Managers/0c42a1b2c3d4/VirtualMedia/CD1/index.json": {Data: []byte(`{"MediaTypes": ["CD"], "Inserted": false, "Image": "http://db.customer.example/x.iso", "UserName": "customer4711",
			"Actions": {"#VirtualMedia.InsertMedia": {"target": "/redfish/v1/Managers/0c42a1b2c3d4/VirtualMedia/CD1/Insert"}, "#VirtualMedia.EjectMedia": {"target": "/redfish/v1/Managers/0c42a1b2c3d4/VirtualMedia/CD1/Eject"}}}`)},
		"redfish/v1/AccountService/Accounts/index.json": {Data: []byte(`{"Members": [{"UserName": "root"}]}`)},
	}
	handler, changes := readOnly(drivertest.NewReplay(tree, nil))
	server := httptest.NewServer(handler)
	defer server.Close()
	recording := recordAll(t, &Driver{}, node(server.URL))
	if found := leaks(tree, recording); len(found) > 0 || changes.Load() != 0 {
		t.Errorf("the recording has %q; %d changes", found, changes.Load())
	}
	for name, file := range recording {
		for _, private := range []string{"customer", "J1007XK2", "0c42a1b2c3d4", "4711", "db1", "root", "192.0.2.1"} {
			if strings.Contains(name+string(file.Data), private) {
				t.Errorf("%s has %q: %s", name, private, file.Data)
			}
		}
	}
	writes := map[string][]string{}
	for name, replay := range map[string]*drivertest.Replay{"machine": drivertest.NewReplay(tree, nil), "recording": drivertest.NewReplay(recording, nil)} {
		one := httptest.NewServer(replay)
		defer one.Close()
		n, d := node(one.URL), &Driver{}
		b := must.Get(d.DescribeBMC(t.Context(), n))(t)
		must.OK(t, (&Media{Driver: d, Files: bootFiles}).CheckBMC(n, b))
		must.OK(t, d.SetBootDevice(t.Context(), n, rescue.Boot{Device: "cdrom"}))
		must.OK(t, d.SetPower(t.Context(), n, metal.PowerOn))
		for _, w := range replay.Writes() {
			verb, rest, _ := strings.Cut(w, " ")
			_, body, _ := strings.Cut(rest, " ")
			writes[name] = append(writes[name], verb+" "+body)
		}
	}
	if len(writes["machine"]) < 2 || !slices.Equal(writes["machine"], writes["recording"]) {
		t.Errorf("the machine is sent %q, its recording %q", writes["machine"], writes["recording"])
	}
}

func TestRecordingIsBounded(t *testing.T) {
	tree := fstest.MapFS{"redfish/v1/index.json": {Data: []byte(`{"A": "b"}`)}, "redfish/v1/Big/index.json": {Data: []byte(`{"A": "` + strings.Repeat("x", 600<<10) + `"}`)}}
	server := httptest.NewServer(drivertest.NewReplay(tree, nil))
	defer server.Close()
	d, n := &Driver{}, node(server.URL)
	record := func(paths ...string) ([]metal.RecordedResource, error) {
		return d.RecordResources(context.Background(), n, metal.RecordArgs{Paths: paths, Key: "k"})
	}
	if found, err := record("/redfish/v1/Big", "/redfish/v1/Big", "/redfish/v1", "/redfish/v1"); err != nil || len(found) != 2 {
		t.Errorf("%d resources, %v; want the two that are 1 MiB", len(found), err)
	}
	if found, err := record("/redfish/v1/None", "/redfish/v1"); err != nil || len(found) != 2 || found[0].Document != nil || found[0].Problem != "Not Found" {
		t.Errorf("%+v, %v", found, err)
	}
	for _, paths := range [][]string{nil, make([]string, metal.MaxRecorded+1), {"/etc/passwd"}, {"//192.0.2.1/redfish/v1"}, {"/redfish/v1/../../x"}} {
		if _, err := record(paths...); err == nil {
			t.Errorf("%q was read", paths)
		}
	}
}
