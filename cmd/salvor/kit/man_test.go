package kit

import "testing"

// TestRoffText holds what roff would change or take for a request.
func TestRoffText(t *testing.T) {
	for text, want := range map[string]string{
		".TH it's --a\\b": `\&.TH it\(aqs \-\-a\eb`,
		"a\n'b\n.c  ":     "a\n\\(aqb\n\\&.c",
		"`~^\"":           `\(ga\(ti\(ha\(dq`,
	} {
		if got := roffText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
