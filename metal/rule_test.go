package metal

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// decode reads JSON for a table.
func decode[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

const foundInventory = `{"cpu": {"count": 8, "architecture": "x86_64", "flags": ["sse", "avx"]}, "memory": {"physical_mb": 65536},
	"bmc_address": "10.0.3.7", "interfaces": [{"name": "eth0", "mac_address": "52:54:00:00:00:01"}], "bmc_password": "hush", "empty": [], "none": null}`

func someFindings(t testing.TB) *Findings {
	return &Findings{
		Node: &Node{
			ID: "11111111-2222-4333-8444-555555555555", Name: "n1", Driver: "redfish", ResourceClass: "old", Traits: []string{"CUSTOM_A"},
			DriverInfo: Object{"redfish_address": "https://10.0.3.7", "redfish_password": "hush"},
			Properties: Object{"capabilities": "raid:true,boot_mode:bios"}, Extra: Object{"rack": 7.0},
		},
		Ports:     []*Port{{Record: record.Record{ID: "p1"}, Address: "52:54:00:00:00:01", PXEEnabled: true}},
		Inventory: decode[Object](t, foundInventory), Plugin: Object{"root_disk": map[string]any{"name": "/dev/sda"}},
	}
}

func ruleOf(t testing.TB, conditions, actions string) *InspectionRule {
	return &InspectionRule{Record: record.Record{ID: "r"}, Conditions: decode[[]any](t, conditions), Actions: decode[[]any](t, actions)}
}

func TestConditions(t *testing.T) {
	for _, tt := range []struct {
		condition string
		holds     bool
	}{
		{`{"op":"eq","args":{"values":["{inventory[cpu][count]}",8]}}`, true},
		{`{"op":"eq","args":{"values":["{inventory[cpu][count]}","8"]}}`, true},
		{`{"op":"eq","args":[["a","a","b"]]}`, false},
		{`{"op":"eq","args":{"values":[1,"1"],"force_strings":true}}`, true},
		{`{"op":"eq","args":{"values":[[1],[1]]}}`, true},
		{`{"op":"eq","args":["{inventory[cpu][count]}",8]}`, true},
		{`{"op":"eq","args":["node:memory_mb",4096],"multiple":"all"}`, false},
		{`{"op":"eq","args":[[1,"1"],true]}`, true},
		{`{"op":"eq","args":{"values":[]}}`, true},
		{`{"op":"!eq","args":{"values":["a","b"]}}`, true},
		{`{"op":" ! eq ","args":{"values":["a","a"]}}`, false},
		{`{"op":"ne","args":{"values":["a","b"]}}`, true},
		{`{"op":"lt","args":{"values":["{inventory[cpu][count]}",16,32]}}`, true},
		{`{"op":"gt","args":{"values":["{inventory[memory][physical_mb]}",100000]}}`, false},
		{`{"op":"le","args":{"values":[1,1]}}`, true},
		{`{"op":"ge","args":{"values":["b","a"]}}`, true},
		{`{"op":"is-empty","args":{"value":"{inventory[empty]}"}}`, true},
		{`{"op":"is-empty","args":{"value":"{inventory[nothing][here]}"}}`, true},
		{`{"op":"is-empty","args":{"value":"{inventory[cpu]}"}}`, false},
		{`{"op":"!is-empty","args":["{node.name}"]}`, true},
		{`{"op":"is-none","args":{"value":null}}`, true},
		{`{"op":"is-none","args":{"value":"x"}}`, false},
		{`{"op":"is-true","args":{"value":"Yes"}}`, true},
		{`{"op":"is-true","args":{"value":1}}`, true},
		{`{"op":"is-false","args":{"value":"false"}}`, true},
		{`{"op":"is-false","args":{"value":"maybe"}}`, false},
		{`{"op":"matches","args":{"value":"{inventory[cpu][architecture]}","regex":"x86.*"}}`, true},
		{`{"op":"matches","args":{"value":"{inventory[cpu][architecture]}","regex":"x86"}}`, false},
		{`{"op":"matches","args":{"value":"x86_64","regex":"x86_64$"}}`, true},
		{`{"op":"contains","args":{"value":"{inventory[cpu][flags]}","regex":"avx"}}`, true},
		{`{"op":"contains","args":{"value":"abc","regex":"^b"}}`, false},
		{`{"op":"in-net","args":{"address":"{inventory[bmc_address]}","subnet":"10.0.0.0/16"}}`, true},
		{`{"op":"in-net","args":{"address":"10.1.3.7","subnet":"10.0.0.0/16"}}`, false},
		{`{"op":"in-net","args":{"address":"fd00::1","subnet":"fd00::/8"}}`, true},
		{`{"op":"in-net","args":{"address":"10.1.3.7","subnet":"10.1.3.7"}}`, true},
		{`{"op":"one-of","args":{"value":"{node.driver}","values":["ipmi","redfish"]}}`, true},
		{`{"op":"one-of","args":{"value":"x"}}`, false},
		{`{"op":"eq","args":{"values":["{node.properties[capabilities]}","raid:true,boot_mode:bios"]}}`, true},
		{`{"op":"eq","args":{"values":["{{x}}","{{x}}"]}}`, true},
		{`{"op":"eq","args":{"values":["{item}","avx"]},"loop":["sse","avx"]}`, true},
		{`{"op":"eq","args":{"values":["{item}","avx"]},"loop":["sse","avx"],"multiple":"all"}`, false},
		{`{"op":"eq","args":{"values":["{item}","avx"]},"loop":["sse","avx"],"multiple":"first"}`, false},
		{`{"op":"eq","args":{"values":["{item}","avx"]},"loop":["sse","avx"],"multiple":"last"}`, true},
		{`{"op":"eq","args":{"values":["{item[a]}","8"]},"loop":{"a":"{inventory[cpu][count]}"}}`, true},
		// What is secret is not told, and cannot be compared with.
		{`{"op":"eq","args":{"values":["{inventory[bmc_password]}","hush"]}}`, false},
		{`{"op":"contains","args":{"value":"{inventory} {node.driver_info}","regex":"hush"}}`, false},
	} {
		f := someFindings(t)
		r := ruleOf(t, "["+tt.condition+"]", `[{"op":"log","args":{"msg":"held"}}]`)
		if err := Apply([]*InspectionRule{r}, f); err != nil {
			t.Errorf("%s: %v", tt.condition, err)
		} else if got := len(f.Notes) == 1; got != tt.holds {
			t.Errorf("%s: %v, want %v", tt.condition, got, tt.holds)
		}
	}
}

func TestActions(t *testing.T) {
	f := someFindings(t)
	before := f.Node.Properties
	r := ruleOf(t, `[]`, `[
		{"op":"set-attribute","args":{"path":"properties/cpus","value":"{inventory[cpu][count]}"}},
		{"op":"set-attribute","args":["properties.deep.er","x"]},
		{"op":"set-attribute","args":{"path":"/resource_class","value":"{node.name}-{inventory[cpu][architecture]}"}},
		{"op":"set-attribute","args":{"path":"extra","value":{"k":"{plugin_data[root_disk][name]}"}}},
		{"op":"set-attribute","args":{"path":"automated_clean","value":false}},
		{"op":"set-attribute","args":{"path":"deploy_interface","value":"direct"}},
		{"op":"extend-attribute","args":{"path":"extra/list","value":"a"}},
		{"op":"extend-attribute","args":{"path":"extra/list","value":"a","unique":true}},
		{"op":"extend-attribute","args":{"path":"extra/list","value":"b"}},
		{"op":"set-attribute","args":{"path":"{item[path]}","value":"{item[value]}"},"loop":[{"path":"driver_info/x_address","value":"{inventory[bmc_address]}"}]},
		{"op":"del-attribute","args":{"path":"driver_info/nothing"}},
		{"op":"set-capability","args":{"name":"boot_mode","value":"uefi"}},
		{"op":"unset-capability","args":{"name":"raid"}},
		{"op":"add-trait","args":{"name":"CUSTOM_B"}},{"op":"add-trait","args":{"name":"CUSTOM_B"}},{"op":"remove-trait","args":{"name":"CUSTOM_A"}},{"op":"remove-trait","args":{"name":"CUSTOM_NONE"}},
		{"op":"set-plugin-data","args":{"path":"a.b","value":1}},{"op":"extend-plugin-data","args":{"path":"a.l","value":2}},{"op":"unset-plugin-data","args":{"path":"root_disk"}},
		{"op":"set-port-attribute","args":{"port_id":"p1","path":"pxe_enabled","value":"no"}},
		{"op":"extend-port-attribute","args":{"port_id":"p1","path":"extra/l","value":1}},
		{"op":"del-port-attribute","args":{"port_id":"p1","path":"physical_network"}},
		{"op":"log","args":{"msg":"{node.uuid} has {inventory[nothing]}","level":"WARNING"}}]`)
	must.OK(t, Apply([]*InspectionRule{r}, f))
	n := f.Node
	if diff := cmp.Diff(Object{"cpus": "8", "deep": Object{"er": "x"}, "capabilities": "boot_mode:uefi"}, n.Properties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Object{"k": "/dev/sda", "list": []any{"a", "b"}}, n.Extra); diff != "" {
		t.Errorf("extra (-want +got):\n%s", diff)
	}
	if n.ResourceClass != "n1-x86_64" || n.AutomatedClean == nil || *n.AutomatedClean || n.Interfaces["deploy"] != "direct" || n.DriverInfo["x_address"] != "10.0.3.7" || n.DriverInfo["redfish_password"] != "hush" {
		t.Errorf("node: %+v", n)
	}
	if diff := cmp.Diff([]string{"CUSTOM_B"}, n.Traits); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Object{"a": Object{"b": 1.0, "l": []any{2.0}}}, f.Plugin); diff != "" {
		t.Error(diff)
	}
	if p := f.Ports[0]; p.PXEEnabled || !cmp.Equal(p.Extra, Object{"l": []any{1.0}}) || !cmp.Equal(f.Touched, []string{"p1"}) {
		t.Errorf("port: %+v, touched %v", p, f.Touched)
	}
	if diff := cmp.Diff([]RuleNote{{"warning", "{node.uuid} has {inventory[nothing]}"}}, f.Notes); diff != "" {
		t.Error(diff)
	}
	if !cmp.Equal(before, Object{"capabilities": "raid:true,boot_mode:bios"}) {
		t.Errorf("the stored properties were edited: %v", before)
	}
}

