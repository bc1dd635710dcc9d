package redfish

import (
	"strings"
	"testing"

	"salvor/metal"
	"salvor/problem"
)

// TestAddresses: an IPv6 address needs no brackets where nobody can take its end for a port; manage and validate read an address alike.
func TestAddresses(t *testing.T) {
	for _, c := range []struct{ address, want, refusal string }{
		{"192.0.2.1", "https://192.0.2.1", ""},
		{"192.0.2.1:8443", "https://192.0.2.1:8443", ""},
		{"bmc.example:8443/redfish/v1", "https://bmc.example:8443", ""},
		{"2001:db8::7", "https://[2001:db8::7]", ""},
		{"http://2001:db8::7", "http://[2001:db8::7]", ""},
		{"https://2001:db8::7/", "https://[2001:db8::7]", ""},
		{"2001:db8::7/redfish/v1/", "https://[2001:db8::7]", ""},
		{"2001:DB8:0:0:0:0:0:7", "https://[2001:DB8:0:0:0:0:0:7]", ""},
		{"2001:db8::7:beef", "https://[2001:db8::7:beef]", ""},
		{"::1", "https://[::1]", ""},
		{"2001:db8::", "https://[2001:db8::]", ""},
		{"[2001:db8::7]", "https://[2001:db8::7]", ""},
		{"[2001:db8::7]:8443", "https://[2001:db8::7]:8443", ""},
		{"https://[2001:db8::7]:8443", "https://[2001:db8::7]:8443", ""},
		{"2001:db8::7:443", "", "[2001:db8::7:443]"}, // an address, or another with a port
		{"https://2001:db8::7:8443", "", "[2001:db8::7]:8443"},
		{"2001:db8::7:65000", "", "brackets"},
		{"2001:db8:7", "", "brackets"},
		{"host:80:80", "", "brackets"}, {"bmc.example:port", "", "is not a URL"},
		{"", "", "lacks"},
		{"ftp://2001:db8::7", "", "http"},
		{"https://admin@2001:db8::7", "", "user"},
		{"2001:db8::7/evil", "", "path"},
	} {
		n := node(c.address)
		s, err := parseDriverInfo(n)
		checked := (&Driver{}).CheckSettings(n, false)
		switch {
		case (err == nil) != (checked == nil):
			t.Errorf("%q: manage says %v, validate %v; want the same", c.address, err, checked)
		case c.refusal == "" && err != nil:
			t.Errorf("%q: want %s, got %v", c.address, c.want, err)
		case c.refusal == "" && s.base.String() != c.want:
			t.Errorf("%q: want %s, got %s", c.address, c.want, s.base)
		case c.refusal != "" && (!problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), c.refusal)):
			t.Errorf("%q: want a refusal with %q, got %v", c.address, c.refusal, err)
		}
	}
}

// TestILOAddresses: client_port is the port of an address without one, also of an IPv6 address without brackets.
func TestILOAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "https://192.0.2.1:8443", "192.0.2.1:444": "https://192.0.2.1:444", "http://ilo.example/": "http://ilo.example:8443",
		"2001:db8::7": "https://[2001:db8::7]:8443", "[2001:db8::7]": "https://[2001:db8::7]:8443", "[2001:db8::7]:444": "https://[2001:db8::7]:444", "https://2001:db8::7/": "https://[2001:db8::7]:8443",
	} {
		n := &metal.Node{Driver: ILO, DriverInfo: metal.Object{ILOAddressKey: address, "client_port": "8443"}}
		if s, err := parseDriverInfo(n); err != nil || s.base.String() != want {
			t.Errorf("%s: want %s, got %v, %v", address, want, s, err)
		}
	}
}
