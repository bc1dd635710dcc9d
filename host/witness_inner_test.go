package host

import (
	"os"
	"path/filepath"
	"testing"

	"salvor/test/must"
	wire "salvor/wire/host"
)

// TestWitnessIsKept: the newest witness survives the agent. An older one of the same incarnation does not replace it, one of another
// incarnation does. An answer of an older control plane, which has no witness, changes nothing.
func TestWitnessIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), witnessFile)
	w := openWitness(path)
	if w.current() != nil {
		t.Errorf("a new host tells %+v", w.current())
	}
	for _, next := range []*wire.Witness{{Incarnation: "a", Counter: 3, Proof: "p3"}, nil, {Incarnation: "a", Counter: 2, Proof: "p2"}, {Counter: 9}} {
		must.OK(t, w.store(next))
		if got := openWitness(path).current(); got == nil || *got != (wire.Witness{Incarnation: "a", Counter: 3, Proof: "p3"}) {
			t.Errorf("after %+v it is %+v", next, got)
		}
	}
	must.OK(t, w.store(&wire.Witness{Incarnation: "b", Counter: 1}))
	if got := openWitness(path).current(); got == nil || got.Incarnation != "b" {
		t.Errorf("after a release: %+v", got)
	}
	must.OK(t, os.WriteFile(path, []byte("{"), 0o600))
	if got := openWitness(path).current(); got != nil {
		t.Errorf("a damaged file tells %+v", got)
	}
}
