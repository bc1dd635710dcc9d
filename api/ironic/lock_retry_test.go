package ironic_test

import (
	"testing"
	"time"

	"salvor/api/ironic"
)

// TestLockedNodesAreAwaited proves that a request waits for the end of the work on a node,
// with its whole body, and no longer than it may.
func TestLockedNodesAreAwaited(t *testing.T) {
	w := newWorld(t)
	w.node(nil)
	w.lock(nodeID)
	const op = `[{"op":"add","path":"/extra/a","value":1}]`
	w.want(409, "PATCH", "/v1/nodes/n1", "1.82", op)

	w.config.LockPatience = 50 * time.Millisecond
	if a := ask(ironic.New(w.config), "PATCH", "/v1/nodes/n1", "1.82", op); a.Status != 409 {
		t.Errorf("while the work goes on: %d %s", a.Status, a.Body)
	}

	w.config.LockPatience = time.Minute
	answered := make(chan answer)
	go func() { answered <- ask(ironic.New(w.config), "PATCH", "/v1/nodes/n1", "1.82", op) }()
	select {
	case a := <-answered:
		t.Fatalf("the work goes on: %d %s", a.Status, a.Body)
	case <-time.After(60 * time.Millisecond):
	}
	w.free()
	if a := <-answered; a.Status != 200 || a.Object(t)["extra"].(map[string]any)["a"] != 1.0 {
		t.Errorf("after the work: %d %s", a.Status, a.Body)
	}
}
