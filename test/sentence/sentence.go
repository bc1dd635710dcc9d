// Package sentence finds sentences that a reader has to read twice, in pages, in comments and in help texts.
package sentence

import (
	"regexp"
	"strings"
)

// MostWords is how many words a sentence may have.
const MostWords = 30

// The parts of a Markdown page that are no prose. The first group of Link is its text, the second where it leads; that of Heading is its text.
var (
	CodeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	CodeSpan  = regexp.MustCompile("`[^`\n]*`")
	Link      = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	Heading   = regexp.MustCompile(`(?m)^#+ +(.*)$`)
)

var (
	listItem    = regexp.MustCompile(`(?m)^ *(?:[-*]|\d+\.) +`)
	indented    = regexp.MustCompile(`(?m)^(?:  |\t).*$`)
	sentenceEnd = regexp.MustCompile(`[.!?](?:\)|"|”)?\s+`)
	headless    = regexp.MustCompile(`^(?:Who|Whoever|What|Whatever|Of|Where|Whose)\s`)
)

// OfPage gives the sentences of a Markdown page: no code, no table, no heading.
func OfPage(page string) []string {
	page = Heading.ReplaceAllString(CodeBlock.ReplaceAllString(page, "\n\n"), "\n")
	page = Link.ReplaceAllString(CodeSpan.ReplaceAllString(page, "CODE"), "$1")
	return split(listItem.ReplaceAllString(page, "\n\n"))
}

// OfText gives the sentences of plain text. Indented lines are tables and examples, and are left out.
func OfText(text string) []string {
	return split(CodeSpan.ReplaceAllString(indented.ReplaceAllString(text, "\n"), "CODE"))
}

func split(text string) (all []string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for line := range strings.Lines(paragraph) {
			if !strings.HasPrefix(strings.TrimSpace(line), "|") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		for _, s := range sentenceEnd.Split(strings.Join(lines, " "), -1) {
			if s = strings.Trim(s, " *_"); s != "" {
				all = append(all, s)
			}
		}
	}
	return all
}

// IsLong tells whether a sentence has more than MostWords words.
func IsLong(sentence string) bool { return len(strings.Fields(sentence)) > MostWords }

// IsHeadless tells whether a sentence has a clause for a subject, so that a reader looks for who acts. Questions may begin so.
func IsHeadless(sentence string) bool {
	return headless.MatchString(sentence) && !strings.HasSuffix(sentence, "?")
}
