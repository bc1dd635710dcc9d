package main

import (
	"slices"
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
)

// TestSelections: patterns of names and labels choose nodes for verbs and for lists, and a dry run asks for no change.
func TestSelections(t *testing.T) {
	const nodes = `{"nodes": [{"uuid": "u1", "name": "rack1-1", "provision_state": "active", "extra": {"rack": 1}},
		{"uuid": "u2", "name": "rack1-2", "provision_state": "active", "extra": {"rack": "1", "gold": true}},
		{"uuid": "u3", "name": "rack2-1", "provision_state": "active", "extra": {}}, {"uuid": "u4", "name": null, "provision_state": "enroll", "extra": {"rack": 1}}]}`
	for _, c := range []struct {
		line string
		want []string // the nodes that are changed
		said string
	}{
		{"node unset rack1-* --owner", []string{"u1", "u2"}, "2 nodes are chosen"},
		{"node unset rack?-1 rack1-2 u4 --owner", []string{"u1", "u2", "u3", "u4"}, "4 nodes are chosen"},
		{"node unset --where extra.rack=1 --owner", []string{"u1", "u2", "u4"}, "rack1-1: changed"},
		{"node unset --where extra.rack=1 --where name=rack* --owner", []string{"u1", "u2"}, "rack1-2: changed"},
		{"node unset --where extra.gold=true --owner", []string{"u2"}, "rack1-2: changed"},
		{"node unset --where extra.rack=1 --owner --dry-run", nil, "3 nodes are chosen"},
		{"node unset rack1-1 --owner --dry-run", nil, "chosen: rack1-1"},
		{"node boot device set --where name=rack2-* pxe", []string{"u3"}, "rack2-1: boots from pxe"},
		{"node boot device set rack1-1 rack2-1 pxe", []string{"rack1-1", "rack2-1"}, "rack2-1: boots from pxe"},
		{"node console enable rack1-*", []string{"u1", "u2"}, "rack1-1: accepted: console enable"},
		{"node secure boot off --where extra.gold=true", []string{"u2"}, "rack1-2: accepted: secure boot off"},
		{"node unset rack9-* --owner", nil, "no node has rack9-*"},
		{"node unset --where name=[ --owner", nil, "want a pattern with *, ? and [a-z]"},
		{"node boot device set pxe", nil, "--where KEY=VALUE"},
		{"node boot device set --where name=x", nil, "requires 1 arg behind --where"},
	} {
		answers := map[string][]string{"GET /v1/nodes": {nodes}}
		for _, id := range []string{"u1", "u2", "u3", "u4", "rack1-1", "rack1-2", "rack2-1"} {
			for _, call := range []string{"PATCH /v1/nodes/" + id, "PUT /v1/nodes/" + id + "/management/boot_device", "PUT /v1/nodes/" + id + "/states/console", "PUT /v1/nodes/" + id + "/states/secure_boot"} {
				answers[call] = []string{"{}"}
			}
		}
		api := &fakeAPI{answers: answers}
		_, errs, _ := salvor(t, api, "", strings.Fields(c.line)...)
		var changed []string
		for _, asked := range api.asked {
			if path, found := strings.CutPrefix(asked[strings.Index(asked, " "):], " /v1/nodes/"); found && !strings.HasPrefix(asked, "GET") {
				id, _, _ := strings.Cut(strings.Fields(path)[0], "/")
				changed = append(changed, id)
			}
		}
		if slices.Sort(changed); !slices.Equal(changed, c.want) || !strings.Contains(errs, c.said) {
			t.Errorf("salvor %s changes %v, want %v; it says %s, want %q", c.line, changed, c.want, errs, c.said)
		}
	}
	api := &fakeAPI{answers: map[string][]string{"GET /v1/nodes": {nodes}}}
	for line, want := range map[string]string{
		"node list --where extra.rack=1 -o value -c name":           "rack1-1\nrack1-2\nNone\n",
		"node list --where extra.rack=1 --limit 1 -f value -c name": "rack1-1\n",
		"node list --where name=*-1 --fields uuid -f value":         "u1\nu3\n",
	} {
		if out, errs, status := salvor(t, api, "", strings.Fields(line)...); out != want || status != 0 {
			t.Errorf("salvor %s: status %d, %q, want %q; %s", line, status, out, want, errs)
		}
	}
	api.answers["GET /v1/nodes/u1/validate"] = []string{`{"boot": {"result": false, "reason": "no kernel"}}`}
	out, _, status := salvor(t, api, "", "node", "validate", "rack1-*", "-f", "value")
	if status != kit.StatusFailed || out != "rack1-1 boot False no kernel\n" { // the other node is not there
		t.Errorf("node validate: status %d, %q", status, out)
	}
}
