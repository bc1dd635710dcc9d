package repair

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"salvor/diagnose"
)

const (
	// maxDiff bounds a diff, maxCompared each of the two texts, in bytes.
	maxDiff     = 16 << 10
	maxCompared = 256 << 10
)

func hashText(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// MaskedDiff is the change of a text as unified lines without secrets; empty where one of them is no text, too long, or holds a private key.
func MaskedDiff(place string, before, after []byte) string {
	for _, b := range [][]byte{before, after} {
		if len(b) > maxCompared || !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 || bytes.Contains(b, []byte("PRIVATE KEY")) {
			return ""
		}
	}
	var out strings.Builder
	for line := range strings.Lines(string(diff.Diff("a"+place, before, "b"+place, after))) {
		if strings.HasPrefix(line, "diff ") {
			continue
		}
		text := maskLine(place, strings.TrimSuffix(line, "\n"))
		if out.Len()+len(text)+1 > maxDiff {
			break
		}
		out.WriteString(text)
		out.WriteByte('\n')
	}
	return out.String()
}

// maskLine makes a line of a diff harmless. Its first byte and the blanks after it stay.
func maskLine(place, line string) string {
	if line == "" {
		return ""
	}
	mark, text := line[:1], line[1:]
	if strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ") || strings.HasPrefix(line, "@@ ") {
		return diagnose.Excerpt(line)
	}
	body := strings.TrimLeft(text, " \t")
	blanks := text[:min(len(text)-len(body), 80)]
	return mark + blanks + diagnose.Line(place, body)
}
