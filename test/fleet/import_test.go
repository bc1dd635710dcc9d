package fleet

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/test/must"
	"salvor/test/program"
)

// racks is a file of n nodes: each has two ports, and of each four one has a port group and traits, one lies within a chassis, and one is part of
// another.
func racks(n int) string {
	var chassis, nodes strings.Builder
	for i := range n {
		out, pad := &nodes, ""
		if i%4 == 1 {
			out, pad = &chassis, "  "
		}
		line := func(format string, args ...any) { fmt.Fprintf(out, pad+format+"\n", args...) }
		line("- name: r%d-%d", i/40, i%40)
		line("  driver: redfish")
		line("  driver_info: {redfish_address: https://10.9.%d.%d, redfish_username: admin, redfish_password_file: bmc-password}", i/250, i%250)
		line("  properties: {cpus: %d, cpu_arch: x86_64}", i%8+1)
		line("  extra: {rack: r%d, slot: '%03d'}", i/40, i%40)
		port := func(k int) string { return fmt.Sprintf("52:54:%02x:00:%02x:%02x", k, i/256, i%256) }
		switch {
		case i%4 == 2:
			line("  traits: [CUSTOM_GOLD, HW_CPU_X86_VMX]")
			line("  portgroups:\n  - {name: bond-%d, mode: 802.3ad, ports: [{address: '%s'}, {address: '%s', pxe_enabled: false}]}", i, port(1), port(2))
			continue
		case i%4 == 3:
			line("  parent_node: r%d-%d", (i-1)/40, (i-1)%40)
		}
		line("  ports: [{address: %s}, {address: %s, physical_network: lan}]", port(1), port(2))
	}
	return "chassis:\n- description: rack 1\n  nodes:\n" + chassis.String() + "nodes:\n" + nodes.String()
}

// TestImport: an import that is killed leaves off between two nodes or amid one, and a second does the rest. What an export prints makes the same
// fleet elsewhere, in each form.
func TestImport(t *testing.T) {
	const many = 500
	dir := t.TempDir()
	file := filepath.Join(dir, "racks.yaml")
	must.OK(t, os.WriteFile(file, []byte(racks(many)), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(dir, "bmc-password"), []byte("pass word\n"), 0o600))
	first := program.CLI{URL: program.Serve(t, "").URL}
	if out := first.Run(t, "node", "import", file, "--dry-run"); strings.Count(out, ": new, with 2 ports") != many || first.Run(t, "node", "list", "-f", "value") != "" {
		t.Fatalf("a dry run prints %.300s, and leaves %.300s", out, first.Run(t, "node", "list", "-f", "value"))
	}
	killed := exec.CommandContext(t.Context(), program.Path(t, "salvor"), "node", "import", file, "--url", first.URL)
	lines := bufio.NewScanner(must.Get(killed.StdoutPipe())(t))
	must.OK(t, killed.Start())
	for range many / 4 {
		if !lines.Scan() {
			t.Fatal("the import ends before a quarter of the nodes is there")
		}
	}
	must.OK(t, killed.Process.Kill())
	_ = killed.Wait()
	out := first.Run(t, "node", "import", file)
	if made := strings.Count(out, ": created"); made < many/4 || made > many*3/4 || strings.Count(out, "\n") != many-1 && strings.Count(out, "\n") != many {
		t.Errorf("%d of %d nodes are created after the kill:\n%.500s", made, many, out)
	}
	if again := first.Run(t, "node", "import", file); strings.Count(again, ": unchanged") != many {
		t.Errorf("a third import finds work: %.500s", again)
	}
	exported := first.Run(t, "node", "export")
	if nodes, ports := strings.Count(exported, "- name: r"), len(regexp.MustCompile(`address: "?52:54:`).FindAllString(exported, -1)); nodes != many || ports != 2*many || strings.Contains(exported, "pass word") {
		t.Errorf("%d nodes with %d ports are exported, want %d with %d", nodes, ports, many, 2*many)
	}
	for _, form := range []string{"yaml", "json", "csv"} {
		name := filepath.Join(dir, "export."+form)
		must.OK(t, os.WriteFile(name, []byte(first.Run(t, "node", "export", "-f", form)), 0o600))
		other := program.CLI{URL: program.Serve(t, "").URL}
		if form == "csv" { // which has no chassis, only their UUIDs
			for _, chassis := range regexp.MustCompile(`(?m)^  - uuid: (\S+)\n    description: (.*)$`).FindAllStringSubmatch(exported, -1) {
				other.Run(t, "chassis", "create", "--uuid", chassis[1], "--description", chassis[2])
			}
		}
		other.Run(t, "node", "import", name, "--driver-info-file", "redfish_password="+filepath.Join(dir, "bmc-password"))
		if got := other.Run(t, "node", "export"); got != exported {
			t.Errorf("%s: the fleet differs after an export and an import: %.300s; want %.300s", form, got, exported)
		}
		if shown := other.Run(t, "node", "show", "r0-0", "-f", "json"); !strings.Contains(shown, `"redfish_password": "******"`) {
			t.Errorf("%s: r0-0 has no password: %s", form, shown)
		}
	}
}

