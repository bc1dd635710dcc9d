package salvor

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// The most that TestNames allows. Whoever makes a figure smaller writes the smaller figure here.
const (
	mostOneWordPercent  = 5 // of the unexported functions and types
	mostSharedNames     = 3 // that five packages or more declare
	mostRefusedWords    = 0 // declared at package level, or names of files
	mostMethodsOfAType  = 110
	packagesThatShareIt = 5
)

// refusedWords are too vague, or say nothing to a reader who knows OpenStack and Go: none may be the name of a file or of a declaration at
// package level. The standard term for each thing is better.
var refusedWords = strings.Fields(`ear deaf whither seer deed rig chore errand doer era mood vigil heedful crowd crowded rollCall roster storedDog lend lent lamp
	overseer teller lookout outlook lookers buryPeers buryOthers burying spoiled inmate shelf honest believe giveUpThere goneOn comeBack takeIn putBack
	strays beat patience patiently houseTurn keepHouse estate landless birth lifeForm pulse privately sparing tally obey unsure overtake rouse woke pouring
	census hasten setAside wishes wish hands desk thing thought standing keep kept told tell said seen words word fitting drawing spot portion terms road`)

// declaration is a function, type, constant or variable at package level.
type declaration struct {
	name, folder string
	counted      bool // an unexported function or type
	receiver     string
}

func declarations(folder string, f file) (all []declaration) {
	add := func(name, receiver string, counted bool) {
		counted = counted && receiver == "" && !ast.IsExported(name) && name != "main" && name != "init" && name != "_"
		all = append(all, declaration{name, folder, counted, receiver})
	}
	for _, d := range f.tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			receiver := ""
			if d.Recv != nil {
				receiver = receiverName(d.Recv.List[0].Type)
			}
			add(d.Name.Name, receiver, true)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec.Name.Name, "", true)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						add(name.Name, "", false)
					}
				}
			}
		}
	}
	return all
}

func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// TestNames holds names to those that a reader far from their declaration understands.
func TestNames(t *testing.T) {
	oneWord, counted := 0, 0
	packages := map[string]map[string]bool{} // by unexported name, the packages that declare it
	methods := map[string]int{}
	var refused []string
	for folder, files := range sources(t) {
		for _, f := range files {
			if f.test || ast.IsGenerated(f.tree) {
				continue
			}
			if base := strings.TrimSuffix(path.Base(f.name), ".go"); isRefused(base) {
				refused = append(refused, f.name)
			}
			for _, d := range declarations(folder, f) {
				switch {
				case d.receiver != "":
					methods[folder+"."+d.receiver]++
					continue
				case isRefused(d.name):
					refused = append(refused, fmt.Sprintf("%s: %s", f.name, d.name))
				}
				if !d.counted {
					continue
				}
				counted++
				if !strings.ContainsFunc(d.name, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsDigit(r) || r == '_' }) {
					oneWord++
				}
				if packages[d.name] == nil {
					packages[d.name] = map[string]bool{}
				}
				packages[d.name][folder] = true
			}
		}
	}
	shared := slices.DeleteFunc(slices.Sorted(maps.Keys(packages)), func(name string) bool { return len(packages[name]) < packagesThatShareIt })
	largest := slices.MaxFunc(slices.Collect(maps.Keys(methods)), func(a, b string) int { return methods[a] - methods[b] })
	atMost(t, "percent of the unexported functions and types whose names are one word", 100*oneWord/counted, mostOneWordPercent, nil)
	atMost(t, fmt.Sprintf("names that %d packages or more declare", packagesThatShareIt), len(shared), mostSharedNames, shared)
	atMost(t, "refused words", len(refused), mostRefusedWords, refused)
	atMost(t, "methods of one type", methods[largest], mostMethodsOfAType, []string{largest})
}

// atMost fails a test whose figure is larger than allowed, and names what was counted.
func atMost(t *testing.T, what string, got, most int, counted []string) {
	t.Helper()
	t.Logf("%s: %d", what, got)
	if got > most {
		t.Errorf("%s: %d, at most %d are allowed\n%s", what, got, most, strings.Join(slices.Sorted(slices.Values(counted)), "\n"))
	}
}

func isRefused(name string) bool {
	return slices.ContainsFunc(refusedWords, func(word string) bool { return strings.EqualFold(word, name) })
}

// TestFileNamesDiffer: two files of a package differ by more than an ending or a letter, so that a reader remembers which is which. A test file
// may have the name of the file that it tests.
func TestFileNamesDiffer(t *testing.T) {
	for folder, files := range sources(t) {
		bases := map[string]bool{}
		for _, f := range files {
			bases[fileSubject(f.name)] = true
		}
		all := slices.Sorted(maps.Keys(bases))
		for i, a := range all {
			for _, b := range all[i+1:] {
				pair := fmt.Sprintf("%s: %s, %s", folder, a, b)
				if alikeNames(a, b) {
					t.Errorf("%s: rename one of the files", pair)
				}
			}
		}
	}
}

// fileSubject is the name of a file without what says that it is a test, or of one system.
func fileSubject(name string) string {
	base := strings.TrimSuffix(path.Base(name), ".go")
	for _, suffix := range []string{"_test", "_e2e", "_linux"} {
		base = strings.TrimSuffix(base, suffix)
	}
	return base
}

// alikeNames tells whether two names have one stem, or stems of five letters or more that differ by one letter.
func alikeNames(a, b string) bool {
	a, b = nameStem(a), nameStem(b)
	return a == b || min(len(a), len(b)) >= 5 && differByOneLetter(a, b)
}

// nameStem takes an ending off a name: move, moved and moving have one stem.
func nameStem(name string) string {
	for _, ending := range strings.Fields("ations ation ates ate ings ing ions ion ers er ed es e s") {
		stem, ok := strings.CutSuffix(name, ending)
		if !ok || len(stem) < 3 {
			continue
		}
		if n := len(stem); stem[n-1] == stem[n-2] { // planned, planning
			stem = stem[:n-1]
		}
		return stem
	}
	return name
}

// differByOneLetter tells whether b is a with one letter added, left out or replaced.
func differByOneLetter(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	same := 0
	for same < len(a) && a[same] == b[same] {
		same++
	}
	if len(a) == len(b) {
		return same == len(a) || a[same+1:] == b[same+1:]
	}
	return len(b) == len(a)+1 && a[same:] == b[same+1:]
}

func TestAlikeNames(t *testing.T) {
	t.Parallel()
	for pair, want := range map[string]bool{
		"host hosts": true, "act action": true, "record records": true, "planned planning": true, "moved moving": true, "fence fencing": true, "migrate migration": true,
		"lookout lookouts": true, "flavor flavour": true, "restore restored": true,
		"rescue unrescue": false, "power power_sync": false, "node port": false, "site size": false,
	} {
		a, b, _ := strings.Cut(pair, " ")
		if alikeNames(a, b) != want || alikeNames(b, a) != want {
			t.Errorf("%s: want alike %v", pair, want)
		}
	}
}
