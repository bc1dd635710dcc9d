package conductortest

import (
	"slices"
	"testing"
)

// TestRunsAll: the completeness of the sweeps is proved for each choice of tests that runs all of them, and for no other.
func TestRunsAll(t *testing.T) {
	t.Parallel()
	names := []string{"TestSweepRepair", "TestReadsOfRepairs", "TestMigrateSweep"}
	for _, c := range []struct {
		run, skip, list string
		want            bool
	}{
		{"", "", "", true}, {"Sweep|Reads", "", "", true}, {"Reads|Sweep", "", "", true}, {"^Test", "", "", true}, {"Sweep|Reads|Repair", "", "", true}, {".", "TestRestored", "", true},
		{"Sweep", "", "", false}, {"Reads", "", "", false}, {"TestSweepRepair", "", "", false}, {"Sweep|Reads/x", "", "", false}, {"Sweep|Reads", "Repair", "", false},
		{"", "Sweep", "", false}, {"", "", ".", false}, {"^$", "", "", false},
	} {
		if got := runsAll(names, c.run, c.skip, c.list); got != c.want {
			t.Errorf("-run %q -skip %q -list %q runs all of %q: %t, want %t", c.run, c.skip, c.list, names, got, c.want)
		}
	}
	if runsAll(nil, "Sweep|Reads", "", "") {
		t.Error("a choice of tests runs all of them where no source file is; want false, because nothing proves that")
	}
}

// TestSweepTestsAreFound: the tests that sweep are found by their names in the source.
func TestSweepTestsAreFound(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{"../node": "TestSweepWriteRepair", "../server": "TestSweepServers"} {
		if names := sweepTests(dir); !slices.Contains(names, want) {
			t.Errorf("the tests in %s that sweep: %q; want %q among them", dir, names, want)
		}
	}
}
