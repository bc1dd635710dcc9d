package fleetfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

const good = `# two racks
chassis:
- description: rack 1
  nodes:
  - &first
    name: rack1-1
    driver: redfish
    driver_info: {redfish_address: https://10.0.0.1, redfish_username: admin, redfish_password: 0123}
    properties: {cpus: 16, local_gb: 100, cpu_arch: x86_64}
    automated_clean: no
    ports:
    - address: 52-54-00-00-00-01
    - {address: 52:54:00:00:00:02, pxe_enabled: false}
nodes:
- <<: *first
  name: rack2-1
  driver_info: {redfish_address: https://10.0.0.2, redfish_password_file: /run/pw}
  ports: []
  portgroups:
  - name: bond0
    mode: 802.3ad
    ports: [{address: "52:54:00:00:00:03"}]
  traits: [CUSTOM_GOLD]
`

// TestRead reads the form of "baremetal create FILE": a chassis with its nodes, ports with and without a group, and what YAML would change.
func TestRead(t *testing.T) {
	f, mistakes := Read(YAML, []byte(strings.ReplaceAll(good, "automated_clean: no", "automated_clean: false")))
	if len(mistakes) > 0 || len(f.Nodes) != 2 || len(f.Chassis) != 1 {
		t.Fatalf("%v; %+v", mistakes, f)
	}
	first, second := f.Nodes[0], f.Nodes[1]
	if info := first.Fields["driver_info"].(map[string]any); info["redfish_password"] != "0123" {
		t.Errorf("the password is %v, want the text 0123", info["redfish_password"])
	}
	if first.Chassis != f.Chassis[0] || second.Chassis != nil || first.Line != 5 {
		t.Errorf("chassis %v and %v, line %d", first.Chassis, second.Chassis, first.Line)
	}
	if len(first.Ports) != 2 || first.Ports[0].Text("address") != "52:54:00:00:00:01" || first.Ports[1].Fields["pxe_enabled"] != false {
		t.Errorf("ports of rack1-1: %+v", first.Ports)
	}
	if second.Text("driver") != "redfish" || len(second.Ports) != 0 || len(second.Groups) != 1 || len(second.AllPorts()) != 1 || second.Traits[0] != "CUSTOM_GOLD" {
		t.Errorf("rack2-1: %+v", second)
	}
	if files := second.SecretFiles(); files["redfish_password"] != "/run/pw" || len(first.SecretFiles()) != 0 {
		t.Errorf("files of secrets: %v and %v", files, first.SecretFiles())
	}
}

// TestReadCSV reads tables as spreadsheets of several countries write them.
func TestReadCSV(t *testing.T) {
	for name, text := range map[string]string{
		"commas":     "name,driver,driver_info.redfish_address,driver_info.redfish_password,mac,properties.cpus,retired\nn1,redfish,https://10.0.0.1,0123,\"52:54:00:00:00:01, 52:54:00:00:00:02\",16,yes\n",
		"semicolons": "\ufeffname;driver;driver-info.redfish_address;driver_info.redfish_password;mac;properties.cpus;retired\r\nn1;redfish;https://10.0.0.1;0123;52:54:00:00:00:01 525400000002;16;TRUE\r\n;;;;;;\r\n",
		"tabs":       "name\tdriver\tdriver_info.redfish_address\tdriver_info.redfish_password\tports\tproperties.cpus\tretired\nn1\tredfish\thttps://10.0.0.1\t0123\t\"[{\"\"address\"\":\"\"52:54:00:00:00:01\"\"},{\"\"address\"\":\"\"52:54:00:00:00:02\"\"}]\"\t16\t1\n",
	} {
		f, mistakes := Read(Form("x", []byte(text)), []byte(text))
		if len(mistakes) > 0 || len(f.Nodes) != 1 {
			t.Errorf("%s: %v", name, mistakes)
			continue
		}
		n := f.Nodes[0]
		want := map[string]any{
			"name": "n1", "driver": "redfish", "retired": true, "driver_info": map[string]any{"redfish_address": "https://10.0.0.1", "redfish_password": "0123"},
			"properties": map[string]any{"cpus": int64(16)},
		}
		if d := cmp.Diff(want, n.Fields); d != "" || len(n.Ports) != 2 || n.Ports[1].Text("address") != "52:54:00:00:00:02" || n.Line != 2 {
			t.Errorf("%s: line %d, ports %v, fields (-want +got)\n%s", name, n.Line, n.Ports, d)
		}
	}
}

