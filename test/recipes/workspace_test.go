package recipes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"salvor/test/must"
)

// workspace is a copy of the module that recipes are applied to. The compiler sees the edits as an overlay of the module itself, so that it
// compiles only what depends on them; tests run in the copy, whose files they read.
type workspace struct {
	root, tree, overlay, binaries string
	page                          string
	original                      map[string]*string // by path, what files held that are edited now; nil: they did not exist
	generators                    []check            // tests that write a file of the copy
	complete                      bool               // no place is left out
}

func newWorkspace(t *testing.T) *workspace {
	t.Helper()
	dir := t.TempDir()
	w := &workspace{root: root(t), tree: filepath.Join(dir, "tree"), overlay: filepath.Join(dir, "overlay.json"), binaries: filepath.Join(dir, "tests"), original: map[string]*string{}}
	must.OK(t, copyTree(w.root, w.tree))
	page := must.Get(os.ReadFile(filepath.Join(w.tree, "docs/adding.md")))(t)
	w.page = string(page)
	return w
}

// copyTree copies the files of the module, and nothing that is built or belongs to git.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, name)
		switch {
		case d.IsDir() && slices.Contains([]string{".git", "build", "bin"}, rel):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, info.Mode().Perm())
	})
}

// placesOf reads a recipe with its edits.
func (w *workspace) placesOf(t *testing.T, heading, additions string, names map[string]string) []place {
	t.Helper()
	names = maps.Clone(names)
	step := nextStep(t)
	names["<step>"], names["<number>"] = strconv.Itoa(step), fmt.Sprintf("%05d", step)
	places := must.Get(parsePlaces(w.page, heading, names))(t)
	text := must.Get(os.ReadFile(filepath.Join("testdata", additions)))(t)
	must.OK(t, fill(places, parseSections(string(text)), additions, names))
	return places
}

// nextStep is the number of the next migration.
func nextStep(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("../../store/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	digits, _, _ := strings.Cut(filepath.Base(slices.Max(files)), "_")
	last, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return last + 1
}

// generatedBy is the edit of a file that a test writes: what the page's make target runs.
var generatedBy = regexp.MustCompile(`^\$ go test (\S+) -run (\w+) -update\n$`)

// apply makes the copy what the places but one say. nil leaves none out.
func (w *workspace) apply(t *testing.T, places []place, without *place) {
	t.Helper()
	for file, text := range w.original {
		w.write(t, file, text)
	}
	w.original, w.generators, w.complete = map[string]*string{}, nil, without == nil
	for i := range places {
		p := &places[i]
		if without != nil && p.at == without.at {
			continue
		}
		w.remember(t, p.file)
		switch {
		case generatedBy.MatchString(p.edit):
			m := generatedBy.FindStringSubmatch(p.edit)
			if w.complete || without.forgotten.pkg == m[1] { // else nothing reads the file
				w.generators = append(w.generators, check{pkg: m[1], test: m[2]})
			}
		case w.original[p.file] == nil && len(p.symbols) == 0:
			w.write(t, p.file, &p.edit)
		default:
			source := must.Get(os.ReadFile(filepath.Join(w.tree, p.file)))(t)
			edited := must.Get(applyEdit(string(source), p.file, p.symbols, p.edit))(t)
			w.write(t, p.file, &edited)
		}
	}
	replace := map[string]string{}
	for file := range w.original {
		replace[filepath.Join(w.root, file)] = filepath.Join(w.tree, file)
	}
	b := must.Get(json.Marshal(map[string]any{"Replace": replace}))(t)
	must.OK(t, os.WriteFile(w.overlay, b, 0o644))
}

// remember keeps what a file holds before its first edit.
func (w *workspace) remember(t *testing.T, file string) {
	t.Helper()
	if _, ok := w.original[file]; ok {
		return
	}
	b, err := os.ReadFile(filepath.Join(w.tree, file))
	if os.IsNotExist(err) {
		w.original[file] = nil
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	w.original[file] = &text
}

// write makes a file of the copy hold a text; nil removes it, with its folder where that is empty then.
func (w *workspace) write(t *testing.T, file string, text *string) {
	t.Helper()
	name := filepath.Join(w.tree, file)
	if text == nil {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Dir(name)) // fails where other files are in it
		return
	}
	must.OK(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must.OK(t, os.WriteFile(name, []byte(*text), 0o644))
}

func (w *workspace) goTool(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	// CGO_ENABLED is that of make test-unit, whose compiled packages are used again. With GOGC=400 the compiler collects less garbage.
	cmd.Dir, cmd.Env = w.root, append(os.Environ(), "CGO_ENABLED=0", "GOGC=400")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// compile builds the tests of packages all at once, so that no processor waits and each program is linked once.
func (w *workspace) compile(t *testing.T, packages []string) {
	t.Helper()
	must.OK(t, os.RemoveAll(w.binaries))
	must.OK(t, os.Mkdir(w.binaries, 0o755))
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", w.overlay, "-o", w.binaries}, packages...)
	if out, err := w.goTool(args...); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// runTests runs tests of a compiled package in the copy.
func (w *workspace) runTests(pkg string, tests []string, args ...string) (string, error) {
	var patterns []string
	for _, test := range tests {
		patterns = append(patterns, "^"+strings.ReplaceAll(test, "/", "$/^")+"$")
	}
	cmd := exec.Command(filepath.Join(w.binaries, filepath.Base(pkg)+".test"), append([]string{"-test.v", "-test.timeout=10m", "-test.run", strings.Join(patterns, "|")}, args...)...)
	cmd.Dir = filepath.Join(w.tree, pkg)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// check runs what places name, and tells what failed.
func (w *workspace) check(t *testing.T, places []place) (failed []string) {
	t.Helper()
	builds, tests := map[string]bool{}, map[string][]string{}
	for _, p := range places {
		if p.forgotten.test == "" {
			builds[p.forgotten.pkg] = true
		} else {
			tests[p.forgotten.pkg] = append(tests[p.forgotten.pkg], p.forgotten.test)
		}
	}
	if len(tests) == 0 { // else the tests compile those packages too
		if out, err := w.goTool(append([]string{"build", "-overlay", w.overlay, "-o", os.DevNull}, slices.Sorted(maps.Keys(builds))...)...); err != nil {
			failed = append(failed, fmt.Sprintf("go build: %v\n%s", err, out))
		}
		return failed
	}
	w.compile(t, slices.Sorted(maps.Keys(tests)))
	for _, g := range w.generators {
		if out, err := w.runTests(g.pkg, []string{g.test}, "-update"); err != nil && w.complete {
			t.Fatalf("%s: %v\n%s", g, err, out)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		out, _ := w.runTests(pkg, tests[pkg])
		ended := results(out)
		for _, test := range tests[pkg] {
			switch c := (check{pkg: pkg, test: test}); ended[test] {
			case "":
				t.Fatalf("%s did not run:\n%s", c, out)
			case "PASS":
			default:
				failed = append(failed, fmt.Sprintf("%s: %s\n%s", c, ended[test], out))
			}
		}
	}
	return failed
}

var testResult = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+)`)

// results are how each test ended that the output names.
func results(out string) map[string]string {
	ended := map[string]string{}
	for _, m := range testResult.FindAllStringSubmatch(out, -1) {
		ended[m[2]] = m[1]
	}
	return ended
}
