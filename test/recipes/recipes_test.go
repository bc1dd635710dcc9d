// Package recipes follows the recipes of docs/adding.md, as a newcomer would. Files of testdata add a fake driver, operation and resource: one
// section for each place that the page lists, no other section. The tests that the page names must pass then, and fail without the place.
package recipes

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/test/must"
)

// recipes are those that a test follows; the others are held by the paths and names that they mention.
var recipes = []struct {
	heading, additions string
	names              map[string]string // by placeholder of the page
}{
	{"A BMC driver", "driver.txt", map[string]string{"<name>": "beacon"}},
	{"An operation", "operation.txt", map[string]string{"<name>": "audit"}},
	{"A resource of the Bare Metal API", "resource.txt", map[string]string{"<name>": "rack"}},
}

// TestRecipes adds everything at once: the page lists no place too few, and each test that it names passes.
func TestRecipes(t *testing.T) {
	if os.Getenv("SALVOR_SWEEP") != "whole" {
		t.Skip("make prove compiles the recipes; TestEditsFit looks whether they fit")
	}
	w := newWorkspace(t)
	var all []place
	for _, r := range recipes {
		all = append(all, w.placesOf(t, r.heading, r.additions, r.names)...)
	}
	w.apply(t, all, nil)
	for _, failed := range w.check(t, all) {
		t.Error(failed)
	}
}

// TestEditsFit applies everything without a compiler, so that a change of a line that an edit needs is found at once.
func TestEditsFit(t *testing.T) {
	w := &workspace{root: root(t), page: readFile(t, filepath.Join(root(t), "docs/adding.md"))}
	edited := map[string]string{}
	for _, r := range recipes {
		for _, p := range w.placesOf(t, r.heading, r.additions, r.names) {
			if strings.Contains(p.at, "<") || generatedBy.MatchString(p.edit) {
				continue
			}
			if _, ok := edited[p.file]; !ok {
				edited[p.file] = readFile(t, filepath.Join(w.root, p.file))
			}
			source, err := applyEdit(edited[p.file], p.file, p.symbols, p.edit)
			if err != nil {
				t.Errorf("test/recipes/testdata/%s: %v", r.additions, err)
				continue
			}
			edited[p.file] = source
		}
	}
}

// TestEveryPlaceIsNeeded leaves out one place after the other: what the page says of it must fail. It compiles the program anew each time.
func TestEveryPlaceIsNeeded(t *testing.T) {
	if os.Getenv("SALVOR_SOAK") == "" {
		t.Skip("builds the program once for each place; make soak runs it")
	}
	w := newWorkspace(t)
	for _, r := range recipes {
		all := w.placesOf(t, r.heading, r.additions, r.names)
		for i := range all {
			t.Run(r.heading+"/"+all[i].at, func(t *testing.T) {
				w.apply(t, all, &all[i])
				if failed := w.check(t, all[i:i+1]); len(failed) == 0 {
					t.Errorf("without it, %s does not fail", all[i].forgotten)
				}
			})
		}
	}
}

// TestListsNameWhatExists holds the recipes that no test follows to the tree: files, declarations and tests are there.
func TestListsNameWhatExists(t *testing.T) {
	page := readFile(t, filepath.Join(root(t), "docs/adding.md"))
	for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(page, -1) {
		places, err := parsePlaces(page, m[1], nil)
		if err != nil {
			t.Error(err)
		}
		if len(places) == 0 {
			t.Errorf("%s: no numbered list", m[1])
		}
		for _, p := range places {
			if err := p.exists(root(t)); err != nil {
				t.Errorf("%s: %v", m[1], err)
			}
		}
	}
}

// TestListsThatDiffer: a place without an edit and an edit without a place are both refused.
func TestListsThatDiffer(t *testing.T) {
	page := "## One\n\n1. `a.go`, `Table`: a row. If you forget it, `go build ./a` fails.\n2. `b_<name>.go`: a file. If you forget it,\n   `TestB` in `./b` fails.\n\n## Two\n"
	places, err := parsePlaces(page, "One", map[string]string{"<name>": "x"})
	if err != nil || len(places) != 2 || places[1].at != "b_<name>.go" || places[1].file != "b_x.go" || places[1].forgotten != (check{pkg: "./b", test: "TestB"}) {
		t.Fatalf("%+v, %v", places, err)
	}
	for sections, want := range map[string]string{
		"-- a.go Table --\nx\n": "b_<name>.go: docs/adding.md lists the place, and c.txt does not fill it",
		"-- a.go Table --\nx\n-- b_<name>.go --\ny\n-- d.go --\nz\n": "d.go: c.txt changes the place, and docs/adding.md does not list it",
		"-- a.go Table --\nx\n-- b_<name>.go --\ny\n":                "",
	} {
		got, places := "", slices.Clone(places)
		if err := fill(places, parseSections(sections), "c.txt", nil); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", sections, got, want)
		}
	}
	if _, err := parsePlaces(page, "Three", nil); err == nil {
		t.Error("a heading that is not there")
	}
	if _, err := parsePlaces("## One\n\n1. `a.go`: no word of what tells.\n", "One", nil); err == nil || !strings.Contains(err.Error(), "a.go") {
		t.Errorf("an item that does not say what fails: %v", err)
	}
}

// TestEdits: an edit needs its lines once, and inside the symbol that the page names.
func TestEdits(t *testing.T) {
	source := "package a\n\nvar Table = []int{\n\t1,\n}\n\nvar Other = []int{\n\t1,\n\t2,\n}\n\ntype Verb string\n\nconst (\n\tGo Verb = \"go\"\n)\n\nfunc (s *set) Add() {\n\t_ = 3\n}\n"
	for _, c := range []struct{ symbol, edit, want string }{
		{"Other", " \t2,\n+\t3,\n", ""},
		{"Table", " \t2,\n+\t3,\n", "not inside Table"},
		{"Table", " \t1,\n+\t3,\n", "2 times"},
		{"Table", " \t9,\n+\t3,\n", "0 times"},
		{"Verb", " \tGo Verb = \"go\"\n+\tStop Verb = \"stop\"\n", ""},
		{"set.Add", "-\t_ = 3\n+\t_ = 4\n", ""},
		{"None", " \t2,\n+\t3,\n", "no None"},
	} {
		_, err := applyEdit(source, "a.go", []string{c.symbol}, c.edit)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.symbol, c.edit, err, c.want)
		}
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir := must.Get(filepath.Abs("../.."))(t)
	return dir
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(name))(t)
	return string(b)
}

func keys(m map[string]string) []string {
	var all []string
	for key := range m {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}