// TestMistakes: each mistake is told with its line, and with what would be right.
func TestMistakes(t *testing.T) {
	node := func(more string) string { return "nodes:\n- name: n1\n  driver: redfish\n" + more }
	for _, c := range []struct{ form, text, want string }{
		{YAML, " \n", "line 1: the file is empty"},
		{YAML, "# nothing\n", "line 1: the file has no node"},
		{YAML, "nodes: []\n", "line 1: the file has no node"},
		{YAML, "nodes:\n- name: \xff\n", "line 2: the file is not UTF-8"},
		{YAML, "nodes:\n- name: [\n", "line 2: this is not YAML"},
		{YAML, "nodes:\n- name: a\n---\nnodes: []\n", "more than one document"},
		{JSON, "{\"nodes\": [\n{\"name\": }\n]}", "line 2: this is not JSON"},
		{JSON, "{\"nodes\": [\n{\"name\": \"a\"", "line 2: the document ends too early"},
		{JSON, "[]\n[]", "line 2: something follows"},
		{YAML, "servers: []\n", "line 1: servers: unknown key; want one of chassis, nodes"},
		{YAML, "just words\n", "line 1: want an object with the key nodes, or a list of nodes; got a single value"},
		{YAML, "nodes: 7\n", "line 1: nodes: want a list, got a single value"},
		{YAML, "nodes:\n- n1\n", "line 2: nodes: want an object, got a single value"},
		{YAML, node("  name: n2\n"), "line 4: name stands here a second time; first in line 2"},
		{YAML, node("  drivr: ipmi\n"), "line 4: n1: drivr: unknown field; did you mean driver?"},
		{YAML, node("  provision_state: active\n"), "line 4: n1: provision_state is what the control plane finds or decides: leave it out"},
		{YAML, "nodes:\n- name: n1\n", "line 2: n1: driver is missing"},
		{YAML, node("  uuid: seven\n"), `n1: uuid: "seven" is no UUID`},
		{YAML, "nodes:\n- driver: x\n  name: a_b c\n", `line 3: "a_b c" is no name for a node`},
		{YAML, node("  driver_info: https://x\n"), `line 4: n1: driver_info: want an object, got "https://x"`},
		{YAML, node("  owner: [a]\n"), "line 4: n1: owner: want a text, got a list"},
		{YAML, node("  retired: perhaps\n"), `line 4: n1: retired: want true or false, got "perhaps"`},
		{YAML, node("  ports: {}\n"), "line 4: n1: ports: want a list, got an object"},
		{YAML, node("  ports:\n  - mac: 52:54:00:00:00:01\n"), "line 5: n1: a port: mac: unknown field"},
		{YAML, node("  ports:\n  - pxe_enabled: true\n"), "line 5: n1: a port has no address"},
		{YAML, node("  ports:\n  - address: 52:54:00:00:00\n"), "line 5: n1: "},
		{YAML, node("  ports:\n  - address: 52:54:00:00:00:01\n  - address: 525400000001\n"), "line 6: n1: the MAC address 52:54:00:00:00:01 is that of n1 in line 5"},
		{YAML, node("  portgroups:\n  - mod: x\n"), "line 5: n1: a port group: mod: unknown field; did you mean mode?"},
		{YAML, node("  traits: GOLD\n"), "line 4: n1: traits: want a list"},
		{YAML, node("  traits: [GOLD]\n"), "line 4: n1: "},
		{YAML, node("- name: n1\n  driver: ipmi\n"), "line 4: n1: the name n1 is that of n1 in line 2"},
		{YAML, node("  driver_info: {redfish_address: https://b}\n- name: n2\n  driver: redfish\n  driver_info: {redfish_address: https://b/}\n"), "line 5: n2: the BMC https://b is that of n1 in line 2"},
		{YAML, node("  driver_info:\n    redfish_password: '******'\n"), "line 5: n1: driver_info.redfish_password is ******, which an export writes in the place of a secret"},
		{CSV, "name,driver\nn1\n", "line 2: the row has 1 cells and the first line 2 columns"},
		{CSV, "name,driver,name\nn1,x,y\n", "line 1: the column name stands twice"},
		{CSV, "name,driver,redfish_address\nn1,redfish,x\n", `line 1: "redfish_address": unknown column; did you mean driver_info.redfish_address?`},
		{CSV, "name,drivr\nn1,redfish\n", `line 1: "drivr": unknown column; did you mean driver?`},
		{CSV, "name,driver\n\"n1,redfish\n", "line 2: this is not CSV"},
		{CSV, "name,driver,ports\nn1,redfish,[{]\n", "line 2: ports: want JSON in the cell"},
		{CSV, "name,driver,mac,ports\nn1,redfish,525400000001,[]\n", "line 2: ports stands here a second time"},
	} {
		_, mistakes := Read(c.form, []byte(c.text))
		if len(mistakes) == 0 || !strings.Contains(fmt.Sprint(mistakes), c.want) {
			t.Errorf("%s %q: %v; want %s", c.form, c.text, mistakes, c.want)
		}
	}
}

