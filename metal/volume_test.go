package metal

import (
	"strings"
	"testing"

	"salvor/problem"
)

func TestConnectorForms(t *testing.T) {
	const id = "27e3153e-d5bf-4b7e-b517-fb518e17f34c"
	good := map[string][]string{
		"iqn": {
			"iqn.2026-01.org.example", "iqn.2010-10.com.example:vol-X", "iqn.1993-08.org.debian:01:8e5b6b4a", "iqn.2004-04.com.example-name.sub:a.b_c", "eui.02004567A425678D",
			"naa.52004567BA64678D", "naa.62004567BA64678D0123456789ABCDEF",
		},
		"ip": {"192.0.2.1", "2001:db8::1", "::"}, "mac": {"52:54:00:aa:00:01", "52-54-00-AA-00-01", "525400aa0001"},
		"wwnn": {"10000000c92b5b01", "10:00:00:00:C9:2b:5b:01"}, "wwpn": {"2100001B32000000", "21:00:00:1b:32:00:00:00"}, "net-id": {id}, "port": {id}, "portgroup": {strings.ToUpper(id)},
	}
	bad := map[string][]string{
		"iqn": {
			"", "iqn", "iqn.2026-13.org.example", "iqn.26-01.org.example", "iqn.2026-01.", "iqn.2026-01.-x", "iqn.2026-01.org.example:", "iqn.2026-01.org.example:a b", "IQN.2026-01.org.example", "eui.1234", "naa.xyz",
			"iqn.2026-01.org.example:" + strings.Repeat("a", 250), "iqn.2026-01.org.example\n",
		},
		"ip": {"", "192.0.2", "192.0.2.1/24", "fe80::1%eth0", "host"}, "mac": {"", "52:54:00:aa:00", "zz:54:00:aa:00:01"},
		"wwnn": {"", "10000000c92b5b0", "10000000c92b5b01f", "10:00:00:00:c9:2b:5b:0g", "10:00:0000:c9:2b:5b:01", "naa.10000000c92b5b01"}, "wwpn": {"x"}, "net-id": {"", "net1"}, "port": {"eth0"}, "portgroup": {"bond0"},
		"weird": {"x"}, "": {"x"}, "IQN": {"iqn.2026-01.org.example"},
	}
	for kind, ids := range good {
		for _, one := range ids {
			if err := (&Connector{Type: kind, ConnectorID: one}).CheckForm(); err != nil {
				t.Errorf("%s %q: %v", kind, one, err)
			}
		}
	}
	for kind, ids := range bad {
		for _, one := range ids {
			if err := (&Connector{Type: kind, ConnectorID: one}).CheckForm(); !problem.Is(err, problem.Invalid) {
				t.Errorf("%s %q is taken: %v", kind, one, err)
			}
		}
	}
}

func FuzzConnectorForm(f *testing.F) {
	f.Add("iqn", "iqn.2026-01.org.example:a")
	f.Add("wwpn", "21:00:00:1b:32:00:00:00")
	f.Fuzz(func(t *testing.T, kind, id string) {
		err := (&Connector{Type: kind, ConnectorID: id}).CheckForm()
		if err != nil && !problem.Is(err, problem.Invalid) {
			t.Fatal(err)
		}
		if err == nil && strings.ContainsAny(id, " \t\r\n\x00\"'$`\\") {
			t.Fatalf("a %s that breaks scripts: %q", kind, id)
		}
	})
}

func TestVolumeSecrets(t *testing.T) {
	for _, key := range []string{
		"auth_username", "auth_password", "discovery_auth_username", "discovery_auth_password", "mutual_auth_username", "mutual_auth_password", "AUTH_USERNAME", "auth-username", "authUserName",
		"chap_secret", "chapUser", "initiator_username", "x_token", "private_key", "privateKey", "api-key", "credentials", "passphrase", "incoming_auth_user", "mutual_chap_name",
	} {
		if !VolumeSecret(key) {
			t.Errorf("%s is shown", key)
		}
	}
	for _, key := range []string{"auth_method", "discovery_auth_method", "target_iqn", "target_portals", "target_lun", "volume_id", "access_mode", "qos_specs", "encrypted", "device_path", "target_wwn", ""} {
		if VolumeSecret(key) {
			t.Errorf("%s is hidden", key)
		}
	}
	for key, hidden := range usualProperties {
		if isCredential(key) != hidden {
			t.Errorf("%s: the table and the rule differ", key)
		}
	}
}
