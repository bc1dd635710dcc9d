package ironic_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestRecordsCannotSetTheAgentsParameters: a record that could call an agent to another server is refused when it is written.
func TestRecordsCannotSetTheAgentsParameters(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	for _, where := range []string{"instance_info", "driver_info"} {
		for _, bad := range []string{
			"ipa_api_url=http://evil", "quiet IPA-Insecure=1", "ipa-ca-file=/x", "salvor_root_password", "salvor.rescue=channel", "ipa-api%default%-url=http://evil", "-- x", "bootif=01", `a\nb`,
		} {
			body := fmt.Sprintf(`[{"op":"add","path":"/%s/kernel_append_params","value":"%s"}]`, where, bad)
			if a := w.ask("PATCH", "/v1/nodes/n1", "1.115", body); a.Status != 400 || !strings.Contains(a.errorText(), where+"/kernel_append_params") {
				t.Errorf("PATCH %s %q: %d %s", where, bad, a.Status, a.errorText())
			}
			body = fmt.Sprintf(`{"driver":"fake-hardware","name":"n2","%s":{"kernel_append_params":"%s"}}`, where, bad)
			if a := w.ask("POST", "/v1/nodes", "1.115", body); a.Status != 400 || !strings.Contains(a.errorText(), where+"/kernel_append_params") {
				t.Errorf("POST %s %q: %d %s", where, bad, a.Status, a.errorText())
			}
		}
		for _, bad := range []string{"7", `["a"]`, `{"a":"b"}`} {
			if a := w.ask("PATCH", "/v1/nodes/n1", "1.115", `[{"op":"add","path":"/`+where+`/kernel_append_params","value":`+bad+`}]`); a.Status != 400 {
				t.Errorf("PATCH %s %s: %d %s", where, bad, a.Status, a.errorText())
			}
		}
		if a := w.ask("PATCH", "/v1/nodes/n1", "1.115", `[{"op":"add","path":"/`+where+`/kernel_append_params","value":"%default% nomodeset a_b=c"}]`); a.Status != 200 {
			t.Errorf("harmless parameters in %s: %d %s", where, a.Status, a.errorText())
		}
	}
}
