package salvor

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"salvor/test/must"
)

const module = "salvor/"

// importRule is one row of ARCHITECTURE.md's table.
type importRule struct {
	pkg        string // its path below the module; with /* all packages below
	may        []string
	pure, test bool
}

// file is one Go source with what it imports.
type file struct {
	name    string
	test    bool
	imports []string
	lines   int
	tree    *ast.File
	set     *token.FileSet
}

func importRules(t *testing.T) []importRule {
	t.Helper()
	text := must.Get(os.ReadFile("ARCHITECTURE.md"))(t)
	var out []importRule
	inTable := false
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		switch {
		case len(cells) < 5:
			inTable = false
		case strings.TrimSpace(cells[1]) == "package":
			inTable = true
		case inTable && !strings.HasPrefix(cells[1], "---"):
			kind := strings.TrimSpace(cells[3])
			out = append(out, importRule{strings.TrimSpace(cells[1]), strings.Fields(cells[2]), kind == "pure", kind == "test"})
		}
	}
	if len(out) < 10 {
		t.Fatalf("ARCHITECTURE.md: found %d rows of the table of packages", len(out))
	}
	return out
}

// sources are all Go files of the module, by folder. Tests share them, and may not change them.
func sources(t *testing.T) map[string][]file {
	t.Helper()
	all := must.Get(parseSources())(t)
	return all
}

var parseSources = sync.OnceValues(func() (map[string][]file, error) {
	out := map[string][]file{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "build", "testdata", "tools"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := parse(name)
		out[path.Dir(name)] = append(out[path.Dir(name)], f)
		return err
	})
	return out, err
})

func parse(name string) (file, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	f := file{name: name, test: strings.HasSuffix(name, "_test.go"), lines: strings.Count(string(text), "\n"), tree: tree, set: set}
	for _, i := range tree.Imports {
		f.imports = append(f.imports, strings.Trim(i.Path.Value, `"`))
	}
	return f, nil
}

// ruleOf finds the row that a package follows: its own, else that of the folder above with /*.
func ruleOf(all []importRule, pkg string) (importRule, bool) {
	for _, w := range all {
		if w.pkg == pkg {
			return w, true
		}
	}
	for _, w := range all {
		if above, ok := strings.CutSuffix(w.pkg, "/*"); ok && strings.HasPrefix(pkg, above+"/") {
			return w, true
		}
	}
	return importRule{}, false
}

func (r importRule) allows(pkg string) bool {
	for _, m := range r.may {
		above, below := strings.CutSuffix(m, "/*")
		if m == "*" || m == pkg || (below && strings.HasPrefix(pkg, above+"/")) {
			return true
		}
	}
	return false
}

// impure are the packages that a pure package does without.
func impure(name string) bool {
	return name == "os" || strings.HasPrefix(name, "os/") || name == "net" || name == "net/http" || name == "database/sql" || name == "syscall" || strings.HasPrefix(name, "golang.org/x/sys")
}

// TestImportRules holds every non-test import to the table of ARCHITECTURE.md.
func TestImportRules(t *testing.T) {
	all := importRules(t)
	for pkg, files := range sources(t) {
		if pkg == "." {
			continue
		}
		w, ok := ruleOf(all, pkg)
		if !ok {
			t.Errorf("%s: no row of ARCHITECTURE.md's table names this package", pkg)
			continue
		}
		for _, f := range files {
			if f.test {
				continue
			}
			for _, name := range f.imports {
				if w.pure && impure(name) {
					t.Errorf("%s imports %s, but %s is pure", f.name, name, pkg)
				}
				target, ours := strings.CutPrefix(name, module)
				if !ours {
					continue
				}
				if !w.allows(target) {
					t.Errorf("%s imports %s; %s may import only: %s", f.name, target, pkg, strings.Join(w.may, " "))
				}
				if into, _ := ruleOf(all, target); into.test && !w.test {
					t.Errorf("%s imports %s, which only tests may import", f.name, target)
				}
			}
		}
	}
}

// TestRulesAllowNoCycle proves that the table itself allows no cycle: no two packages may
// import each other, directly or through others.
func TestRulesAllowNoCycle(t *testing.T) {
	all, packages := importRules(t), []string{}
	for pkg := range sources(t) {
		if w, ok := ruleOf(all, pkg); ok && !w.test && pkg != "." {
			packages = append(packages, pkg)
		}
	}
	slices.Sort(packages)
	const entered, left = 1, 2
	state := map[string]int{}
	var visit func(pkg string, way []string)
	visit = func(pkg string, way []string) {
		way = append(way, pkg)
		switch state[pkg] {
		case left:
			return
		case entered:
			t.Errorf("the table allows a cycle: %s", strings.Join(way, " -> "))
			return
		}
		state[pkg] = entered
		w, _ := ruleOf(all, pkg)
		for _, next := range packages {
			// A row X/* lets a package import X and what X/* names, which is never meant to be itself.
			if next != pkg && w.allows(next) && !strings.HasPrefix(pkg, "cmd/") {
				visit(next, way)
			}
		}
		state[pkg] = left
	}
	for _, pkg := range packages {
		visit(pkg, nil)
	}
}

