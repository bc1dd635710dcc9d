package compute_test

import (
	"testing"

	"salvor/compute"
)

// TestMoveStatus: a move ends in State done for its source, which has to clean up. Its Status says what became of the server.
func TestMoveStatus(t *testing.T) {
	for _, c := range []struct {
		state   compute.MoveState
		problem string
		want    compute.MoveState
	}{
		{compute.MoveDone, "", compute.MoveDone}, {compute.MoveCompleted, "", compute.MoveCompleted}, {compute.MoveAttached, "", compute.MoveAttached},
		{compute.MoveDone, "no QEMU", compute.MoveError}, {compute.MoveCompleted, "no QEMU", compute.MoveError},
		{compute.MoveDone, compute.NotCleanedUp + "busy", compute.MoveDone}, {compute.MoveDone, "no QEMU" + compute.NotCleanedUp + "busy", compute.MoveError},
		{compute.MoveDone, compute.WentOn + "m2", compute.MoveFailed}, {compute.MoveDone, "its host was fenced; " + compute.WentOn + "m2", compute.MoveFailed},
		{compute.MoveCompleted, compute.GivenUp + "the server's state was reset", compute.MoveCancelled},
		{compute.MoveFailed, "no QEMU", compute.MoveFailed}, {compute.MoveError, "no host", compute.MoveError}, {compute.MoveCancelled, compute.GivenUp + "x", compute.MoveCancelled},
	} {
		m := compute.Move{State: c.state, Problem: c.problem}
		if got := m.Status(); got != c.want {
			t.Errorf("a move that is %s with problem %q has status %s, want %s", c.state, c.problem, got, c.want)
		}
	}
}
