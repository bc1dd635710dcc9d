package problem

import (
	"regexp"
	"strings"
)

// Quote marks text that a BMC, an agent, a host or another server wrote, so that Redact finds it. The marks are the typographic
// quotation marks, which the text itself loses.
func Quote(text string) string {
	if text = unmarked.Replace(text); strings.TrimSpace(text) == "" {
		return text
	}
	return "“" + text + "”"
}

// Redacted replaces a quotation.
const Redacted = "(administrators may see its words)"

// Redact replaces each quotation by Redacted. It serves readers who may see the record, but not the infrastructure below it. A
// quotation that was cut off ends with the text. Redact does not know the reader: access.Principal.Redact leaves the quotations to
// administrators.
func Redact(text string) string {
	if !strings.Contains(text, "“") {
		return text
	}
	return quotation.ReplaceAllString(text, Redacted)
}

// Abridge leaves out the middle of a text that is longer than most bytes, because the end of an error's text is its cause. What was inside of a quotation
// stays inside of one.
func Abridge(text string, most int) string {
	const gap = " ... "
	if len(text) <= most {
		return text
	}
	room := most - len(gap) - len("“")
	head := strings.ToValidUTF8(text[:room/3], "")
	tail := strings.ToValidUTF8(text[len(text)-(room-room/3):], "")
	if opens, closes := strings.Index(tail, "“"), strings.Index(tail, "”"); closes >= 0 && (opens < 0 || closes < opens) && strings.LastIndex(head, "“") <= strings.LastIndex(head, "”") {
		tail = "“" + tail
	}
	return head + gap + tail
}

var (
	unmarked  = strings.NewReplacer("“", "'", "”", "'")
	quotation = regexp.MustCompile(`“[^”]*(”|$)`)
)