// TestImportMistakes: of a file with mistakes of all kinds each is named with its line, and nothing is created.
func TestImportMistakes(t *testing.T) {
	cli := program.CLI{URL: program.Serve(t, "").URL}
	cli.Run(t, "node", "create", "--name", "old", "--driver", "redfish", "--owner", "ann")
	cli.Run(t, "port", "create", "52:54:ff:00:00:01", "--node", "old")
	file := filepath.Join(t.TempDir(), "bad.yaml")
	mistakes := map[string]string{ // the fields of a node, beside its name and driver: what is said
		"drivr: x": "drivr: unknown field; did you mean driver?", "power_state: on": "power_state is what the control plane finds or decides", "owner: {}": "owner: want a text, got an object",
		"retired: 7": `retired: want true or false, got "7"`, "driver_info: []": "driver_info: want an object, got a list", "uuid: 7": `uuid: "7" is no UUID`,
		"ports: x": "ports: want a list", "ports: [x]": "ports: want an object", "ports: [{}]": "a port has no address", "ports: [{address: 5}]": "MAC",
		"ports: [{adress: '52:54:fe:00:00:02'}]": "did you mean address?", "ports: [{address: '52:54:fe:00:00:03'}, {address: '525404000003'}, {address: '52:54:fe:00:00:03'}]": "is that of",
		"ports: [{address: '52:54:ff:00:00:01'}]": "the MAC address 52:54:ff:00:00:01 is that of node", "portgroups: {}": "portgroups: want a list", "portgroups: [{mood: x}]": "did you mean mode?",
		"portgroups: [{address: x}]": "MAC", "traits: x": "traits: want a list", "traits: [GOLD]": "GOLD", "extra: 7": "extra: want an object", "extra: {a: 1, a: 2}": "a stands here a second time",
		"driver_info: {redfish_adress: x}": "driver redfish has no key redfish_adress; did you mean redfish_address?", "driver_info: {redfish_password: '******'}": "which an export writes in the place of a secret",
		"driver_info: {redfish_password_file: nowhere}": "nowhere: no such file", "boot_interface: floppy": "boot_interface: driver redfish has no floppy; want one of", "parent_node: nobody": "parent_node: there is no node nobody",
		"chassis_uuid: 11111111-2222-4333-8444-555555555555": "there is no chassis 11111111", "uuid: 11111111-2222-4333-8444-555555555551\n  name: old": "stands here a second time",
		"network_data: x": "network_data: want an object", "description: [x]": "description: want a text",
	}
	text, lines, want := "nodes:\n", 1, map[int]string{}
	add := func(node, said string) {
		want[lines+1] = said
		text, lines = text+node, lines+strings.Count(node, "\n")
	}
	for i, fields := range slices.Sorted(maps.Keys(mistakes)) {
		add(fmt.Sprintf("- {name: n%d, driver: redfish}\n", i), "")
		add(fmt.Sprintf("- name: bad%d\n  driver: redfish\n  %s\n", i, fields), mistakes[fields])
	}
	for _, c := range []struct{ node, said string }{
		{"- {name: n0, driver: redfish}\n", "the name n0 is that of n0 in line 2"}, {"- {name: lost, driver: redfsh}\n", "the control plane has no driver redfsh; did you mean redfish?"},
		{"- {name: a b, driver: redfish}\n", `"a b" is no name for a node`}, {"- {name: alone}\n", "driver is missing"}, {"- just text\n", "want an object"},
		{"- {driver: redfish}\n", "a second import could not find it again"}, {"- {name: old, driver: redfish, owner: bob}\n", "the node is there with other fields: owner; give --update"},
		{"- {name: old, uuid: 11111111-2222-4333-8444-555555555552, driver: redfish}\n", "the name is that of node"},
		{"- {name: c1, driver: redfish, parent_node: c2}\n", "in a circle"}, {"- {name: c2, driver: redfish, parent_node: c1}\n", "in a circle"},
		{"- {name: b1, driver: redfish, driver_info: {redfish_address: h}}\n", ""}, {"- {name: b2, driver: redfish, driver_info: {redfish_address: h}}\n", "the BMC h is that of b1"},
	} {
		add(c.node, c.said)
	}
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	_, err := cli.Try(t, "node", "import", file)
	if err == nil || !strings.Contains(err.Error(), "nothing was created") {
		t.Fatalf("want a refusal, got %v", err)
	}
	said := map[int]string{}
	for _, m := range regexp.MustCompile(`(?m)line (\d+): (.*)$`).FindAllStringSubmatch(err.Error(), -1) {
		var line int
		_, _ = fmt.Sscan(m[1], &line)
		said[line] += m[2] + "\n"
	}
	kinds := 0
	for first, what := range want {
		var got string
		for line := first; line == first || line < lines+1 && want[line] == "" && !hasKey(want, line); line++ {
			got += said[line]
		}
		if what != "" {
			kinds++
		}
		if !strings.Contains(got, what) || what == "" && got != "" {
			t.Errorf("line %d: %q is said, want %q; in all\n%v", first, got, what, err)
		}
	}
	if kinds < 30 {
		t.Errorf("%d kinds of mistakes, want 30 or more", kinds)
	}
	if nodes := cli.Run(t, "node", "list", "-f", "value", "-c", "name"); strings.TrimSpace(nodes) != "old" {
		t.Errorf("nodes are created: %s", nodes)
	}
	if out := cli.Run(t, "node", "show", "old", "-f", "value", "-c", "owner"); strings.TrimSpace(out) != "ann" {
		t.Errorf("the owner of old is %s", out)
	}
}

func hasKey(m map[int]string, key int) bool {
	_, has := m[key]
	return has
}
