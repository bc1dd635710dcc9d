package main

import "testing"

// TestStripControlChars: no character of a foreign text steers a terminal or turns a line around, and letters of any script stay.
func TestStripControlChars(t *testing.T) {
	for text, want := range map[string]string{
		"a\x1b[31mb": "a [31mb", "a\u202eb\u2066c\u200fd": "a b c d", "a\u009bb\u007f": "a b ", "héllo 世界": "héllo 世界", "a\xffb": "a?b", "a\u200bb\ufeff": "a b ",
	} {
		if got := stripControlChars(text); got != want {
			t.Errorf("stripControlChars(%q): want %q, got %q", text, want, got)
		}
	}
}
