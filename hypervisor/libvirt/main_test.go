package libvirt

import (
	"testing"

	"salvor/test/machine"
)

// TestMain lets the test program be the parts of a lab too.
func TestMain(m *testing.M) { machine.Main(m) }
