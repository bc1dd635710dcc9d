package problem

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"listen", "lsiten", 1}, {"port", "ports", 1}, {"kitten", "sitting", 3}} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// TestNearestIsBounded: a word of a stranger costs nothing, however long it is.
func TestNearestIsBounded(t *testing.T) {
	if got := Nearest(strings.Repeat("driver", 1<<18), []string{"driver", strings.Repeat("driver", 20)}); got != "" {
		t.Errorf("%q", got)
	}
	if got := Nearest("drivr", []string{"owner", "driver"}); got != "driver" {
		t.Errorf("%q", got)
	}
}
