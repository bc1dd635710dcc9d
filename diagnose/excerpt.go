package diagnose

import (
	"strings"
	"unicode"
)

// maxExcerpt bounds a text of a report, in bytes.
const maxExcerpt = 400

// Excerpt makes a text of a stranger's machine safe to store and to show: one line of at most 400 bytes without control characters, with
// what looks like a secret masked.
func Excerpt(text string) string { return excerpt(text, false) }

// Sentence is Excerpt for a sentence that a rule wrote, which may say "the password expired": there, a secret follows its name behind a colon
// or an equals sign only.
func Sentence(text string) string { return excerpt(text, true) }

// Line is Excerpt for a line of a file. Where the format of the file says which fields are harmless, only these are shown: a list of names that are
// secret never ends, and a list of names that are harmless does.
func Line(path, text string) string {
	text = shorten(text, 8*maxExcerpt)
	if shown, ok := showFields(path, strings.TrimSpace(stripInvisible(text))); ok {
		return Excerpt(shown)
	}
	return Excerpt(text)
}

func excerpt(text string, prose bool) string {
	text = strings.TrimSpace(shorten(text, 8*maxExcerpt)) // what lies behind is cut anyway
	shown := maskSecrets(replaceUnprintable(text), prose)
	// A character that nobody sees may part the name of a secret: pass(U+200B)word=.
	if stripped := maskSecrets(stripInvisible(text), prose); strings.Count(stripped, Masked) > strings.Count(shown, Masked) {
		shown = stripped
	}
	if len(shown) <= maxExcerpt {
		return shown
	}
	return strings.ToValidUTF8(shown[:maxExcerpt-3], "") + "..."
}

func shorten(text string, most int) string { return text[:min(len(text), most)] }

// replaceUnprintable writes a question mark in place of each character that cannot be printed, direction marks and terminal escapes among them.
func replaceUnprintable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// stripInvisible leaves out each character that cannot be printed, or that changes the character before it.
func stripInvisible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r) || unicode.Is(unicode.M, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
