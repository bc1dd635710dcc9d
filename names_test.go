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
	mostSharedNames     = 4 // that five packages or more declare
	mostRefusedWords    = 0 // declared at package level, or names of files
	mostMethodsOfAType  = 165
	packagesThatShareIt = 5
)

// refusedWords are too vague, or say nothing to a reader who knows OpenStack and Go: none may be the name of a file or of a declaration at
// package level. The standard term for each thing is better.
var refusedWords = strings.Fields(`ear deaf whither seer deed rig chore errand doer era mood vigil heedful crowd crowded rollCall roster storedDog lend lent lamp
	overseer teller glance lookout outlook lookers buryPeers buryOthers burying spoiled inmate shelf honest believe giveUpThere goneOn comeBack takeIn putBack
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
