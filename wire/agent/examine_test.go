package agent

import "testing"

// TestSplitKeyFile: an equals sign in a path does not make its folder a UUID.
func TestSplitKeyFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"key": {"", "key"}, "3a1d=key": {"3a1d", "key"}, "3a1d=/root/a=b.key": {"3a1d", "/root/a=b.key"}, "./keys/a=b.key": {"", "./keys/a=b.key"}, "/a=b": {"", "/a=b"}, "-": {"", "-"}, "3a1d=-": {"3a1d", "-"},
	} {
		if uuid, path := SplitKeyFile(text); uuid != want[0] || path != want[1] {
			t.Errorf("%s: %q and %q", text, uuid, path)
		}
	}
}