func TestRulesGoByPriorityAndFail(t *testing.T) {
	f := someFindings(t)
	low := ruleOf(t, `[]`, `[{"op":"set-attribute","args":{"path":"description","value":"{node.description}low"}}]`)
	high := ruleOf(t, `[]`, `[{"op":"set-attribute","args":{"path":"description","value":"high "}}]`)
	high.Priority = 10
	if err := Apply([]*InspectionRule{low, high}, f); err != nil || f.Node.Description != "high low" {
		t.Errorf("%v, %q", err, f.Node.Description)
	}
	fails := ruleOf(t, `[{"op":"lt","args":{"values":["{inventory[cpu][count]}",64]}}]`, `[{"op":"fail","args":{"msg":"too small"}}]`)
	fails.Description = "big ones only"
	err := Apply([]*InspectionRule{fails}, f)
	if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "too small") || !strings.Contains(err.Error(), "big ones only") {
		t.Errorf("fail: %v", err)
	}
	for _, actions := range []string{
		`[{"op":"set-attribute","args":{"path":"{item}","value":"x"},"loop":["provision_state"]}]`,
		`[{"op":"add-trait","args":{"name":"{item}"},"loop":["lower"]}]`,
		`[{"op":"extend-attribute","args":{"path":"properties/capabilities","value":1}}]`,
		`[{"op":"set-attribute","args":{"path":"properties/capabilities/deeper","value":1}}]`,
		`[{"op":"set-attribute","args":{"path":"properties","value":1}}]`,
		`[{"op":"set-attribute","args":{"path":"name","value":"no name"}}]`,
		`[{"op":"set-port-attribute","args":{"port_id":"other","path":"pxe_enabled","value":true}}]`,
	} {
		if err := Apply([]*InspectionRule{ruleOf(t, `[]`, actions)}, f); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", actions, err)
		}
	}
}

