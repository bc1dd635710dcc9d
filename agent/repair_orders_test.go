package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"salvor/agent/step"
	"salvor/driver"
	driveragent "salvor/driver/agent"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

const someRepair = `"7d1f0c9e-53a5-4b8e-9d43-1f2c0a9e6b11"`

// TestRepairRefuses what a control plane may not ask for.
func TestRepairRefuses(t *testing.T) {
	t.Parallel()
	a := &Agent{config: Config{Root: t.TempDir()}}
	orders := a.repairCommands()
	whole := map[string]string{"id": someRepair, "consents": `["files"]`, "max_changed": `1048576`, "now": `"2026-11-26T06:00:00Z"`}
	many, _ := json.Marshal(make([]string, maxFindings+1))
	large, _ := json.Marshal([]map[string]any{{"root": "/dev/sda", "path": "/a", "content": make([]byte, maxRestoreContent+1)}})
	for name, change := range map[string]map[string]string{
		"no id": {"id": `""`}, "another id": {"id": `"../x"`}, "consent to lose data": {"consents": `["data"]`}, "nothing to change": {"max_changed": `0`}, "too much": {"max_changed": fmt.Sprint(int64(mostChanged) + 1)},
		"many findings": {"findings": string(many)}, "a large undo": {"restore": string(large)}, "a device": {"restore": `[{"path":"/a","before":{"kind":"device"}}]`}, "no list": {"restore": `3`}, "no time": {"now": `"soon"`},
	} {
		p := step.Params{}
		for _, params := range []map[string]string{whole, change} {
			for k, v := range params {
				p[k] = json.RawMessage(v)
			}
		}
		if _, err := orders[wire.PlanRepair].Run(t.Context(), p); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := step.Params{}
	for k, v := range whole {
		p[k] = json.RawMessage(v)
	}
	p["luks_keys"] = json.RawMessage(`["b3BlbnNlc2FtZQ=="]`)
	p["luks_keys_by_uuid"] = json.RawMessage(`{"1-2":["b3BlbnNlc2FtZQ=="]}`)
	if _, err := orders[wire.PlanRepair].Run(t.Context(), p); !problem.Is(err, problem.Forbidden) {
		t.Errorf("outside of a ramdisk: %v", err)
	}
	for _, name := range []string{"luks_keys", "luks_keys_by_uuid"} {
		if raw := p[name]; strings.Trim(string(raw), "\x00") != "" {
			t.Errorf("the keys are still in the params: %q", raw)
		}
	}
	if _, err := orders[wire.RestoreImages].Run(t.Context(), step.Params{}); !problem.Is(err, problem.Forbidden) {
		t.Errorf("restore outside of a ramdisk: %v", err)
	}
}

// TestRepairWithoutOverlays: every command but restore needs the plan, and end is done already.
func TestRepairWithoutOverlays(t *testing.T) {
	t.Parallel()
	orders := (&Agent{}).repairCommands()
	p := step.Params{"id": json.RawMessage(someRepair), "digest": json.RawMessage(`"x"`)}
	for _, name := range []string{wire.BeforeImages, wire.FileContents, wire.WriteRepair} {
		if _, err := orders[name].Run(t.Context(), p); !problem.Is(err, problem.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := orders[wire.EndRepair].Run(t.Context(), p); err != nil {
		t.Errorf("end: %v", err)
	}
}

// TestOutcomesAreBounded: a control plane can read the list of commands after many large outcomes, and the newest outcomes by their ids.
func TestOutcomesAreBounded(t *testing.T) {
	t.Parallel()
	plan := strings.Repeat("<", 1<<20) // six bytes each in JSON
	c := newCommands(secret.New(testSessionToken), "9.9", time.Now(), nil)
	c.most, c.asked = sessionResults, true
	c.orders = map[string]step.Order{wire.EndRepair: {Params: []string{}, Run: func(context.Context, step.Params) (any, error) { return plan, nil }}}
	server := httptest.NewServer(c.handler())
	t.Cleanup(server.Close)
	orders, node := driveragent.Orders{Locks: &driver.AddressLocks{}}, &metal.Node{ID: testNode}
	known := driver.Agent{URL: server.URL, Version: wire.Product + "9.9", Token: secret.New(testSessionToken)}
	var newest string
	for range 5 {
		newest = must.Get(orders.Give(t.Context(), node, known, wire.EndRepair, struct{}{}))(t).ID
	}
	list := must.Get(orders.List(t.Context(), node, known))(t)
	if len(list) != 5 || list[4].ID != newest || list[2].Status != wire.Succeeded {
		t.Fatalf("want 5 commands and %s last, got %d", newest, len(list))
	}
	for i, want := range map[int]int{4: 6 << 20, 3: 6 << 20, 2: 0} {
		found := must.Get(orders.Command(t.Context(), node, known, list[i].ID))(t)
		if size := len(strings.TrimPrefix(string(found.Outcome), "null")); found.ID != list[i].ID || size < want || want == 0 && size > 0 || list[i].Outcome != nil {
			t.Errorf("command %d: want an outcome of %d bytes or more by its id and none in the list, got %d, and %d in the list", i, want, size, len(list[i].Outcome))
		}
	}
	if _, err := orders.Command(t.Context(), node, known, newID()); !problem.Is(err, problem.NotFound) {
		t.Errorf("a command that nobody gave: %v", err)
	}
	known.Token = secret.New("another")
	if _, err := orders.Command(t.Context(), node, known, newID()); !problem.Is(err, problem.Conflict) {
		t.Errorf("with another token: %v", err)
	}
}

// TestUnlistedOutcome: the answer to the command has the outcome, and the list of results does not.
func TestUnlistedOutcome(t *testing.T) {
	t.Parallel()
	c := &commandServer{most: maxResults, orders: map[string]step.Order{"repair.images": {Unlisted: true, Params: []string{}, Run: func(context.Context, step.Params) (any, error) { return "a page", nil }}}}
	answer := httptest.NewRecorder()
	c.order(answer, httptest.NewRequest(http.MethodPost, "/v1/commands/", nil), "repair.images", nil)
	if !strings.Contains(answer.Body.String(), "a page") || !strings.Contains(answer.Body.String(), string(wire.Succeeded)) {
		t.Errorf("answer %s", answer.Body)
	}
	if len(c.results) != 1 || c.results[0].Outcome != nil || c.results[0].Status != wire.Succeeded {
		t.Errorf("results %+v", c.results)
	}
}
