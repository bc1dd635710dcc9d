package console

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"salvor/test/must"
)

// TestPagesShowPrintableText: the pages replace control characters and direction marks, letters of any script stay, and each place that puts a text on a
// page goes through the one function for it.
func TestPagesShowPrintableText(t *testing.T) {
	dom := string(must.Get(static.ReadFile("static/dom.js"))(t))
	found := regexp.MustCompile(`String\(text\)\.replace\(/(.+)/gu, " "\)`).FindStringSubmatch(dom)
	if found == nil {
		t.Fatal("dom.js: want a function that replaces what is not printable, got none")
	}
	replaced := regexp.MustCompile(found[1])
	for _, table := range []*unicode.RangeTable{unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp} {
		for _, r := range slices.Concat(firstOf(table), []rune{0x9b, 0x200b, 0x202e, 0x2066, 0xfeff}) {
			if got := replaced.MatchString(string(r)); got != (r != '\n' && r != '\t') {
				t.Errorf("%U: want it replaced unless it breaks a line or indents, got %v", r, got)
			}
		}
	}
	if got := replaced.FindString("héllo 世界 שלום 😀 1 + 2"); got != "" {
		t.Errorf("letters: want none replaced, got %q", got)
	}
	sink := regexp.MustCompile(`(?m)(?:\.textContent|document\.title|\.title|\.innerText) = (.*);$|\.append\(([^"].*)\)|\.setAttribute\(name, (.*)\)`)
	known := []string{`lights[state] ?? ""`, `text`, "dialog", `seconds(Math.max(0, (Date.now() - Date.parse(this.running.since)) / 1000)) + " …"`}
	for _, f := range must.Get(static.ReadDir("static"))(t) {
		text := string(must.Get(static.ReadFile("static/" + f.Name()))(t))
		for _, m := range sink.FindAllStringSubmatch(text, -1) {
			shown := m[1] + m[2] + m[3]
			isWords := f.Name() == "words.js" || shown != "text" // words.js writes how long ago a time was
			if !strings.Contains(shown, "printable(") && !strings.HasPrefix(shown, `"`) && !(isWords && slices.Contains(known, shown)) {
				t.Errorf("%s: want printable() around a text that a page shows, got %s", f.Name(), m[0])
			}
		}
	}
}

// firstOf are the first and the last character of each range.
func firstOf(table *unicode.RangeTable) (out []rune) {
	for _, r := range table.R16 {
		out = append(out, rune(r.Lo), rune(r.Hi))
	}
	for _, r := range table.R32 {
		out = append(out, rune(r.Lo), rune(r.Hi))
	}
	return out
}
