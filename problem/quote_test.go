package problem

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	const banner = "INTERNAL-BANNER build 7"
	for text, want := range map[string]string{
		"Failed to rescue: timed out":                                          "Failed to rescue: timed out",
		"500: " + Quote(banner) + "; try again":                                "500: " + Redacted + "; try again",
		"a " + Quote(banner) + " b " + Quote(banner):                           "a " + Redacted + " b " + Redacted,
		strings.TrimSuffix("cut: "+Quote(banner), " 7”"):                       "cut: " + Redacted,
		"closed early: " + Quote("x”"+banner):                                  "closed early: " + Redacted,
		"opened twice: " + Quote("x “y”"+banner):                               "opened twice: " + Redacted,
		"nested: " + Quote("the BMC says "+Quote(banner)+" and nothing after"): "nested: " + Redacted,
		"nothing: " + Quote(""):                                                "nothing: ",
	} {
		if got := Redact(text); got != want || strings.Contains(got, "BANNER") {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("“a” b", "”x“")
	f.Fuzz(func(t *testing.T, before, words string) {
		if strings.Contains(before, "“") {
			return
		}
		if got, want := Redact(before+Quote(words)+" after"), before+Redact(Quote(words))+" after"; got != want {
			t.Fatalf("%q", got)
		}
		if got := Redact(Quote(words)); strings.TrimSpace(words) != "" && got != Redacted {
			t.Fatalf("%q shows as %q", words, got)
		}
	})
}
