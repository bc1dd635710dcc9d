package redfish

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/driver/drivertest"
)

// TestPublicNames: words of schemas and of makers stay in a recording, and each other word becomes a digest.
func TestPublicNames(t *testing.T) {
	for path, want := range map[string]bool{
		"/redfish/v1/Systems/System.Embedded.1/EthernetInterfaces/NIC.Integrated.1-1-1": true, "/redfish/v1/Managers/iDRAC.Embedded.1": true,
		"/redfish/v1/Managers/bmc": true, "/redfish/v1/Managers/BMC_0": true, "/redfish/v1/Systems/Self/Bios/SD": true, "/redfish/v1/Systems/1/BootOptions/Boot0001": true,
		"/redfish/v1/Systems/1/Storage/RAID.Slot.3-1/Drives/Disk.Bay.0:Enclosure.Internal.0-1:RAID.Slot.3-1": true, "/redfish/v1/UpdateService/FirmwareInventory/BMC": true,
		"/redfish/v1/Chassis/1/Power#/PowerSupplies/0": true, "/redfish/v1/Systems/1/Actions/Oem/AcmeManager.ResetToDefaults": true,
		"/redfish/v1/Systems/1/Memory/DIMM_A1": true, "/redfish/v1/Managers/1/VirtualMedia/EXT1": true, "/redfish/v1/Managers/1/VirtualMedia/CD1": true, "1": true, "System.Embedded.1": true,
		"/redfish/v1/Managers/acme-oslo-rack12": false, "/redfish/v1/Systems/db1": false, "/redfish/v1/Chassis/BMCManager": true, "/redfish/v1/Systems/web-7": false, "/redfish/v1/Chassis/AcmeBank": false, "/redfish/v1/Chassis/ACMEBank": false,
		"acme": false, "Oslo1": false, "/redfish/v1/Systems/J1007XK2": false, "/redfish/v1/Managers/0c42a1b2c3d4": false, "BMCacme": false, "bmcacme": false, "acmeSystem": false, "root": true,
		"/redfish/v1/Systems/customer": false, "/redfish/v1/Systems/MüllerAG": false,
	} {
		got := ownerHider{key: "k"}.path(path)
		if isKept := got == path; isKept != want {
			t.Errorf("%s: want it kept %v, got %s", path, want, got)
		}
	}
}

// TestRecordingHasNoForeignNames: the names that an owner gave to resources are in no recording, and each link of the recording leads to its resource.
func TestRecordingHasNoForeignNames(t *testing.T) {
	tree := fstest.MapFS{
		"redfish/v1/index.json":                                        {Data: []byte(`{"Systems": {"@odata.id": "/redfish/v1/Systems"}, "Managers": {"@odata.id": "/redfish/v1/Managers"}}`)},
		"redfish/v1/Systems/index.json":                                {Data: []byte(`{"Members": [{"@odata.id": "/redfish/v1/Systems/AcmeBank"}]}`)},
		"redfish/v1/Systems/AcmeBank/index.json":                       {Data: []byte(`{"Id": "AcmeBank", "Links": {"ManagedBy": [{"@odata.id": "/redfish/v1/Managers/acme-oslo-rack12"}], "Chassis": [{"MemberId": "oslo"}]}}`)},
		"redfish/v1/Managers/index.json":                               {Data: []byte(`{"Members": [{"@odata.id": "/redfish/v1/Managers/acme-oslo-rack12"}]}`)},
		"redfish/v1/Managers/acme-oslo-rack12/index.json":              {Data: []byte(`{"Id": "acme-oslo-rack12", "VirtualMedia": {"@odata.id": "/redfish/v1/Managers/acme-oslo-rack12/VirtualMedia"}}`)},
		"redfish/v1/Managers/acme-oslo-rack12/VirtualMedia/index.json": {Data: []byte(`{"Members": []}`)},
	}
	server := httptest.NewServer(drivertest.NewReplay(tree, nil))
	defer server.Close()
	recording := recordAll(t, &Driver{}, node(server.URL))
	if len(recording) != len(tree) {
		t.Errorf("the recording: want %d resources, got %d", len(tree), len(recording))
	}
	links := 0
	for name, file := range recording {
		for _, word := range []string{"acme", "oslo", "bank"} {
			if strings.Contains(strings.ToLower(name+string(file.Data)), word) {
				t.Errorf("%s: want no name of the owner, got %q in %s", name, word, file.Data)
			}
		}
		for _, part := range strings.Split(string(file.Data), `"@odata.id":"`)[1:] {
			link, _, _ := strings.Cut(part, `"`)
			links++
			if recording[strings.Trim(link, "/")+"/index.json"] == nil {
				t.Errorf("%s: the link %s leads to no resource of the recording", name, link)
			}
		}
	}
	if links < 5 {
		t.Errorf("links of the recording: want at least 5, got %d", links)
	}
}
