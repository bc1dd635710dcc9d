package salvor

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are all pages of the documentation, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range append(names, "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	return out
}

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	mdLink    = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
)

// anchors are the fragments by which links reach the headings of a page.
func anchors(page string) (all []string) {
	for _, m := range mdHeading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		text := strings.ToLower(strings.NewReplacer("`", "", "*", "").Replace(m[1]))
		text = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(text, "")
		all = append(all, strings.ReplaceAll(strings.TrimSpace(text), " ", "-"))
	}
	return all
}

// TestLinks follows each link from page to page, and to the heading that it names.
func TestLinks(t *testing.T) {
	all := pages(t)
	linked := map[string]bool{}
	for name, text := range all {
		for _, m := range mdLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), "code"), -1) {
			if strings.Contains(m[2], "://") {
				continue
			}
			file, fragment, _ := strings.Cut(m[2], "#")
			to := name
			if file != "" {
				to = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[2])
				continue
			}
			if name == "docs/README.md" {
				linked[to] = true
			}
			if page, ok := all[to]; ok && fragment != "" && !slices.Contains(anchors(page), fragment) {
				t.Errorf("%s: %s has no heading for #%s", name, to, fragment)
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "docs/") && name != "docs/README.md" && !linked[name] {
			t.Errorf("docs/README.md does not name %s", name)
		}
	}
}

// The most that TestSentences allows in all pages together. Whoever makes a figure smaller writes the smaller figure here.
const (
	mostLongSentences     = 0
	mostHeadlessSentences = 0
	mostWords             = 30 // of a sentence
)

var (
	listItem    = regexp.MustCompile(`(?m)^ *(?:[-*]|\d+\.) +`)
	sentenceEnd = regexp.MustCompile(`[.!?](?:\)|"|”)?\s+`)
	// headless sentences have a clause for a subject, so a reader looks for who acts.
	headless = regexp.MustCompile(`^(?:Who|Whoever|What|Whatever|Of|Where|Whose)\s`)
)

// sentences are those of a page's prose: no code, no table, no heading.
func sentences(page string) (all []string) {
	page = mdHeading.ReplaceAllString(codeBlock.ReplaceAllString(page, "\n\n"), "\n")
	page = mdLink.ReplaceAllString(codeSpan.ReplaceAllString(page, "CODE"), "$1")
	for paragraph := range strings.SplitSeq(listItem.ReplaceAllString(page, "\n\n"), "\n\n") {
		var prose []string
		for line := range strings.Lines(paragraph) {
			if !strings.HasPrefix(strings.TrimSpace(line), "|") {
				prose = append(prose, strings.TrimSpace(line))
			}
		}
		for _, s := range sentenceEnd.Split(strings.Join(prose, " "), -1) {
			if s = strings.Trim(s, " *_"); s != "" {
				all = append(all, s)
			}
		}
	}
	return all
}

// TestSentences counts sentences that a reader has to read twice.
func TestSentences(t *testing.T) {
	var long, noSubject []string
	for name, page := range pages(t) {
		for _, s := range sentences(page) {
			if len(strings.Fields(s)) > mostWords {
				long = append(long, name+": "+s)
			}
			if headless.MatchString(s) && !strings.HasSuffix(s, "?") {
				noSubject = append(noSubject, name+": "+s)
			}
		}
	}
	atMost(t, "sentences of more than 30 words", len(long), mostLongSentences, long)
	atMost(t, "sentences that begin with a clause", len(noSubject), mostHeadlessSentences, noSubject)
}
