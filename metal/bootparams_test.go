package metal_test

import (
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/store/storetest"
	"salvor/test/must"
)

// TestBootWordsAreFew: whoever tells again and again why a machine did not boot changes its record once in a while, however it words it.
func TestBootWordsAreFew(t *testing.T) {
	s, key := storetest.SQLite(t)
	late := time.Duration(0)
	now := func() time.Time { return time.Now().Add(late) }
	nodes := metal.NewNodes(s, s, key, metal.NewDirectory(s, now, time.Second, 0), metal.Options{}, now)
	n := &metal.Node{ID: "n", Driver: "fake-hardware", ProvisionState: metal.Active, BootNumber: 3}
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.InsertNode(tx, n) }))
	told := func(want string, events int) {
		t.Helper()
		got, err := nodes.Node(t.Context(), "n")
		rows, noRows := s.Events(t.Context(), job.Node("n"), 0, 100)
		if err != nil || noRows != nil || got.LastError != want || len(rows) != events {
			t.Errorf("%q with %d events, want %q with %d: %v %v", got.LastError, len(rows), want, events, err, noRows)
		}
	}
	for _, words := range []string{"no route", "no login", "a", "b", "c"} {
		must.OK(t, nodes.BootFailed(t.Context(), "n", 3, words))
	}
	told("Failed to boot: no route", 1)
	late = 10 * time.Second
	must.OK(t, nodes.BootFailed(t.Context(), "n", 3, "no login"))
	told("Failed to boot: no login", 2)
}
