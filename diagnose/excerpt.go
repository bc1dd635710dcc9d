package diagnose

import (
	"regexp"
	"strings"
	"unicode"
)

// maxExcerpt bounds a text of a report, in bytes.
const maxExcerpt = 400

// Masked stands where a secret was.
const Masked = "******"

// secretPatterns are what Excerpt masks; the last group of each is the secret.
var secretPatterns = []*regexp.Regexp{
	// Hashes of crypt(3), as in /etc/shadow.
	regexp.MustCompile(`()(\$[0-9a-zA-Z]{1,7}\$[^\s:]{8,})`),
	// password=..., token: ..., and what GRUB and cloud-init write.
	regexp.MustCompile(`(?i)((?:[a-z0-9_-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|private[_-]?key|psk|preshared[_-]?key|credential)[a-z0-9_-]*|password_pbkdf2\s+\S+)["']?\s*[:= ]\s*)("[^"]*"|'[^']*'|\S+)`),
	// A password in a URL.
	regexp.MustCompile(`(://[^/\s:@]*:)([^/\s@]+)(?:@)`),
	// A private key, or a line of one.
	regexp.MustCompile(`()(-----BEGIN [A-Z ]*PRIVATE KEY.*)`),
	regexp.MustCompile(`()([A-Za-z0-9+=_-]{60,})`),
}

// publicSettings are names of settings that look like those of secrets.
var publicSettings = regexp.MustCompile(`(?i)^(passwordauthentication|permitemptypasswords|kbdinteractiveauthentication)\b`)

// separatedByBlank is what the pattern of names finds where neither a colon nor an equals sign stands behind the name.
var separatedByBlank = regexp.MustCompile(`(?i)^[a-z0-9_-]+\s+[^\s:=]`)

// Excerpt makes a text of a stranger's machine safe to store and to show: one line of at most 400 bytes without control characters, with
// what looks like a secret masked.
func Excerpt(text string) string { return excerpt(text, false) }

// Sentence is Excerpt for a sentence that a rule wrote, which may say "the password expired": there, a secret follows its name behind a colon
// or an equals sign only.
func Sentence(text string) string { return excerpt(text, true) }

func excerpt(text string, prose bool) string {
	if len(text) > 8*maxExcerpt { // what lies behind is cut anyway
		text = text[:8*maxExcerpt]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(text), "?"))
	for _, p := range secretPatterns {
		text = p.ReplaceAllStringFunc(text, func(found string) string {
			if publicSettings.MatchString(found) || (prose && separatedByBlank.MatchString(found)) {
				return found
			}
			groups := p.FindStringSubmatch(found)
			return groups[1] + Masked + strings.TrimPrefix(strings.TrimPrefix(found, groups[1]), groups[2])
		})
	}
	if len(text) <= maxExcerpt {
		return text
	}
	return strings.ToValidUTF8(text[:maxExcerpt-3], "") + "..."
}
