package kit

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// isPrintable is the one rule of what reaches an output: letters, marks, numbers, punctuation, symbols and the space. Control characters of C0 and C1
// would steer a terminal, and direction marks would turn a line around. A BMC, a user or a patient's disk may have written the text.
func isPrintable(r rune) bool { return unicode.IsPrint(r) }

// StripControlChars writes a space for each character that is not printable.
func StripControlChars(s string) string {
	return strings.Map(func(r rune) rune {
		if !isPrintable(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// PrintableLines is StripControlChars for a text of several lines.
func PrintableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = StripControlChars(line)
	}
	return strings.Join(lines, "\n")
}

// ShellWord writes a text as one word of a shell, for a command that a person is told to type. A text of plain characters stays as it is.
func ShellWord(text string) string {
	isPlain := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("/._-:@%+=,", r)
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !isPlain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// escapeUnprintable escapes each character of a JSON text that is not printable, so that a reader of JSON or YAML gets the value as it was. JSON has
// line breaks only between values.
func escapeUnprintable(text string, escape func(rune) string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || isPrintable(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(escape(r))
		}
	}
	return b.String()
}

// jsonEscape writes a character as JSON escapes it: beyond 16 bits as two surrogates.
func jsonEscape(r rune) string {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// yamlEscape writes a character as YAML escapes it in double quotes, where a surrogate stands for nothing.
func yamlEscape(r rune) string {
	if r > 0xffff {
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// WriteJSON prints a value as indented JSON.
func WriteJSON(w io.Writer, v any) error { return encodeJSON(w, v, "  ") }

// WriteJSONLine prints a value as JSON on one line.
func WriteJSONLine(w io.Writer, v any) error { return encodeJSON(w, v, "") }

func encodeJSON(w io.Writer, v any, indent string) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, escapeUnprintable(b.String(), jsonEscape))
	return err
}
