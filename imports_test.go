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
)

const module = "salvor/"

// wall is one row of ARCHITECTURE.md's table.
type wall struct {
	room       string
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

func walls(t *testing.T) []wall {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []wall
	inTable := false
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		switch {
		case len(cells) < 5:
			inTable = false
		case strings.TrimSpace(cells[1]) == "room":
			inTable = true
		case inTable && !strings.HasPrefix(cells[1], "---"):
			kind := strings.TrimSpace(cells[3])
			out = append(out, wall{strings.TrimSpace(cells[1]), strings.Fields(cells[2]), kind == "pure", kind == "test"})
		}
	}
	if len(out) < 10 {
		t.Fatalf("ARCHITECTURE.md: found %d rows of the table of rooms", len(out))
	}
	return out
}

// sources are all Go files of the module, by folder. Tests share them, and may not change them.
func sources(t *testing.T) map[string][]file {
	t.Helper()
	all, err := parseSources()
	if err != nil {
		t.Fatal(err)
	}
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

// wallOf finds the row that a room follows: its own, else that of the folder above with /*.
func wallOf(all []wall, room string) (wall, bool) {
	for _, w := range all {
		if w.room == room {
			return w, true
		}
	}
	for _, w := range all {
		if above, ok := strings.CutSuffix(w.room, "/*"); ok && strings.HasPrefix(room, above+"/") {
			return w, true
		}
	}
	return wall{}, false
}

func (w wall) allows(room string) bool {
	for _, m := range w.may {
		above, below := strings.CutSuffix(m, "/*")
		if m == "*" || m == room || (below && strings.HasPrefix(room, above+"/")) {
			return true
		}
	}
	return false
}

// impure are the packages that a pure room does without.
func impure(name string) bool {
	return name == "os" || strings.HasPrefix(name, "os/") || name == "net" || name == "net/http" || name == "database/sql" || name == "syscall" || strings.HasPrefix(name, "golang.org/x/sys")
}

// TestWalls holds every non-test import to the table of ARCHITECTURE.md.
func TestWalls(t *testing.T) {
	all := walls(t)
	for room, files := range sources(t) {
		if room == "." {
			continue
		}
		w, ok := wallOf(all, room)
		if !ok {
			t.Errorf("%s: no row of ARCHITECTURE.md's table names this room", room)
			continue
		}
		for _, f := range files {
			if f.test {
				continue
			}
			for _, name := range f.imports {
				if w.pure && impure(name) {
					t.Errorf("%s imports %s, but %s is pure", f.name, name, room)
				}
				target, ours := strings.CutPrefix(name, module)
				if !ours {
					continue
				}
				if !w.allows(target) {
					t.Errorf("%s imports %s; %s may import only: %s", f.name, target, room, strings.Join(w.may, " "))
				}
				if into, _ := wallOf(all, target); into.test && !w.test {
					t.Errorf("%s imports the test room %s", f.name, target)
				}
			}
		}
	}
}

// TestArrowsFall proves that the table itself has no way back up: no two rooms may
// import each other, be it through others.
func TestArrowsFall(t *testing.T) {
	all, rooms := walls(t), []string{}
	for room := range sources(t) {
		if w, ok := wallOf(all, room); ok && !w.test && room != "." {
			rooms = append(rooms, room)
		}
	}
	slices.Sort(rooms)
	const entered, left = 1, 2
	state := map[string]int{}
	var visit func(room string, way []string)
	visit = func(room string, way []string) {
		way = append(way, room)
		switch state[room] {
		case left:
			return
		case entered:
			t.Errorf("the table allows a circle: %s", strings.Join(way, " -> "))
			return
		}
		state[room] = entered
		w, _ := wallOf(all, room)
		for _, next := range rooms {
			// A row X/* lets a room import X and what X/* names, which is never meant to be itself.
			if next != room && w.allows(next) && !strings.HasPrefix(room, "cmd/") {
				visit(next, way)
			}
		}
		state[room] = left
	}
	for _, room := range rooms {
		visit(room, nil)
	}
}

// TestRowsHaveRooms finds rows of the table that nothing follows any more.
func TestRowsHaveRooms(t *testing.T) {
	rooms := sources(t)
	for _, w := range walls(t) {
		above, below := strings.CutSuffix(w.room, "/*")
		found := false
		for room := range rooms {
			found = found || room == w.room || (below && strings.HasPrefix(room, above+"/"))
		}
		if !found {
			t.Errorf("ARCHITECTURE.md: nothing is in the room %s", w.room)
		}
	}
}

// TestRoomNames refuses folders whose name says nothing.
func TestRoomNames(t *testing.T) {
	for room := range sources(t) {
		for part := range strings.SplitSeq(room, "/") {
			if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "types", "models", "manager", "misc", "shared", "internal", "pkg"}, part) {
				t.Errorf("%s: the name %q says nothing about what is in it", room, part)
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

// TestPackageDocs wants every room to say what it knows.
func TestPackageDocs(t *testing.T) {
	for room, files := range sources(t) {
		said, code := "", false
		for _, f := range files {
			if !f.test {
				code = true
				said += f.tree.Doc.Text()
			}
		}
		if code && len(said) < 60 {
			t.Errorf("%s: no package comment that says what it knows: %s", room, fmt.Sprintf("%q", said))
		}
	}
}

// TestDependenciesAreExplained holds docs/dependencies.md to the modules that go.mod requires directly, and to no others.
func TestDependenciesAreExplained(t *testing.T) {
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	required := map[string]bool{}
	for line := range strings.Lines(string(mod)) {
		if words := strings.Fields(line); len(words) == 2 && strings.HasPrefix(words[1], "v") {
			required[words[0]] = true
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
