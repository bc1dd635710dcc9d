package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"salvor/cmd/salvor/kit"
)

// TestNodeListWhere: the list takes the keys of the verbs, and the age of a reading stands beside the power in tables only.
func TestNodeListWhere(t *testing.T) {
	const ids = "u1,u2,u3,u4,u5"
	fleet := ""
	for i, one := range []struct {
		bmc, age string
		fresh    bool
	}{{"answering", "40s", true}, {"silent", "31m5s", false}, {"silent", "5m5s", true}, {"unknown", "", false}, {"answering", "", true}} {
		at := "null"
		if age, err := time.ParseDuration(one.age); err == nil {
			at = fmt.Sprintf("%q", time.Now().Add(-age).UTC().Format(time.RFC3339))
		}
		fleet += fmt.Sprintf(`,{"uuid":"u%d","power_state":"power on","bmc":%q,"power_read_at":%s,"power_fresh":%t}`, i+1, one.bmc, at, one.fresh)
	}
	nodes := ""
	for i := range 5 {
		nodes += fmt.Sprintf(`,{"uuid":"u%d","name":"n%d","power_state":"power on","provision_state":"active"}`, i+1, i+1)
	}
	api := &fakeAPI{answers: map[string][]string{
		"GET /v1/nodes":              {`{"nodes": [` + nodes[1:] + `]}`},
		"GET /salvor/v1/fleet/nodes": {`{"nodes": [` + fleet[1:] + `]}`},
	}}
	out, errs, status := salvor(t, api, "", strings.Fields("node list --where bmc=silent --where state=active")...)
	out = regexp.MustCompile(`min \d+ s`).ReplaceAllString(out, "min")
	for _, want := range []string{"was power on 31 min ago (BMC silent)", "power on (read 5 min ago; BMC silent)", "power on (age of the reading not known)"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d: the list lacks %q:\n%s%s", status, want, out, errs)
		}
	}
	if strings.Contains(out, "(read 4") {
		t.Errorf("the short list tells the age of a fresh reading:\n%s", out)
	}
	if out, _, _ := salvor(t, api, "", "node", "list", "--long"); !strings.Contains(out, "power on (read 4") {
		t.Errorf("the long list lacks the age of a reading:\n%s", out)
	}
	if out, _, _ := salvor(t, api, "", "node", "list", "-f", "value", "-c", "power_state"); out != strings.Repeat("power on\n", 5) {
		t.Errorf("values for programs: %q", out)
	}
	asked := strings.Join(api.asked, "\n")
	if !strings.Contains(asked, "bmc=silent&provision_state=active") || !strings.Contains(asked, "fleet/nodes?uuid="+strings.ReplaceAll(ids, ",", "%2C")) {
		t.Errorf("asked:\n%s", asked)
	}
	for args, want := range map[string]string{
		"--where bmc=slient":              "want one of answering, silent, refusing, unknown",
		"--where bcm=silent":              `unknown key "bcm"; want one of associated, bmc,`,
		"--bmc silent --where bmc=silent": "bmc is given twice",
	} {
		if _, errs, status := salvor(t, api, "", append([]string{"node", "list"}, strings.Fields(args)...)...); status != kit.StatusUsage || !strings.Contains(errs, want) {
			t.Errorf("node list %s: status %d, %q, want %q", args, status, errs, want)
		}
	}
	for typed, want := range map[string]string{"": "bmc=", "bmc=": "bmc=silent", "maintenance=": "maintenance=true", "state=": "state=active"} {
		for _, words := range []string{"node list --where", "node power off --where"} {
			if got := strings.Join(completions(t, api, append(strings.Fields(words), typed)...), "|"); !strings.Contains("|"+got+"|", "|"+want+"|") {
				t.Errorf("completion of %s %q: %s, want %s", words, typed, got, want)
			}
		}
	}
}
