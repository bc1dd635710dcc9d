package link

import (
	"strings"
	"testing"
)

// TestLinks: the path of a link counts, whatever the BMC calls itself, and it never names another host.
func TestLinks(t *testing.T) {
	for _, c := range []struct{ base, ref, want string }{
		{"/redfish/v1/", "/redfish/v1/Systems/1", "/redfish/v1/Systems/1"},
		{"/redfish/v1/", "/redfish/v1/Systems/1/", "/redfish/v1/Systems/1/"},
		{"/redfish/v1/", "http://bmc.internal:8080/redfish/v1/Systems/1", "/redfish/v1/Systems/1"},
		{"/redfish/v1/", "//192.0.2.9/redfish/v1/x", "/redfish/v1/x"},
		{"/redfish/v1/", "redfish/v1/Systems/1", "/redfish/v1/Systems/1"},
		{"/redfish/v1/Systems", "1", "/redfish/v1/Systems/1"},
		{"/redfish/v1/Systems", "Systems/1", "/redfish/v1/Systems/1"},
		{"/redfish/v1/", "v1/Systems", "/redfish/v1/Systems"},
		{"/redfish/v1/Systems/1", "../Chassis/1", "/redfish/v1/Chassis/1"},
		{"/redfish/v1/", "/redfish/v1/Logs?$skip=5", "/redfish/v1/Logs?$skip=5"},
		{"/redfish/v1/", "/redfish/v1/%53ystems/1", "/redfish/v1/Systems/1"},
		{"/redfish/v1/", "@example.org/x", "/redfish/v1/@example.org/x"},
		{"/redfish/v1/Logs", "?$skip=5", "/redfish/v1/Logs?$skip=5"},
		{"/redfish/v1/Logs?$skip=5", "?$skip=10", "/redfish/v1/Logs?$skip=10"},
		{"/redfish/v1/", "", ""}, {"/redfish/v1/", "http://host?x=1", ""}, {"/redfish/v1/", "ftp://host/x", ""}, {"/redfish/v1/", "/ok/%zz", ""}, {"/redfish/v1/", "http://host", ""}, {"/redfish/v1/", "mailto:x", ""},
		{"/redfish/v1/", "/" + strings.Repeat("x", maxLength), ""},
	} {
		if got := Join(c.base, c.ref); got != c.want {
			t.Errorf("%q in %s leads to %q, want %q", c.ref, c.base, got, c.want)
		}
	}
}

// TestLinkForms: a link in any form that careless BMCs write.
func TestLinkForms(t *testing.T) {
	const at = "/redfish/v1/Chassis/1"
	for text, want := range map[string]string{
		`{"@odata.id":"` + at + `"}`: at, `"` + at + `"`: at, `{"href":"` + at + `"}`: at, `[{"@odata.id":"` + at + `"}]`: at, `["` + at + `"]`: at,
		`null`: "", `{}`: "", `[]`: "", `7`: "", `"N/A "`: "", `"map[@odata.id:/x]"`: "", `{"@odata.id":null}`: "", `{"@odata.id":7}`: "",
	} {
		var one Link
		if err := one.UnmarshalJSON([]byte(text)); err != nil || one.Path != want {
			t.Errorf("%s: %q, %v; want %q", text, one.Path, err, want)
		}
		var links Links
		if err := links.UnmarshalJSON([]byte(text)); err != nil || want != "" && (len(links) != 1 || links[0].Path != want) {
			t.Errorf("%s in the place of a list: %v, %v; want one link to %q", text, links, err, want)
		}
	}
}
