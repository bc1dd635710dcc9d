package metal_test

import (
	"strings"
	"testing"

	"salvor/metal"
)

// TestRefusedKernelParameterIsQuoted: a name with control characters reaches no terminal as it is.
func TestRefusedKernelParameterIsQuoted(t *testing.T) {
	err := metal.CheckAppendParams("ipa-\x1b[31m=1")
	if err == nil || strings.Contains(err.Error(), "\x1b") || !strings.Contains(err.Error(), `"ipa-\x1b[31m"`) {
		t.Errorf("%q", err)
	}
}
