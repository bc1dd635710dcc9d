package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
)

const someRow = `# a comment

mutant A1 lamp/lamp.go
what the lamp is on when it is off
test ./lamp ./house -run ^TestLamp$ -tags e2e -short
-	return on
-}
+	return !on
+}
`

func TestARowIsRead(t *testing.T) {
	rows, err := parseTable(someRow)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	m := rows[0]
	if m.id != "A1" || m.file != "lamp/lamp.go" || m.what != "the lamp is on when it is off" || m.run != "^TestLamp$" || m.tags != "e2e" || !m.short ||
		!slices.Equal(m.packages, []string{"./lamp", "./house"}) || m.room() != "lamp" {
		t.Errorf("read %+v", m)
	}
	const source = "package lamp\n\nfunc is(on bool) bool {\n\treturn on\n}\n"
	changed, err := m.apply(source)
	if want := strings.Replace(source, "return on", "return !on", 1); err != nil || changed != want {
		t.Errorf("%v\n%s", err, changed)
	}
}

// TestARowWithoutNewText removes its old text.
func TestARowWithoutNewText(t *testing.T) {
	rows := must.Get(parseTable("mutant A1 a.go\nwhat w\ntest ./a -run T\n-\tif bad {\n-\t\treturn\n-\t}\n"))(t)
	if got, err := rows[0].apply("a\n\tif bad {\n\t\treturn\n\t}\nb\n"); err != nil || got != "a\n\nb\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestAStaleRowIsNotApplied: the old text is in the file exactly once, or the row proves nothing.
func TestAStaleRowIsNotApplied(t *testing.T) {
	m := mutant{file: "a.go", old: "x > 1\n", new: "x >= 1\n"}
	for source, want := range map[string]string{"y > 1": "is not in a.go", "x > 1 && x > 1": "2 times in a.go"} {
		if _, err := m.apply(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
}

func TestRowsThatAreRefused(t *testing.T) {
	const test, text = "test ./a -run T\n", "-old\n+new\n"
	for _, c := range []struct{ table, want string }{
		{"mutant A1 a.go\nwhat w\n" + test + text + "mutant A1 b.go\n", "line 1 has that id too"},
		{"what w\n", "before the first mutant"},
		{"mutant A1 a_test.go\nwhat w\n" + test + text, "no Go source of the program"},
		{"mutant A1 ../a.go\nwhat w\n" + test + text, "no Go source of the program"},
		{"mutant A1 a.txt\nwhat w\n" + test + text, "no Go source of the program"},
		{"mutant A1\nwhat w\n" + test + text, "mutant ID FILE"},
		{"mutant A1 a.go\n" + test + text, "no line what"},
		{"mutant A1 a.go\nwhat w\n" + text, "names no package, or no -run"},
		{"mutant A1 a.go\nwhat w\ntest ./a\n" + text, "names no package, or no -run"},
		{"mutant A1 a.go\nwhat w\ntest ./a -run\n" + text, "-run has no value"},
		{"mutant A1 a.go\nwhat w\ntest a -run T\n" + text, "neither a package"},
		{"mutant A1 a.go\nwhat w\n" + test, "no old text"},
		{"mutant A1 a.go\nwhat w\n" + test + "-same\n+same\n", "new text is the old one"},
		{"mutant A1 a.go\nwhat w\n" + test + "+new\n-old\n", "before the new ones"},
		{"mutant A1 a.go\nwhat w\nwhy not\n" + test + text, "no line of a row"},
	} {
		if _, err := parseTable(c.table); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q\n%v, want %q", c.table, err, c.want)
		}
	}
}

func TestRowsAreChosen(t *testing.T) {
	rows := []mutant{{id: "A1", file: "agent/a.go"}, {id: "A2", file: "agent/image/b.go"}, {id: "B1", file: "agents/c.go"}}
	for _, c := range []struct {
		ids, rooms []string
		want       string
	}{
		{nil, nil, "A1 A2 B1"}, {[]string{"B1"}, nil, "B1"}, {nil, []string{"agent"}, "A1 A2"}, {[]string{"B1"}, []string{"agent/image"}, "A2 B1"},
	} {
		got, err := choose(rows, c.ids, c.rooms)
		var ids []string
		for _, m := range got {
			ids = append(ids, m.id)
		}
		if err != nil || strings.Join(ids, " ") != c.want {
			t.Errorf("%v %v: %v, %v; want %s", c.ids, c.rooms, ids, err, c.want)
		}
	}
	if _, err := choose(rows, []string{"A1", "Z9"}, []string{"boot"}); err == nil || !strings.Contains(err.Error(), "Z9, boot") {
		t.Errorf("an unknown choice: %v", err)
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-id", "A1,A2 A3", "-package", "./agent/,job", "-p", "3", "-list"}, os.Stderr)
	if err != nil || !slices.Equal(o.ids, []string{"A1", "A2", "A3"}) || !slices.Equal(o.rooms, []string{"agent", "job"}) || o.parallel != 3 || !o.list {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"-p", "0"}, {"C07"}} {
		if _, err := parseOptions(args, new(bytes.Buffer)); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

// TestTheTable holds the committed table to the sources: no row is stale.
func TestTheTable(t *testing.T) {
	rows := must.Get(parseTable(table))(t)
	root := filepath.Join("..", "..")
	run := 0
	for _, m := range rows {
		if _, err := m.mutate(root); err != nil {
			t.Errorf("mutant %s is stale: %v; write its old text in lab/mutants/mutants.txt anew", m.id, err)
		}
		for _, pkg := range m.packages {
			if !hasTests(t, filepath.Join(root, pkg), m.run) {
				t.Errorf("mutant %s: %s has no test that -run %s names", m.id, pkg, m.run)
			}
		}
		if m.equivalent == "" {
			run++
		}
	}
	if run < 120 {
		t.Errorf("%d mutants are run; want at least 120", run)
	}
}

// hasTests tells whether a package declares a test that a -run pattern names. PATTERN/... names subtests, which are not looked for.
func hasTests(t *testing.T, folder, run string) bool {
	t.Helper()
	top, _, _ := strings.Cut(run, "/")
	named := must.Get(regexp.Compile(top))(t)
	files, _ := filepath.Glob(filepath.Join(strings.TrimSuffix(folder, "..."), "*_test.go"))
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		for _, test := range declaredTest.FindAllSubmatch(text, -1) {
			if named.Match(test[1]) {
				return true
			}
		}
	}
	return false
}

var declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// lamp is a module with one function and a test for half of it.
func lamp(t *testing.T) *laboratory {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module lamp\n\ngo 1.24\n",
		"lamp/lamp.go": "package lamp\n\nfunc Lit(switched, power bool) bool {\n\tif !power {\n\t\treturn false\n\t}\n\treturn switched\n}\n\nfunc Wait(n int) {\n\tfor n > 0 {\n\t\tn--\n\t}\n}\n",
		"lamp/lamp_test.go": "package lamp\n\nimport \"testing\"\n\nfunc TestLit(t *testing.T) {\n\tif !Lit(true, true) {\n\t\tt.Error(\"dark\")\n\t}\n}\n\n" +
			"func TestRed(t *testing.T) { t.Error(\"red\") }\n\nfunc TestSkipped(t *testing.T) { t.Skip(\"no root\") }\n\nfunc TestWait(t *testing.T) { Wait(3) }\n",
	} {
		file := filepath.Join(root, name)
		must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.OK(t, os.WriteFile(file, []byte(text), 0o644))
	}
	l := newLaboratory(root, t.TempDir())
	l.leastBound = 2 * time.Second
	return l
}

// TestMutantsShareAProgram: those that change functions are chosen when the program runs, whatever the function looks like.
func TestMutantsShareAProgram(t *testing.T) {
	const source = "package p\n\nconst most = 3\n\nfunc (l *lamp) set(on bool, names ...string) (int, error) {\n\treturn 1, nil\n}\n\nfunc bare() { bare() }\n\nfunc hidden(_ int) int { return 1 }\n"
	rows := []mutant{{id: "M1", old: "1, nil", new: "2, nil"}, {id: "M2", old: "return 1, nil", new: "return 3, nil"}, {id: "B1", old: "{ bare() }", new: "{}"},
		{id: "H1", old: "int { return 1 }", new: "int { return 2 }"}, {id: "C1", old: "most = 3", new: "most = 4"}}
	text, taken, pkg, err := combine(source, rows)
	if err != nil || pkg != "p" || !slices.Equal(taken, []string{"M1", "M2", "B1"}) {
		t.Fatalf("%v of %s, %v", taken, pkg, err)
	}
	for _, part := range []string{
		`if chosenMutant == "M1" {return l.set_M1(on, names...)}`, `if chosenMutant == "M2" {return l.set_M2(on, names...)}`, `if chosenMutant == "B1" {bare_B1(); return}`,
		"func (l *lamp) set_M2(on bool, names ...string) (int, error) {\n\treturn 3, nil\n}", "func bare_B1() {}", "const most = 3", "func hidden(_ int) int { return 1 }",
	} {
		if strings.Count(text, part) != 1 {
			t.Errorf("%q is not there once:\n%s", part, text)
		}
	}
}

// TestVerdicts runs real tests with real mistakes.
func TestVerdicts(t *testing.T) {
	l := lamp(t)
	before := must.Get(os.ReadFile(filepath.Join(l.root, "lamp/lamp.go")))(t)
	row := func(id, run, old, changed string) mutant {
		return mutant{id: id, file: "lamp/lamp.go", what: id, packages: []string{"./lamp"}, run: run, old: old, new: changed}
	}
	never := row("equivalent", "TestLit", "!power", "power")
	never.equivalent = "as the row says"
	rows := []mutant{
		row("killed", "TestLit", "return switched", "return false"),
		row("survives", "TestLit", "return false", "return switched"),
		row("endless", "TestWait", "n--", "n++"),
		row("broken", "TestLit", "return switched", "return switch"),
		row("stale", "TestLit", "return dark", "return false"),
		row("red", "TestRed", "return switched", "return false"),
		row("no test", "TestNothing", "return switched", "return false"),
		row("skipped", "TestSkipped", "return switched", "return false"),
		never,
	}
	want := []verdict{killed, survived, killed, noCompile, stale, red, red, notRun, equivalent}
	judge := func(l *laboratory, rows []mutant) []result {
		must.OK(t, l.prepare(rows))
		results := runAll(context.Background(), l, rows, 2, func(result) {})
		for i, r := range results {
			if r.verdict != want[i] || r.timedOut != (r.id == "endless") {
				t.Errorf("%s: %s (%s), want %s", r.id, r.verdict, r.why, want[i])
			}
		}
		if results[0].why != "TestLit" {
			t.Errorf("killed by %q", results[0].why)
		}
		return results
	}
	results := judge(l, rows)
	// A mutant with a type error breaks the common program, so each mutant is compiled by itself.
	spoiled := slices.Clone(rows)
	spoiled[3].new = "return 1"
	again := newLaboratory(l.root, t.TempDir())
	again.leastBound = l.leastBound
	judge(again, spoiled)
	if after, err := os.ReadFile(filepath.Join(l.root, "lamp/lamp.go")); err != nil || !bytes.Equal(before, after) {
		t.Error("the source was written to")
	}
	var out bytes.Buffer
	if err := report(&out, results); err == nil || !strings.Contains(err.Error(), "4 rows of the table prove nothing") {
		t.Errorf("report: %v", err)
	}
	for _, words := range []string{"survives lamp/lamp.go: survives", "tried: ./lamp -run TestLit", "killed by a time-out: endless", "3 run, 2 killed, 1 survived (33.3 %", "1 equivalent, 1 not run"} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("the report lacks %q:\n%s", words, out.String())
		}
	}
}

// TestTheShareDecides: the run fails above five survivors in a hundred.
func TestTheShareDecides(t *testing.T) {
	of := func(dead, alive int) []result {
		out := make([]result, dead+alive)
		for i := range out {
			if out[i].verdict = killed; i >= dead {
				out[i].verdict = survived
			}
		}
		return out
	}
	var out bytes.Buffer
	if err := report(&out, of(95, 5)); err != nil {
		t.Error(err)
	}
	if err := report(&out, of(94, 6)); err == nil || !strings.Contains(err.Error(), "more than 5 %") {
		t.Errorf("6 of 100: %v", err)
	}
	if err := report(&out, nil); err != nil {
		t.Error(err)
	}
}