// TestRulesHavePackages finds rows of the table that no package follows any more.
func TestRulesHavePackages(t *testing.T) {
	packages := sources(t)
	for _, w := range importRules(t) {
		above, below := strings.CutSuffix(w.pkg, "/*")
		found := false
		for pkg := range packages {
			found = found || pkg == w.pkg || (below && strings.HasPrefix(pkg, above+"/"))
		}
		if !found {
			t.Errorf("ARCHITECTURE.md: there is no package %s", w.pkg)
		}
	}
}

// TestPackageNames refuses folders whose name says nothing.
func TestPackageNames(t *testing.T) {
	for pkg := range sources(t) {
		for part := range strings.SplitSeq(pkg, "/") {
			if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "types", "models", "manager", "misc", "shared", "internal", "pkg"}, part) {
				t.Errorf("%s: the name %q says nothing about what is in it", pkg, part)
			}
		}
	}
}

const (
	maxFileLines     = 600
	maxFunctionLines = 80
)

// TestBudgets holds files and functions to a length that can be read.
func TestBudgets(t *testing.T) {
	for _, files := range sources(t) {
		for _, f := range files {
			if f.lines > maxFileLines {
				t.Errorf("%s has %d lines; at most %d", f.name, f.lines, maxFileLines)
			}
			for _, d := range f.tree.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || f.test {
					continue
				}
				if n := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1; n > maxFunctionLines {
					t.Errorf("%s: %s has %d lines; at most %d", f.set.Position(fn.Pos()), fn.Name.Name, n, maxFunctionLines)
				}
			}
		}
	}
}

// TestPackageDocs requires that each package says what it knows.
func TestPackageDocs(t *testing.T) {
	for pkg, files := range sources(t) {
		said, code := "", false
		for _, f := range files {
			if !f.test {
				code = true
				said += f.tree.Doc.Text()
			}
		}
		if code && len(said) < 60 {
			t.Errorf("%s: no package comment that says what it knows: %s", pkg, fmt.Sprintf("%q", said))
		}
	}
}

// TestDependenciesAreExplained holds docs/dependencies.md to the modules that go.mod and tools/go.mod require directly, and to no others.
func TestDependenciesAreExplained(t *testing.T) {
	page := must.Get(os.ReadFile("docs/dependencies.md"))(t)
	required := map[string]bool{}
	for _, name := range []string{"go.mod", "tools/go.mod"} {
		mod := must.Get(os.ReadFile(name))(t)
		for line := range strings.Lines(string(mod)) {
			if words := strings.Fields(line); len(words) == 2 && strings.HasPrefix(words[1], "v") {
				required[words[0]] = true
			}
		}
	}
	explained := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, name := range strings.FieldsFunc(cells[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if strings.Contains(name, ".") && strings.Contains(name, "/") && !strings.Contains(name, "`") {
				explained[name] = true
			}
		}
	}
	for name := range required {
		within := func(row string) bool { return name == row || strings.HasPrefix(name, row+"/") }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(explained)), within) {
			t.Errorf("docs/dependencies.md has no row for %s", name)
		}
	}
	for name := range explained {
		if !required[name] {
			t.Errorf("docs/dependencies.md has a row for %s, which go.mod does not require directly", name)
		}
	}
}

// TestOneConversationWithABMC: below driver/redfish one package knows HTTP and JSON, and it stays small enough to be read whole.
func TestOneConversationWithABMC(t *testing.T) {
	const only, most = "driver/redfish/conversation", 1200
	lines := 0
	for pkg, files := range sources(t) {
		for _, f := range files {
			switch {
			case f.test || pkg != "driver/redfish" && !strings.HasPrefix(pkg, "driver/redfish/"):
			case pkg == only:
				lines += f.lines
			default:
				for _, name := range f.imports {
					if name == "net/http" || name == "encoding/json" {
						t.Errorf("%s imports %s, which only %s may", f.name, name, only)
					}
				}
			}
		}
	}
	if lines == 0 || lines > most {
		t.Errorf("%s has %d lines, want %d at most", only, lines, most)
	}
}