// TestBounds: a document that grows by its aliases, or that lies deep in itself, ends in a mistake and not in the machine's memory.
func TestBounds(t *testing.T) {
	bomb := "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimRight(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	for form, text := range map[string]string{YAML: bomb, JSON: strings.Repeat("[", 100_000)} {
		if _, mistakes := Read(form, []byte(text)); len(mistakes) != 1 || !strings.Contains(mistakes[0].What, "more than") {
			t.Errorf("%s: %v", form, mistakes)
		}
	}
}

// TestRoundTrip: what is written in any form is read again as it was.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ -~äß\n"',;#:{}*&!|>%@]{0,12}[a-z0-9.]`)
		f, port := &File{}, 0
		ports := func() (out []*Part) {
			for range rapid.IntRange(0, 2).Draw(t, "ports") {
				port++
				p := &Part{Fields: map[string]any{"address": fmt.Sprintf("52:54:00:00:00:%02x", port)}}
				if rapid.Bool().Draw(t, "more") {
					p.Fields["pxe_enabled"] = false
				}
				out = append(out, p)
			}
			return out
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			n := &Node{Part: Part{Fields: map[string]any{"name": fmt.Sprint("n", i), "driver": "redfish"}}}
			n.Fields["driver_info"] = map[string]any{"redfish_address": fmt.Sprintf("https://10.0.0.%d", i), "redfish_password": text.Draw(t, "password")}
			n.Fields["extra"] = map[string]any{"text": strings.TrimSpace(text.Draw(t, "extra")), "number": int64(i), "looks": "007", "none": nil, "list": []any{"a", int64(1)}}
			n.Fields["description"] = strings.TrimSpace(text.Draw(t, "description"))
			n.Ports = ports()
			for j := range rapid.IntRange(0, 1).Draw(t, "groups") {
				n.Groups = append(n.Groups, &Group{Part: Part{Fields: map[string]any{"name": fmt.Sprint("g", i, j)}}, Ports: ports()})
			}
			f.Nodes = append(f.Nodes, n)
		}
		for _, form := range Forms {
			written, err := Write(form, f)
			if err != nil {
				t.Fatal(err)
			}
			got, mistakes := Read(form, written)
			ignore := cmp.Options{cmpopts.IgnoreFields(Part{}, "Line"), cmpopts.IgnoreUnexported(Node{}), cmpopts.EquateEmpty()}
			if d := cmp.Diff(f, got, ignore); len(mistakes) > 0 || d != "" {
				t.Fatalf("%s: %v; (-want +got)\n%s\n%s", form, mistakes, d, written)
			}
		}
	})
}

// FuzzRead: no file makes the reader panic, and each that has no mistake can be written and read again.
func FuzzRead(f *testing.F) {
	for i := range Forms {
		f.Add(i, []byte(good))
	}
	f.Add(2, []byte("name,driver,mac\nn1,redfish,525400000001\n"))
	f.Add(1, []byte(`{"nodes":[{"name":"a","driver":"b","ports":[{"address":"525400000001"}]}]}`))
	f.Fuzz(func(t *testing.T, form int, text []byte) {
		name := Forms[uint(form)%uint(len(Forms))]
		found, mistakes := Read(name, text)
		if len(mistakes) > 0 {
			return
		}
		for _, again := range Forms[:2] {
			written, err := Write(again, found)
			if err != nil {
				t.Fatal(err)
			}
			if _, mistakes := Read(again, written); len(mistakes) > 0 {
				t.Fatalf("%s: %v\n%s", again, mistakes, written)
			}
		}
	})
}
