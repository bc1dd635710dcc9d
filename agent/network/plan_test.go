package network

import (
	"encoding/json"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

func TestPlanFile(t *testing.T) {
	root := t.TempDir()
	if _, err := ReadPlan(root); !problem.Is(err, problem.NotFound) {
		t.Errorf("no plan: %v", err)
	}
	plan := Plan{Move: MoveYes, NetworkData: json.RawMessage(`{}`), SSHInterfaces: []string{"52:54:00:aa:00:01"}}
	must.OK(t, WritePlan(root, plan))
	got, err := ReadPlan(root)
	if err != nil || got.Move != MoveYes || len(got.SSHInterfaces) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	RemovePlan(root)
	if _, err := ReadPlan(root); err == nil {
		t.Error("the plan is still there")
	}
}