func TestRulesAreChecked(t *testing.T) {
	for _, tt := range []struct{ conditions, actions, words string }{
		{`[]`, `[]`, "at least one action"},
		{`[1]`, `[{"op":"fail","args":["x"]}]`, "must be an object"},
		{`[{"op":"bogus","args":{}}]`, `[{"op":"fail","args":["x"]}]`, "unsupported op"},
		{`[{"op":"!!eq","args":{"values":[]}}]`, `[{"op":"fail","args":["x"]}]`, "unsupported op"},
		{`[{"op":"eq","args":{}}]`, `[{"op":"fail","args":["x"]}]`, "missing required argument(s): values"},
		{`[{"op":"eq","args":{"values":1}}]`, `[{"op":"fail","args":["x"]}]`, "must be a list"},
		{`[{"op":"eq"}]`, `[{"op":"fail","args":["x"]}]`, "args must be"},
		{`[{"op":"eq","args":{"values":[],"x":1}}]`, `[{"op":"fail","args":["x"]}]`, "unexpected argument(s): x"},
		{`[{"op":"matches","args":{"value":"x","regex":"("}}]`, `[{"op":"fail","args":["x"]}]`, "invalid regular expression"},
		{`[{"op":"eq","args":{"values":[]},"multiple":"some"}]`, `[{"op":"fail","args":["x"]}]`, "multiple must be"},
		{`[{"op":"eq","args":{"values":[]},"loop":"x"}]`, `[{"op":"fail","args":["x"]}]`, "loop must be"},
		{`[]`, `[{"op":"!fail","args":["x"]}]`, "unsupported op"},
		{`[]`, `[{"op":"fail","args":["x"],"multiple":"any"}]`, "not expected"},
		{`[]`, `[{"op":"api-call","args":{"url":"http://x"}}]`, "unsupported op"},
		{`[]`, `[{"op":"fail","args":["x","y"]}]`, "at most 1"},
		{`[]`, `[{"op":"log","args":{"msg":"x","level":"loud"}}]`, "level must be"},
		{`[]`, `[{"op":"add-trait","args":{"name":"lower"}}]`, "Invalid trait"},
		{`[]`, `[{"op":"set-attribute","args":{"path":"provision_state","value":"active"}}]`, "cannot change the attribute"},
		{`[]`, `[{"op":"set-attribute","args":{"path":"a//b","value":1}}]`, "not valid"},
		{`[]`, `[{"op":"set-port-attribute","args":{"port_id":"p","path":"address","value":1}}]`, "cannot change the attribute"},
	} {
		_, err := ruleOf(t, tt.conditions, tt.actions).parse()
		if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s %s: %v, want %q", tt.conditions, tt.actions, err, tt.words)
		}
	}
}

