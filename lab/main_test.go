package lab

import (
	"os"
	"testing"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) {
	if status, handled := Hidden(os.Args[1:]); handled {
		os.Exit(status)
	}
	status := m.Run()
	removeShared()
	os.Exit(status)
}

// shared is the state directory of a run's end-to-end tests, if any made one.
var shared string

func removeShared() {
	if shared != "" {
		os.RemoveAll(shared)
	}
}
