package kit

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"gopkg.in/yaml.v2"

	"salvor/client"
	"salvor/test/must"
)

// TestStripControlChars: no character of a foreign text steers a terminal or turns a line around, and letters of any script stay.
func TestStripControlChars(t *testing.T) {
	for text, want := range map[string]string{
		"a\x1b[31mb": "a [31mb", "a\u202eb\u2066c\u200fd": "a b c d", "a\u009bb\u007f": "a b ", "héllo 世界": "héllo 世界", "a\xffb": "a?b", "a\u200bb\ufeff": "a b ",
	} {
		if got := StripControlChars(text); got != want {
			t.Errorf("stripControlChars(%q): want %q, got %q", text, want, got)
		}
	}
	if got := PrintableLines("a\u202e\nb\x1b\n"); got != "a \nb \n" {
		t.Errorf("printableLines: want the line breaks alone to stay, got %q", got)
	}
}

// unprintable are all control and format characters, and characters of private use and of other kinds of spaces: two of each range.
func unprintable() string {
	var b strings.Builder
	for _, table := range []*unicode.RangeTable{unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp} {
		for _, r := range table.R16 {
			for c := rune(r.Lo); c <= rune(r.Hi) && c < rune(r.Lo)+64*rune(r.Stride); c += rune(r.Stride) {
				b.WriteRune(c)
			}
		}
		for _, r := range table.R32 {
			b.WriteString(string([]rune{rune(r.Lo), rune(r.Hi)}))
		}
	}
	return b.String()
}

// TestFormsShowNoUnprintable: no form of output hands a control character or a direction mark of a foreign text on, wherever in a record the text
// stands. Forms for programs keep the value.
func TestFormsShowNoUnprintable(t *testing.T) {
	text := "héllo " + unprintable() + " 世界"
	const key = "k\u202e\u009b\U000e0001" // a key of YAML is short
	record := client.Record{
		"text": text, "list": []any{text, "b"}, "mixed": []any{text, 1.0, map[string]any{key: text}}, "object": map[string]any{"k": text, key: "v"}, "texts": []string{text},
		"addresses": map[string]any{key: []any{map[string]any{"addr": text}}}, "fenced": map[string]any{"how": text, "since": text, "waits_for": text}, key: text,
	}
	var fields []string
	for f := range record {
		fields = append(fields, f)
	}
	for _, format := range outputFormats {
		for _, quote := range []string{"all", "minimal", "none", "nonnumeric"} {
			for _, isList := range []bool{true, false} {
				for _, o := range []Output{{Format: format, quote: quote}, {Format: format, quote: quote, noIndent: true, maxWidth: 100}} {
					if isList && format == "shell" {
						continue
					}
					name := fmt.Sprintf("-f %s --quote %s, list %v, one line %v", format, quote, isList, o.noIndent)
					var b strings.Builder
					if isList {
						columns := make([]Column, len(fields))
						for i, f := range fields {
							columns[i] = Column{f, fmt.Sprint("column ", i)}
						}
						must.OK(t, o.List(&b, columns, []client.Record{record, record}))
					} else {
						must.OK(t, o.Show(&b, record))
					}
					for _, r := range b.String() {
						if r != '\n' && !unicode.IsPrint(r) {
							t.Errorf("%s: want no character that is not printable, got %U", name, r)
							break
						}
					}
					if !strings.Contains(b.String(), "héllo") || !strings.Contains(b.String(), "世界") {
						t.Errorf("%s: want letters of every script as they are, got none", name)
					}
					keepsValue(t, name, format, isList, b.String(), text)
				}
			}
		}
	}
	var b strings.Builder
	must.OK(t, WriteJSONLine(&b, text))
	if got := strings.TrimSpace(b.String()); strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("JSON of one line: want no character that is not printable, got %q", got)
	}
}

// keepsValue wants that a reader of JSON or YAML gets a text as it was.
func keepsValue(t *testing.T, name, format string, isList bool, out, want string) {
	t.Helper()
	var v any
	switch format {
	case "json":
		must.OK(t, json.Unmarshal([]byte(out), &v))
	case "yaml":
		if err := yaml.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("%s: want YAML, got %v", name, err)
			return
		}
	default:
		return
	}
	if !holdsText(reflect.ValueOf(v), want) {
		t.Errorf("%s: want the value as it was, got another one", name)
	}
}

// holdsText tells whether a text stands somewhere in a value.
func holdsText(v reflect.Value, text string) bool {
	switch v.Kind() {
	case reflect.Interface:
		return holdsText(v.Elem(), text)
	case reflect.String:
		return v.String() == text
	case reflect.Slice:
		for i := range v.Len() {
			if holdsText(v.Index(i), text) {
				return true
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if holdsText(v.MapIndex(key), text) {
				return true
			}
		}
	}
	return false
}

// TestShellFormPrintsForeignText: a shell that evaluates a foreign text gets printable text.
func TestShellFormPrintsForeignText(t *testing.T) {
	var b strings.Builder
	o := Output{Format: "shell"}
	must.OK(t, o.Show(&b, client.Record{"text": "a\u202e\u009b$(id)"}))
	out := must.Get(exec.Command("sh", "-c", b.String()+`printf %s "$text"`).Output())(t)
	if want := "a  $(id)"; string(out) != want {
		t.Errorf("want %q, got %q", want, out)
	}
}
