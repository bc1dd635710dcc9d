package metal

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"salvor/problem"
	"salvor/record"
)

func TestSteps(t *testing.T) {
	for _, tt := range []struct {
		form       StepForm
		text, says string
		want       []Step
	}{
		{CleanStepForm, `[]`, "", []Step{}},
		{CleanStepForm, `[{"interface":"deploy","step":"erase_devices","args":{"a":1}}]`, "", []Step{{Interface: "deploy", Step: "erase_devices", Args: Object{"a": 1.0}}}},
		{CleanStepForm, `[{"interface":"deploy","step":"x"},{"interface":"deploy","step":"x"}]`, "", []Step{{Interface: "deploy", Step: "x"}, {Interface: "deploy", Step: "x"}}},
		{CleanStepForm, `[{"interface":"network","step":"x"}]`, "a step needs interface", nil},
		{CleanStepForm, `[{"interface":"deploy","step":"x","priority":1}]`, `"priority" is not expected`, nil},
		{CleanStepForm, `[{"interface":"deploy","step":""}]`, "a step needs", nil},
		{CleanStepForm, `[{"interface":"deploy","step":1}]`, `"step" is not expected, or not of its type`, nil},
		{CleanStepForm, `[{"interface":"deploy","step":"x","args":[]}]`, `"args"`, nil},
		{CleanStepForm, `["x"]`, "clean_steps[0]: a step must be an object", nil},
		{CleanStepForm, `{}`, "clean_steps must be a list", nil},
		{CleanStepForm, `[` + strings.Repeat(`{"interface":"deploy","step":"x"},`, 500) + `{}]`, "more than 500", nil},
		{ServiceStepForm, `[{"interface":"network","step":"x"}]`, "", []Step{{Interface: "network", Step: "x"}}},
		{DeployStepForm, `[{"interface":"bios","step":"x","priority":"10"}]`, "", []Step{{Interface: "bios", Step: "x", Priority: 10}}},
		{DeployStepForm, `[{"interface":"bios","step":"x"}]`, "a step needs priority", nil},
		{DeployStepForm, `[{"interface":"bios","step":"x","priority":-1}]`, `"priority"`, nil},
		{DeployStepForm, `[{"interface":"bios","step":"x","priority":1.5}]`, `"priority"`, nil},
		{DeployStepForm, `[{"interface":"bios","step":"x","priority":1e300}]`, `"priority"`, nil},
		{DeployStepForm, `[{"interface":"bios","step":"x","priority":"+1"}]`, `"priority"`, nil},
		{templateStepForm, `[]`, "at least one step", nil},
		{templateStepForm, `[{"interface":"bios","step":"x","priority":1}]`, "a step needs args", nil},
		{templateStepForm, `[{"interface":"bios","step":"x","args":{},"priority":1},{"interface":"bios","step":"x","args":{},"priority":2}]`, "Duplicates: interface: bios, step: x", nil},
		{runbookStepForm, `[{"interface":"bios","step":"x","order":2}]`, "", []Step{{Interface: "bios", Step: "x", Order: 2}}},
		{runbookStepForm, `[{"interface":"bios","step":"x"}]`, "a step needs order", nil},
	} {
		got, err := ParseSteps(tt.form, decode[any](t, tt.text))
		if tt.says != "" {
			if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%.200s: %v, want %q", tt.text, err, tt.says)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.text, err, diff)
		}
	}
}

func TestRunbooksGoByOrderAndTraits(t *testing.T) {
	r := &Runbook{Record: record.Record{ID: "r"}, Name: "CUSTOM_R", Steps: []Step{{Step: "c", Order: 3}, {Step: "a", Order: 1}, {Step: "b", Order: 1}}}
	var got []string
	for _, s := range r.Ordered() {
		got = append(got, s.Step)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
		t.Error(diff)
	}
	n := &Node{ID: "n", Traits: []string{"CUSTOM_T"}}
	if r.Approves(n, false) == nil || r.Approves(n, true) == nil {
		t.Error("a runbook without traits is approved")
	}
	r.Traits = []string{"CUSTOM_T", "CUSTOM_U"}
	if err := r.Approves(n, true); err != nil || r.Approves(n, false) == nil {
		t.Errorf("by trait: %v", err)
	}
	n.Traits = []string{"CUSTOM_R"}
	if err := r.Approves(n, false); err != nil || r.Approves(n, true) == nil {
		t.Errorf("by name: %v", err)
	}
}

func TestInstanceTraits(t *testing.T) {
	for traits, says := range map[string]string{
		`null`: "", `[]`: "", `["CUSTOM_A"]`: "", `["CUSTOM_A","CUSTOM_B"]`: "no trait CUSTOM_B", `"CUSTOM_A"`: "list of strings", `[1]`: "list of strings", `{}`: "list of strings",
	} {
		n := &Node{ID: "n", Traits: []string{"CUSTOM_A"}, InstanceInfo: Object{"traits": decode[any](t, traits)}}
		err := n.checkInstanceTraits()
		if says == "" && err != nil || says != "" && (!problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", traits, err, says)
		}
	}
}

// FuzzSteps takes nothing that does not come out of the store as it went in.
func FuzzSteps(f *testing.F) {
	for _, s := range []string{
		`[{"interface":"deploy","step":"x","args":{"a":[1]},"priority":"1"}]`, `[{"interface":"raid","step":"x","order":0}]`, `[{}]`, `null`, `[null]`, `[{"interface":"bios","step":"x","args":{},"priority":1e9}]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			t.Skip()
		}
		for _, form := range []StepForm{CleanStepForm, DeployStepForm, ServiceStepForm, templateStepForm, runbookStepForm} {
			steps, err := ParseSteps(form, v)
			if err != nil {
				if !problem.Is(err, problem.Invalid) {
					t.Fatalf("%s: %v", text, err)
				}
				continue
			}
			b, err := json.Marshal(steps)
			if err != nil {
				t.Fatal(err)
			}
			var back []Step
			if err := json.Unmarshal(b, &back); err != nil || len(back) != len(steps) {
				t.Fatalf("%s: %s: %v", text, b, err)
			}
			for i, s := range back {
				if s.Interface == "" || s.Step == "" || s.Priority < 0 || s.Order < 0 || s.Priority != steps[i].Priority || s.Order != steps[i].Order {
					t.Fatalf("%s: %+v", text, s)
				}
			}
		}
	})
}
