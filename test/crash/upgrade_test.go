//go:build upgrade

package crash

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"salvor/job"
	"salvor/test/must"
)

// TestUpgradeAndBack begins a rescue under a former release and an unrescue under this one, for each action of the lists. It kills the
// server after that action and starts the other release on the same state directory. This release ends what the former began. The former
// leaves alone what this one began, and this one ends it after its return. SALVOR_BIN lists the former release and this one.
func TestUpgradeAndBack(t *testing.T) {
	if n := len(filepath.SplitList(os.Getenv("SALVOR_BIN"))); n != 2 {
		t.Fatalf("SALVOR_BIN lists %d directories, want the former release and this one: make upgrade", n)
	}
	former := map[job.Kind]int{"rescue": 1, "unrescue": 1}
	rescue, unrescue := actionsOf(t, "rescue", former["rescue"]), actions(t, "unrescue")
	w := newWorld(t, max(len(rescue), len(unrescue)))
	current := w.versions
	for i, m := range w.all() {
		if i < len(rescue) {
			w.versions = former
			w.killedAfter(t, m, "rescue", rescue[i], rescue[i+1:])
		} else {
			w.versions = former
			w.killedAfter(t, m, "rescue", rescue[0], rescue[1:])
		}
		w.await(t, m, "rescue", w.rescued) // by this release
		last := min(i, len(unrescue)-1)
		w.versions = map[job.Kind]int{"rescue": former["rescue"], "unrescue": current["unrescue"]}
		w.killedAfter(t, m, "unrescue", unrescue[last], unrescue[last+1:])
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		n, err := w.api.Node(ctx, m.id) // as the former release shows it
		cancel()
		if err != nil || n.Maintenance || n.LastError != "" {
			t.Fatalf("machine %s under the former release: %+v, %v", m.mac, n, err)
		}
		w.server.Kill()
		w.server.Start(t)
		w.await(t, m, "active", w.unrescued) // by this release again
		w.server.Kill()
		w.server.Start(t)
	}
}

// killedAfter asks for an operation and kills the server when its action is done and the next one is not. The other release starts.
func (w *world) killedAfter(t *testing.T, m *machine, verb, action string, rest []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m.stopped = "after " + action
	before, err := w.did(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	if len(rest) > 0 {
		w.server.HoldBack(t, m.id, rest[0])
	}
	must.OK(t, w.ask(ctx, m, verb))
	for now := before; now[action] == before[action]; {
		if now, err = w.did(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	w.server.Kill()
	m.letGo()
	w.server.Start(t)
}

// await waits for the state that ends an operation, and proves it.
func (w *world) await(t *testing.T, m *machine, state string, proof func(context.Context, *machine) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := w.reach(ctx, m, state)
	if err == nil {
		err = proof(ctx, m)
	}
	if err != nil {
		t.Fatalf("machine %s, stopped at %s: %v\n%s", m.mac, m.stopped, err, tail(w.server.Log()))
	}
}
