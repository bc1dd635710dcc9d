package problem

import (
	"strings"
	"testing"
	"unicode/utf8"
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

// TestAbridge: a long text keeps its begin and its end, and shows nothing that a reader of the whole text may not see.
func TestAbridge(t *testing.T) {
	const most = 80
	long := strings.Repeat("/a/long/path", 20)
	for _, text := range []string{
		"write " + long + ": no space left on device",
		"said " + Quote(long+" BANNER") + " at h1",
		"it tries again, because of " + Quote("BANNER "+long+": no BANNER left on device"),
		"said " + Quote("BANNER "+long) + " at " + long + ": no room",
		"said " + Quote("BANNER "+long) + " and " + Quote(long+"BANNER"),
		strings.Repeat("ä", 60) + ", and no half of a letter",
	} {
		got := Abridge(text, most)
		if len(got) > most || !strings.HasPrefix(got, text[:10]) || !strings.HasSuffix(got, text[len(text)-15:]) || strings.Contains(Redact(got), "BANNER") || !utf8.ValidString(got) {
			t.Errorf("Abridge(%q, %d): %q, without its quotations %q; want both ends in so many bytes, and no BANNER without the quotations", text, most, got, Redact(got))
		}
	}
	if got := Abridge("short", most); got != "short" {
		t.Errorf("Abridge of a short text: %q, want it whole", got)
	}
}

func FuzzAbridge(f *testing.F) {
	f.Add("“a” b", "”x“", "c", 40)
	f.Fuzz(func(t *testing.T, before, words, after string, most int) {
		if strings.ContainsAny(before+after, "“”") || strings.ContainsAny(words, "“”") || most < 20 || most > 4000 {
			return
		}
		secret := "BANNER" + words + "BANNER"
		if got := Redact(Abridge(before+Quote(secret)+after, most)); strings.Contains(got, "BANNER") && !strings.Contains(before+after, "BANNER") {
			t.Fatalf("of %q quoted between %q and %q, %q is left", secret, before, after, got)
		}
		if got := Abridge(before+after, most); len(got) > max(most, len(before+after)) || len(before+after) > most && len(got) > most {
			t.Fatalf("%q has %d bytes, want at most %d", got, len(got), most)
		}
	})
}
