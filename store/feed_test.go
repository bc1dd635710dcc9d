package store

import (
	"strings"
	"testing"
)

// TestUnknownKindOfSubject: whoever asks for the timeline of an unknown kind learns all kinds.
func TestUnknownKindOfSubject(t *testing.T) {
	_, _, err := (&jobTables{}).FindSubject(t.Context(), "vm", "web1")
	for _, want := range []string{"There is no timeline of a vm", "node", "server", "volume", "policy"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("kind vm: want %q in the error, got %v", want, err)
		}
	}
}
