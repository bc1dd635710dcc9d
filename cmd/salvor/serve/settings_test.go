package serve

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"salvor/conductor/node"
	"salvor/metal"
	"salvor/problem"
)

// wrongSettings are values that no key of driver_info takes, by key. A nil list: the key takes every text, or other checks read it.
var wrongSettings = map[string][]any{
	"redfish_address":             {"", "http://", "ftp://192.0.2.7", "https://192.0.2.7/redfish/v1/Systems/1", "https://u:p@192.0.2.7", "https://2001:db8::7:443:x", "https://192.0.2.7:x", " ", "https://192.0.2.7?a=b", "https://[fe80::1%eth0"},
	"redfish_system_id":           {"a/b", "//host/x", "a?b", "http://host/x"},
	"redfish_auth_type":           {"digest", "Basic "},
	"redfish_verify_ca":           {"/nowhere/ca.pem", 7.0, "perhaps"},
	"redfish_tls_minimum_version": {"0.9", "x", 3.0},
	"redfish_tls_legacy":          {"perhaps"},
	"redfish_quirks":              {"nonsense", "settle=5h", "auth=digest", "no_such=1"},
	"redfish_username":            nil,
	"redfish_password":            nil,
	"ipmi_address":                {"", "-v", "a b", "192.0.2.7:623", "[2001:db8::7]", "http://192.0.2.7", "münchen"},
	"ipmi_port":                   {"x", "0", "70000", -1.0, 1.5},
	"ipmi_username":               {strings.Repeat("u", 17)},
	"ipmi_password":               {strings.Repeat("p", 21)},
	"ipmi_cipher_suite":           {"99", "x", "0", 1.0},
	"ipmi_priv_level":             {"FOO", "ADMIN"},
	"ipmi_hex_kg_key":             {"zz", "123", strings.Repeat("11", 21), "0011"},
	"ilo_address":                 {"", "ftp://192.0.2.7", "https://192.0.2.7/rest/v1"},
	"ilo_verify_ca":               {"/nowhere/ca.pem", 7.0},
	"client_port":                 {"x"},
	"ilo_username":                nil,
	"ilo_password":                nil,
}

// TestValidateReadsSettings: each value of driver_info that a read of the power refuses, as manage does, is refused by validate with the same
// sentence, and the table of wrong values knows each key of the drivers.
func TestValidateReadsSettings(t *testing.T) {
	t.Parallel()
	types := hardwareTypes(driverConfig{})
	con := node.New(node.Config{Drivers: types})
	remote := node.New(node.Config{Drivers: types, FilesElsewhere: true})
	for _, hw := range types {
		right := map[string]metal.Object{
			"redfish": {"redfish_address": "https://192.0.2.7"}, "idrac": {"redfish_address": "https://192.0.2.7"}, "ilo": {"ilo_address": "https://192.0.2.7"}, "ipmi": {"ipmi_address": "192.0.2.7"},
		}[hw.Info.Name]
		if right == nil {
			continue // its power needs no settings
		}
		set := hw.Info.Interfaces["power"]
		n := &metal.Node{ID: "n1", Driver: hw.Info.Name, DriverInfo: right, Interfaces: map[string]string{}}
		power := hw.Power[set.Default]
		if found := reasonOf(con.CheckSettings(n), "power"); found != "" {
			t.Errorf("%s: right settings are refused: %s", hw.Info.Name, found)
		}
		for _, key := range slices.Sorted(maps.Keys(hw.Info.Properties)) {
			values, known := wrongSettings[key]
			if !known && !strings.Contains(key, "kernel") && !strings.Contains(key, "ramdisk") && !strings.HasSuffix(key, "_iso") {
				t.Errorf("%s: the table has no row for %s", hw.Info.Name, key)
			}
			for _, value := range values {
				wrong := n.Clone()
				wrong.DriverInfo[key] = value
				if hw.Info.Name != "ipmi" && strings.HasPrefix(key, "ipmi_") {
					continue // only the console reads it
				}
				_, err := power.PowerState(t.Context(), wrong)
				if !problem.Is(err, problem.Invalid) {
					t.Errorf("%s: %s = %v: a read of the power gives %v; want a refusal, or another row of the table", hw.Info.Name, key, value, err)
					continue
				}
				found := reasonOf(con.CheckSettings(wrong), "power")
				if found == "" || !strings.HasSuffix(err.Error(), found) {
					t.Errorf("%s: %s = %v: validate says %q, a read of the power %q; want the same sentence", hw.Info.Name, key, value, found, err)
				}
				if found := reasonOf(con.CheckSettings(wrong), "management"); found == "" {
					t.Errorf("%s: %s = %v: validate says nothing of management", hw.Info.Name, key, value)
				}
				if file, ok := value.(string); ok && strings.HasPrefix(file, "/nowhere") {
					if found := reasonOf(remote.CheckSettings(wrong), "power"); found != "" {
						t.Errorf("%s: %s = %v: a process that does not see the conductor's files says %q", hw.Info.Name, key, value, found)
					}
				}
			}
		}
	}
}

func reasonOf(all []metal.Reason, kind string) string {
	for _, r := range all {
		if r.Interface == kind {
			return r.Text
		}
	}
	return ""
}

// TestValidateReadsConsoleSettings: the console of a machine that Redfish drives has settings of its own.
func TestValidateReadsConsoleSettings(t *testing.T) {
	t.Parallel()
	con := node.New(node.Config{Drivers: hardwareTypes(driverConfig{})})
	n := &metal.Node{ID: "n1", Driver: "redfish", DriverInfo: metal.Object{"redfish_address": "https://192.0.2.7", "ipmi_address": "192.0.2.7", "ipmi_port": "x"}, Interfaces: map[string]string{"console": "ipmi-sol"}}
	if found := con.CheckSettings(n); len(found) != 1 || found[0] != (metal.Reason{Interface: "console", Text: "ipmi_port must be a port number"}) {
		t.Errorf("%v; want the port at the console alone", found)
	}
}

// TestValidateReadsForbiddenAddresses: an address at which no BMC may be spoken to is refused by validate with the sentence of manage.
func TestValidateReadsForbiddenAddresses(t *testing.T) {
	t.Parallel()
	types := hardwareTypes(driverConfig{BMC: func(_, address string, _ syscall.RawConn) error {
		return problem.Invalidf("address %s may not be connected to", address)
	}})
	con := node.New(node.Config{Drivers: types})
	for _, c := range []struct{ driver, key, value string }{
		{"redfish", "redfish_address", "https://192.0.2.7"}, {"redfish", "redfish_address", "http://192.0.2.7"}, {"redfish", "redfish_address", "https://[fe80::1%25lo]"}, {"redfish", "redfish_address", "https://[2001:db8::7]:8443"}, {"redfish", "redfish_address", "https://2001:db8::7"},
		{"ilo", "ilo_address", "192.0.2.7"}, {"ipmi", "ipmi_address", "192.0.2.7"}, {"ipmi", "ipmi_address", "2001:db8::7"},
	} {
		for _, hw := range types {
			if hw.Info.Name != c.driver {
				continue
			}
			n := &metal.Node{ID: "n1", Driver: c.driver, DriverInfo: metal.Object{c.key: c.value}, Interfaces: map[string]string{}}
			_, err := hw.Power[hw.Info.Interfaces["power"].Default].PowerState(t.Context(), n)
			found := reasonOf(con.CheckSettings(n), "power")
			if err == nil || found == "" || !strings.Contains(err.Error(), found) {
				t.Errorf("%s %s: validate says %q, a read of the power %v; want the same sentence", c.driver, c.value, found, err)
			}
		}
	}
}
