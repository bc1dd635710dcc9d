package salvor

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/test/sentence"
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

// anchors are the fragments by which links reach the headings of a page.
func anchors(page string) (all []string) {
	for _, m := range sentence.Heading.FindAllStringSubmatch(sentence.CodeBlock.ReplaceAllString(page, ""), -1) {
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
		for _, m := range sentence.Link.FindAllStringSubmatch(sentence.CodeSpan.ReplaceAllString(sentence.CodeBlock.ReplaceAllString(text, ""), "code"), -1) {
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

// The most that TestSentences allows in all pages and package comments together. Whoever makes a figure smaller writes the smaller figure here.
const (
	mostLongSentences     = 0
	mostHeadlessSentences = 0
	mostReadmeLines       = 70
)

// TestSentences counts sentences that a reader has to read twice.
func TestSentences(t *testing.T) {
	var long, headless []string
	count := func(name string, sentences []string) {
		for _, s := range sentences {
			if sentence.IsLong(s) {
				long = append(long, name+": "+s)
			}
			if sentence.IsHeadless(s) {
				headless = append(headless, name+": "+s)
			}
		}
	}
	for name, page := range pages(t) {
		count(name, sentence.OfPage(page))
	}
	for _, files := range sources(t) {
		for _, f := range files {
			count(f.name, sentence.OfText(f.tree.Doc.Text()))
		}
	}
	atMost(t, fmt.Sprintf("sentences of more than %d words", sentence.MostWords), len(long), mostLongSentences, long)
	atMost(t, "sentences that begin with a clause", len(headless), mostHeadlessSentences, headless)
}

// TestReadmeIsShort keeps README.md to what a stranger reads in a minute.
func TestReadmeIsShort(t *testing.T) {
	if n := strings.Count(pages(t)["README.md"], "\n"); n > mostReadmeLines {
		t.Errorf("README.md has %d lines; at most %d", n, mostReadmeLines)
	}
}
