package salvor

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"salvor/config"
	"salvor/test/must"
	"salvor/test/sentence"
)

// pages are all pages of the documentation, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names := must.Get(filepath.Glob("docs/*.md"))(t)
	out := map[string]string{}
	for _, name := range append(names, "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md") {
		text := must.Get(os.ReadFile(name))(t)
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

// TestSentences counts sentences that a reader has to read twice in pages, package comments, error texts and the configuration sample. A test
// of cmd/salvor does the same for help texts.
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
			if !f.test {
				count(f.name, errorTexts(f.tree))
			}
		}
	}
	for _, option := range config.Options() {
		count("the option "+option.Name, slices.Concat(sentence.OfText(option.Doc), sentence.OfText(option.Idle)))
	}
	atMost(t, fmt.Sprintf("sentences of more than %d words", sentence.MostWords), len(long), mostLongSentences, long)
	atMost(t, "sentences that begin with a clause", len(headless), mostHeadlessSentences, headless)
}

// translatedWords are words that sound translated, each with the word to write. They are refused in pages, in the console and in the strings of
// the program: users read those.
var translatedWords = map[string]string{"shall": "will or must", "somebody": "someone", "door": "listener or API", "doors": "listeners or APIs", "face": "API", "faces": "APIs"}

var translatedWord = regexp.MustCompile(`(?i)\b(shall|somebody|doors?|faces?)\b`)

// TestWords holds the texts of users to the field's words. A name in a log, as door=api, is no text.
func TestWords(t *testing.T) {
	check := func(at, text string) {
		for _, word := range translatedWord.FindAllString(text, -1) {
			t.Errorf("%s: %q: write %s in place of %s", at, text, translatedWords[strings.ToLower(word)], word)
		}
	}
	for name, page := range pages(t) {
		for line := range strings.Lines(page) {
			if !strings.Contains(line, "**door**") {
				check(name, line)
			}
		}
	}
	for dir, files := range sources(t) {
		for _, f := range files {
			if f.test || strings.HasPrefix(dir, "lab") || strings.HasPrefix(dir, "test") || strings.HasSuffix(dir, "test") {
				continue
			}
			ast.Inspect(f.tree, func(n ast.Node) bool {
				if e, ok := n.(*ast.BasicLit); ok && strings.Contains(literalText(e), " ") {
					check(f.name, literalText(e))
				}
				return true
			})
		}
	}
	scripts, err := filepath.Glob("api/console/static/*.js")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts of the console: %v", len(scripts), err)
	}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, literal := range regexp.MustCompile(`"(?:[^"\\]|\\.)*"`).FindAllString(string(text), -1) {
			check(name, literal)
		}
	}
}

// errorTexts gives the sentences of the texts that a file makes errors of. A text that goes on after a semicolon begins again there.
func errorTexts(tree *ast.File) (all []string) {
	ast.Inspect(tree, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		of, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, _ := of.X.(*ast.Ident)
		if from == nil || from.Name != "problem" && from.Name+"."+of.Sel.Name != "fmt.Errorf" && from.Name+"."+of.Sel.Name != "errors.New" {
			return true
		}
		for _, argument := range call.Args {
			for _, s := range sentence.OfText(strings.ReplaceAll(literalText(argument), "; ", "\n\n")) {
				all = append(all, strings.ToUpper(s[:1])+s[1:])
			}
		}
		return true
	})
	return all
}

// literalText is what an expression of string literals and plus signs spells; empty for any other.
func literalText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.BinaryExpr:
		return literalText(e.X) + literalText(e.Y)
	}
	return ""
}

// TestReadmeIsShort keeps README.md to what a stranger reads in a minute.
func TestReadmeIsShort(t *testing.T) {
	if n := strings.Count(pages(t)["README.md"], "\n"); n > mostReadmeLines {
		t.Errorf("README.md has %d lines; at most %d", n, mostReadmeLines)
	}
}
