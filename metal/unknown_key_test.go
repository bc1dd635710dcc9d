package metal

import (
	"fmt"
	"strings"
	"testing"
)

// TestKeyHints: a misspelt key is told with the key that was probably meant; right keys, and keys of Ironic that nothing reads, are not.
func TestKeyHints(t *testing.T) {
	t.Parallel()
	d := DriverInfo{Name: "redfish", Properties: map[string]string{}}
	for _, key := range []string{"redfish_address", "redfish_username", "redfish_password", "redfish_system_id", "redfish_verify_ca", "redfish_auth_type", "ipmi_address", "ipmi_port", "ipmi_username", "ipmi_password", "ipmi_priv_level", "deploy_kernel", "rescue_kernel", "deploy_iso"} {
		d.Properties[key] = "text"
	}
	for _, c := range []struct {
		field, key, near string
	}{
		{"driver_info", "redfish_adress", "redfish_address"}, {"driver_info", "redfish_pasword", "redfish_password"}, {"driver_info", "ipmi_passwrd", "ipmi_password"},
		{"driver_info", "redfish_usrname", "redfish_username"}, {"driver_info", "Redfish-Address", "redfish_address"}, {"driver_info", "redfish_sytsem_id", "redfish_system_id"},
		{"driver_info", "address", "redfish_address"}, {"driver_info", "password", "redfish_password"}, {"driver_info", "adress", "redfish_address"}, {"driver_info", "priv_level", "ipmi_priv_level"},
		{"driver_info", "deploy_kernal", "deploy_kernel"}, {"driver_info", "ipmi_prot", "ipmi_port"},
		{"driver_info", "redfish_address", ""}, {"driver_info", "ipmi_local_address", ""}, {"driver_info", "ipmi_bridging", ""}, {"driver_info", "ipmi_transit_channel", ""}, {"driver_info", "ipmi_terminal_port", ""},
		{"driver_info", "ipmi_protocol_version", ""}, {"driver_info", "bootloader", ""}, {"driver_info", "rack", ""}, {"driver_info", "snmp_driver", ""},
		{"driver_info", strings.Repeat("redfish_address", 10_000), ""},
		{"properties", "cpu", "cpus"}, {"properties", "cpu_arhc", "cpu_arch"}, {"properties", "memroy_mb", "memory_mb"}, {"properties", "capabilites", "capabilities"}, {"properties", "root_devices", "root_device"},
		{"properties", "rack", ""}, {"properties", "location", ""}, {"properties", "cpus", ""},
		{"instance_info", "image_sorce", "image_source"}, {"instance_info", "image_chekcsum", "image_checksum"}, {"instance_info", "image_source", ""}, {"instance_info", "owner", ""},
	} {
		n := &Node{DriverInfo: Object{}, Properties: Object{}, InstanceInfo: Object{}}
		map[string]Object{"driver_info": n.DriverInfo, "properties": n.Properties, "instance_info": n.InstanceInfo}[c.field][c.key] = "x"
		got := d.keyHints(n)
		want := ""
		if c.near != "" {
			want = fmt.Sprintf("[%s has %s, which nothing reads; did you mean %s?]", c.field, c.key, c.near)
		} else {
			want = "[]"
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s, key %.60s: got %v, want %s", c.field, c.key, got, want)
		}
	}
	many := &Node{DriverInfo: Object{}}
	for i := range 100 {
		many.DriverInfo[fmt.Sprintf("redfish_addres%c", 'A'+i)] = "x"
	}
	if got := d.keyHints(many); len(got) != maxKeyHints {
		t.Errorf("%d hints, want at most %d", len(got), maxKeyHints)
	}
}
