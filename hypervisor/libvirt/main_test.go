package libvirt

import (
	"os"
	"testing"

	"salvor/lab"
)

// TestMain lets the test program be the parts of a lab too.
func TestMain(m *testing.M) {
	if status, handled := lab.Hidden(os.Args[1:]); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}
