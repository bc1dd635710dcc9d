package main

import (
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
)

// TestUnknownNamesInFilters: an empty list whose filter names a record that does not exist is an error, and a record that exists may have none.
func TestUnknownNamesInFilters(t *testing.T) {
	empty := map[string][]string{
		"GET /compute/v2.1/servers/detail": {`{"servers": []}`}, "GET /salvor/v1/hosts": {`{"hosts": []}`}, "GET /salvor/v1/hosts/vm7": {`{"id": "h7", "name": "vm7"}`},
		"GET /salvor/v1/plans": {`{"plans": []}`}, "GET /salvor/v1/moves": {`{"moves": []}`},
		"GET /v1/nodes": {`{"nodes": []}`}, "GET /v1/nodes/rack1-7": {`{"uuid": "u7"}`}, "GET /v1/ports": {`{"ports": []}`}, "GET /v1/allocations": {`{"allocations": []}`},
		"GET /v1/conductors": {`{"conductors": [{"hostname": "c1", "conductor_group": "rack-a"}, {"hostname": "c2", "conductor_group": ""}]}`}, "GET /v1/conductors/c1": {`{"hostname": "c1"}`},
		"GET /v1/drivers/ipmi": {`{"name": "ipmi"}`}, "GET /v1/chassis/ch1": {`{"uuid": "ch1"}`},
	}
	for _, c := range []struct{ command, unknown, known string }{
		{"server list --host", "vm8", "vm7"},
		{"evacuate list --host", "vm8", "vm7"},
		{"evacuate moves --host", "vm8", "vm7"},
		{"evacuate moves --server", "web9", ""},
		{"evacuate moves --plan", sampleUUID, ""},
		{"port list --node", "rack1-8", "rack1-7"},
		{"allocation list --node", "rack1-8", "rack1-7"},
		{"node list --parent-node", "rack1-8", "rack1-7"},
		{"node list --where parent-node", "rack1-8", "rack1-7"},
		{"node list --conductor", "c9", "c1"},
		{"node list --conductor-group", "rack-b", "rack-a"},
		{"node list --driver", "impi", "ipmi"},
		{"node list --chassis", "ch2", "ch1"},
		{"node power on --where conductor-group", "rack-b", ""},
	} {
		for _, name := range []string{c.unknown, c.known} {
			if name == "" {
				continue
			}
			args := strings.Fields(c.command)
			if strings.Contains(c.command, "--where") {
				args[len(args)-1] += "=" + name
			} else {
				args = append(args, name)
			}
			answers := map[string][]string{}
			for call, answer := range empty {
				answers[call] = answer
			}
			out, errs, status := salvor(t, &fakeAPI{answers: answers}, "", args...)
			if name == c.known && (status != 0 || errs != "") {
				t.Errorf("%v: status %d, %q: the name is known, so the list is empty", args, status, errs)
			}
			if name != c.known && (status == 0 || !strings.Contains(errs, name) || out != "") {
				t.Errorf("%v: status %d, printed %q, %q: want an error with the unknown name", args, status, out, errs)
			}
		}
	}
	if _, errs, status := salvor(t, &fakeAPI{answers: empty}, "", "server", "list", "--host", ""); status != kit.StatusUsage {
		t.Errorf("server list --host '': status %d, %q; want a usage error", status, errs)
	}
}
