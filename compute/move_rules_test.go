package compute

import "testing"

// TestJoinWords: a timeline ends no sentence with a separator after which nothing comes.
func TestJoinWords(t *testing.T) {
	for _, c := range [][3]string{{"lives at its new host", "", "lives at its new host"}, {"", "it begins anew", "it begins anew"}, {"a", "b", "a; b"}, {"", "", ""}} {
		if got := JoinWords(c[0], c[1]); got != c[2] {
			t.Errorf("joinWords(%q, %q) = %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