// FuzzRules lets nobody's rule break the engine, tell a secret or change what rules may not.
func FuzzRules(f *testing.F) {
	for _, s := range []string{
		`{"conditions":[{"op":"eq","args":{"values":["{inventory[cpu][count]}",8]}}],"actions":[{"op":"set-attribute","args":{"path":"extra/a","value":"{inventory}"}}]}`,
		`{"actions":[{"op":"set-attribute","args":{"path":"{item}","value":"{item}{node.driver_info}"},"loop":["extra/x","description"]}]}`,
		`{"actions":[{"op":"set-capability","args":["a","{node.properties}"]},{"op":"extend-plugin-data","args":["a.b",{"c":"{plugin_data}"}]}]}`,
		`{"conditions":[{"op":"!contains","args":["{{}}{inventory[interfaces][0][mac_address]!s}","[a-z]+"],"loop":{"x":1},"multiple":"last"}],"actions":[{"op":"log","args":["{"]}]}`,
		`{"conditions":[{"op":"in-net","args":["::ffff:10.0.0.1","10.0.0.0/8"]}],"actions":[{"op":"set-port-attribute","args":["p1","extra.a.b",null]}]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var body struct{ Conditions, Actions []any }
		if json.Unmarshal([]byte(text), &body) != nil {
			t.Skip()
		}
		found := someFindings(t)
		r := &InspectionRule{Record: record.Record{ID: "r"}, Conditions: body.Conditions, Actions: body.Actions}
		if err := Apply([]*InspectionRule{r}, found); err != nil && !problem.Is(err, problem.Invalid) {
			t.Fatalf("%s: %v", text, err)
		}
		n := found.Node
		if n.ID != "11111111-2222-4333-8444-555555555555" || n.Driver == "" || checkName(n.Name) != nil || checkTraits(n.Traits) != nil {
			t.Fatalf("%s: %+v", text, n)
		}
		if shown, _ := json.Marshal([]any{n.Extra, n.Properties, n.Description, n.Name, found.Notes}); strings.Contains(string(shown), "hush") && !strings.Contains(text, "hush") {
			t.Fatalf("%s tells a secret: %s", text, shown)
		}
	})
}

// TestSensitiveRuleFailsSilently: the reason of a failure is shown on the node to everybody who sees it.
func TestSensitiveRuleFailsSilently(t *testing.T) {
	for name, r := range map[string]InspectionRule{
		"condition": {Conditions: []any{map[string]any{"op": "lt", "args": map[string]any{"values": []any{"hunter2", true}}}}, Actions: []any{map[string]any{"op": "fail", "args": map[string]any{"msg": "m"}}}},
		"action":    {Actions: []any{map[string]any{"op": "fail", "args": map[string]any{"msg": "hunter2"}}}},
	} {
		r.ID, r.Description = "r1", "of hunter2"
		told := func() string {
			err := Apply([]*InspectionRule{&r}, &Findings{Node: &Node{}})
			if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "r1") {
				t.Fatalf("%s: %v", name, err)
			}
			return err.Error()
		}
		if words := told(); !strings.Contains(words, "hunter2") {
			t.Errorf("%s: %s", name, words)
		}
		if r.Sensitive = true; strings.Contains(told(), "hunter2") {
			t.Errorf("%s: %s", name, told())
		}
	}
}
