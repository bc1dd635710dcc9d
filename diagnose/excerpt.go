package diagnose

import (
	"strings"
	"unicode"

	"salvor/problem"
)

// maxExcerpt bounds a text of a report, in bytes.
const maxExcerpt = 400

// Excerpt makes a text of a stranger's machine safe to store and to show: one line of at most 400 bytes without control characters, with
// what looks like a secret masked.
func Excerpt(text string) string { return excerpt(text, false) }

// Sentence is Excerpt for a sentence that a rule wrote, which may say "the password expired": there, a secret follows its name behind a colon
// or an equals sign only.
func Sentence(text string) string { return excerpt(text, true) }

// maxReason bounds the reason of a gap, in bytes. A reason holds what failed, why, and what to do.
const maxReason = 800

// Reason is Excerpt for the reason why something was not examined. A reason that is too long loses its middle, because its end says what to do.
func Reason(text string) string { return problem.Abridge(mask(text, 8*maxReason, false), maxReason) }

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
	shown := mask(text, 8*maxExcerpt, prose) // what lies behind is cut anyway
	if len(shown) <= maxExcerpt {
		return shown
	}
	return strings.ToValidUTF8(shown[:maxExcerpt-3], "") + "..."
}

// mask makes one line of the first bytes of a text, without control characters and without what looks like a secret.
func mask(text string, most int, prose bool) string {
	text = strings.TrimSpace(shorten(text, most))
	shown := maskSecrets(replaceUnprintable(text), prose)
	// A character that nobody sees may part the name of a secret: pass(U+200B)word=.
	if stripped := maskSecrets(stripInvisible(text), prose); strings.Count(stripped, Masked) > strings.Count(shown, Masked) {
		shown = stripped
	}
	return shown
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
