package ironic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/secret"
	"salvor/test/must"
)

// verbBody is the request body of a verb: its name on the wire, and the fields that it needs.
func verbBody(verb metal.Verb) string {
	switch verb {
	case metal.Clean:
		return `{"target":"clean","clean_steps":[]}`
	case metal.Service:
		return `{"target":"service","service_steps":[{"interface":"deploy","step":"x"}]}`
	case metal.ToRescue:
		return `{"target":"rescue","rescue_password":"pw"}`
	}
	return fmt.Sprintf(`{"target":%q}`, verb)
}

var allVerbs = []metal.Verb{
	metal.Manage, metal.Provide, metal.Clean, metal.Inspect, metal.Adopt, metal.Abort, metal.Deploy, metal.Rebuild, metal.Delete,
	metal.ToRescue, metal.Unrescue, metal.Unhold, metal.Service,
}

// ironicVerbs are the first versions of the verbs, written down once more from Ironic's history.
var ironicVerbs = map[metal.Verb]metal.Version{
	metal.Manage: 4, metal.Provide: 4, metal.Clean: 15, metal.Inspect: 6, metal.Adopt: 17, metal.Abort: 13, metal.Deploy: 1, metal.Rebuild: 1,
	metal.Delete: 1, metal.ToRescue: 38, metal.Unrescue: 38, metal.Unhold: 85, metal.Service: 87,
}

// TestEveryStateTakesItsVerbs walks every state and verb at the version before the verb's
// first and at that one.
func TestEveryStateTakesItsVerbs(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	put := func(state metal.State, verb metal.Verb, version metal.Version) answer {
		w.free()
		w.edit(nodeID, func(n *metal.Node) {
			n.ProvisionState, n.TargetProvision, n.Rescue = state, state.Info().Target, nil
			n.Interfaces = map[string]string{"inspect": "no-inspect"}
		})
		return w.ask("PUT", "/v1/nodes/n1/states/provision", fmt.Sprintf("1.%d", version), verbBody(verb))
	}
	for _, state := range metal.States {
		for _, verb := range allVerbs {
			row, taken := metal.ByVerb(state.State, verb)
			first := ironicVerbs[verb]
			if taken {
				first = max(first, row.Min)
			}
			if state.State.Info().InRescue {
				first = max(first, 38)
			}
			if first > 1 {
				at := first - 1
				if a := put(state.State, verb, at); a.Status != 406 || state.State.Info().InRescue && at < 38 && !strings.Contains(a.errorText(), "1.38") {
					t.Errorf("%s in %q at 1.%d: %d %s", verb, state.State, at, a.Status, a.Body)
				}
			}
			a := put(state.State, verb, first)
			switch {
			case taken && row.Job == "inspect": // no driver here can inspect
				if a.Status != 400 || !strings.Contains(a.errorText(), "inspect") {
					t.Errorf("inspect in %q: %d %s", state.State, a.Status, a.Body)
				}
			case taken && a.Status != 202, !taken && (a.Status != 400 || !strings.Contains(a.errorText(), fmt.Sprintf("while it is in state %q", state.State))):
				t.Errorf("%s in %q at 1.%d: %d %s", verb, state.State, first, a.Status, a.Body)
			case taken:
				if n, err := w.nodes.Node(context.Background(), nodeID); err != nil || n.ProvisionState != row.To {
					t.Errorf("%s in %q: state %q, want %q (%v)", verb, state.State, n.ProvisionState, row.To, err)
				}
			}
		}
	}
}

// free ends every job that waits to be claimed.
func (w *world) free() {
	w.Helper()
	ctx := context.Background()
	kinds := map[job.Kind]int{}
	for _, tr := range metal.Transitions {
		kinds[tr.Job] = 100
	}
	kinds["power"], kinds["set boot device"] = 100, 100
	claimed := must.Get(w.store.Claim(ctx, "c1/i1", born.AddDate(100, 0, 0), []string{""}, kinds, 10))(w)
	for i := range claimed {
		j := &claimed[i]
		j.State, j.Secret = job.Ended, secret.Value{}
		must.OK(w, w.store.Do(ctx, func(tx job.Tx) error { return w.store.Save(tx, j, false) }))
	}
}
