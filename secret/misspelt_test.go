package secret

import (
	"strings"
	"testing"
)

// TestMisspeltKeys: a key that is nearly one of a secret is a secret's too, and common keys of nodes are not.
func TestMisspeltKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"ipmi_passwrd", "redfish_pasword", "redfish_passwrod", "ipmi_passord", "ipmi_psasword", "redfish_passwort", "ipmi_paswd", "ipmipasword", "IPMI_PASSWRD", "ilo-pasword", "redfish_pass",
		"ipmi_pwd", "bmc_pw", "api_tokn", "agent_tokne", "chap_scret", "chap_secert", "my_pasphrase", "ipmi_hex_kg_key", "ipmi_hex_kg_ky", "ipmi_kg", "password", "redfish_password", "bmc_credentials", "paswrd",
	} {
		if !IsKey(key) {
			t.Errorf("%s: want it to be the key of a secret", key)
		}
	}
	for _, key := range []string{
		"redfish_address", "redfish_username", "ipmi_port", "ipmi_priv_level", "capabilities", "cpu_arch", "memory_mb", "local_gb", "root_device", "vendor", "tests_passed", "broken_disks", "taken",
		"bypass_disk", "passive", "passthru", "server", "sector", "image_source", "image_checksum", "pxe_append_params", "kernel_append_params", "deploy_kernel", "ipmi_cipher_suite", "rescue_ramdisk",
		"snmp_port", "weight_kg", "configdrive", "image_url", "display_name", "path", "redfish_quirks", "passenger", "secondary", "section", "node_uuid", "storage_interface",
	} {
		if IsKey(key) {
			t.Errorf("%s: want it to be no key of a secret", key)
		}
	}
	if IsKey(strings.Repeat("x", 1<<20)) {
		t.Error("a key of 1 MiB: want it to be no key of a secret")
	}
}

func BenchmarkIsKey(b *testing.B) {
	for b.Loop() {
		IsKey("redfish_username")
	}
}
