package conductor

import "testing"

// TestVersions: whoever asks for work knows every list, and every job is given a version.
func TestVersions(t *testing.T) {
	t.Parallel()
	all := Versions()
	if len(all) < 30 || all["rescue"] == 0 {
		t.Fatalf("%d versions: %v", len(all), all)
	}
	for kind, version := range all {
		if version < 1 {
			t.Errorf("%s has no version: its jobs would be of any", kind)
		}
	}
}
