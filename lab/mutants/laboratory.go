package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A mutant gets ten times the duration of its clean test, and at least leastBound. A time-out counts as killed, because the same
// test without the mutant was ten times as fast.
const (
	leastBound = 30 * time.Second
	slack      = 10
	// cleanBound is the time limit of a clean run, whose duration is unknown.
	cleanBound = 10 * time.Minute
)

type verdict string

const (
	killed     verdict = "killed"
	survived   verdict = "SURVIVED"
	equivalent verdict = "equivalent"
	notRun     verdict = "not run"
	noCompile  verdict = "does not compile"
	stale      verdict = "STALE"
	red        verdict = "RED CLEAN TEST"
)

// result is the outcome of one row.
type result struct {
	mutant
	verdict  verdict
	why      string // the test that failed, or what is wrong with the row
	timedOut bool
	took     time.Duration
}

// binary names a test program: one package, compiled with tags.
type binary struct{ pkg, tags string }

// cleanTest names the run of some tests of a program without a mutant.
type cleanTest struct {
	binary
	run   string
	short bool
}

type cleanResult struct {
	took    time.Duration
	skipped bool
	err     error
}

// laboratory compiles and runs tests. It does all work that is independent of a mutant once.
type laboratory struct {
	root, dir  string
	leastBound time.Duration
	mu         sync.Mutex
	clean      map[cleanTest]func() cleanResult
	binaries   map[binary]func() (string, error)
	// combined is the overlay with all mutants that can be chosen at run time, and choosable their ids.
	combined  string
	choosable map[string]bool
}

// newLaboratory works on the module at root, and writes below dir alone.
func newLaboratory(root, dir string) *laboratory {
	return &laboratory{root: root, dir: dir, leastBound: leastBound, clean: map[cleanTest]func() cleanResult{}, binaries: map[binary]func() (string, error){}}
}

// prepare writes the sources that hold all mutants together.
func (l *laboratory) prepare(rows []mutant) error {
	sources, ids, err := together(l.root, rows)
	if err != nil {
		return err
	}
	l.choosable = ids
	l.combined, err = l.overlay(sources)
	return err
}

// mutate reads the file of the mutant and returns it with the mistake.
func (m mutant) mutate(root string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	return m.apply(string(source))
}

// test runs one row: first its tests without the mistake, then with it, until one fails.
func (l *laboratory) test(ctx context.Context, m mutant) (r result) {
	r.mutant = m
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	changed, err := m.mutate(l.root)
	if err != nil {
		r.verdict, r.why = stale, err.Error()
		return r
	}
	if m.equivalent != "" {
		r.verdict, r.why = equivalent, m.equivalent
		return r
	}
	r.verdict = survived
	skipped := 0
	for _, pkg := range m.packages {
		t := cleanTest{binary{pkg, m.tags}, m.run, m.short}
		c := l.cleanRun(ctx, t)
		if c.err != nil {
			r.verdict, r.why = red, c.err.Error()
			return r
		}
		if c.skipped {
			skipped++
			continue
		}
		o, err := l.mutantRun(ctx, m, changed, t, max(l.leastBound, slack*c.took))
		if err != nil {
			r.verdict, r.why = noCompile, err.Error()
			return r
		}
		if o.err != nil {
			r.verdict, r.why, r.timedOut = killed, o.failed(), o.timedOut
			return r
		}
	}
	if skipped == len(m.packages) {
		r.verdict, r.why = notRun, "its tests are skipped on this machine: "+strings.Join(m.packages, " ")+" -run "+m.run
	}
	return r
}

// mutantRun runs tests with the mistake. An error means that it does not compile.
func (l *laboratory) mutantRun(ctx context.Context, m mutant, changed string, t cleanTest, bound time.Duration) (outcome, error) {
	if l.choosable[m.id] {
		if program, err := l.program(ctx, t.binary); err == nil {
			return l.runProgram(ctx, program, t, m.id, bound), nil
		}
	}
	overlay, err := l.overlay(map[string]string{m.file: changed})
	if err != nil {
		return outcome{}, err
	}
	program := filepath.Join(filepath.Dir(overlay), "mutant.test")
	if err := l.compile(ctx, t.binary, program, overlay); err != nil {
		return outcome{}, err
	}
	defer os.Remove(program)
	return l.runProgram(ctx, program, t, "", bound), nil
}

// overlay writes changed sources, by path below the root, beside the tree, and the document that has go read them instead.
func (l *laboratory) overlay(sources map[string]string) (string, error) {
	dir, err := os.MkdirTemp(l.dir, "overlay")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range sources {
		file := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(name)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(l.root, name)] = file
	}
	document, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, document, 0o600)
}

// program is the test program of a package with all mutants in it. It runs without a mutant unless the environment names one. An
// error means that some mutant does not compile.
func (l *laboratory) program(ctx context.Context, b binary) (string, error) {
	l.mu.Lock()
	build, ok := l.binaries[b]
	if !ok {
		name := filepath.Join(l.dir, fmt.Sprintf("package%d.test", len(l.binaries)))
		build = sync.OnceValues(func() (string, error) { return name, l.compile(ctx, b, name, l.combined) })
		l.binaries[b] = build
	}
	l.mu.Unlock()
	return build()
}

// compile builds the test program of a package.
func (l *laboratory) compile(ctx context.Context, b binary, program, overlay string) error {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", program}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if b.tags != "" {
		args = append(args, "-tags", b.tags)
	}
	c := exec.CommandContext(ctx, "go", append(args, b.pkg)...)
	c.Dir = l.root
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", b.pkg, err, bytes.TrimSpace(out))
	}
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%s has no tests", b.pkg)
	}
	return nil
}

// cleanRun runs tests without a mutant, once for all rows that name them.
func (l *laboratory) cleanRun(ctx context.Context, t cleanTest) cleanResult {
	l.mu.Lock()
	result, ok := l.clean[t]
	if !ok {
		result = sync.OnceValue(func() cleanResult { return l.runClean(ctx, t) })
		l.clean[t] = result
	}
	l.mu.Unlock()
	return result()
}

func (l *laboratory) runClean(ctx context.Context, t cleanTest) cleanResult {
	program, err := l.program(ctx, t.binary)
	if err != nil { // some mutant does not compile; the separate compilation shows which one
		dir, err := os.MkdirTemp(l.dir, "clean")
		if err != nil {
			return cleanResult{err: err}
		}
		program = filepath.Join(dir, "clean.test")
		if err := l.compile(ctx, t.binary, program, ""); err != nil {
			return cleanResult{err: err}
		}
	}
	o := l.runProgram(ctx, program, t, "", cleanBound)
	switch passed, skips := o.count("PASS"), o.count("SKIP"); {
	case o.err != nil:
		return cleanResult{err: fmt.Errorf("%s -run %s fails without the mutant: %s", t.pkg, t.run, o.failed())}
	case passed+skips == 0:
		return cleanResult{err: fmt.Errorf("%s has no test that -run %s names", t.pkg, t.run)}
	default:
		return cleanResult{took: o.took, skipped: passed == 0}
	}
}

// outcome is the output of a test program and the way in which it ended.
type outcome struct {
	text     string
	took     time.Duration
	timedOut bool
	err      error
}

var verdictLine = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)

// count counts the tests, without their subtests, that ended with this word.
func (o outcome) count(word string) int {
	n := 0
	for _, line := range verdictLine.FindAllStringSubmatch(o.text, -1) {
		if line[1] == word {
			n++
		}
	}
	return n
}

// failed names the test that failed first. If none did, it says how the program ended.
func (o outcome) failed() string {
	for _, line := range verdictLine.FindAllStringSubmatch(o.text, -1) {
		if line[1] == "FAIL" {
			return line[2]
		}
	}
	if o.timedOut {
		return "time-out"
	}
	for line := range strings.Lines(o.text) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return strings.TrimSpace(line)
		}
	}
	return o.err.Error()
}

// runProgram runs a test program in its package's directory, with the mutant if one is named. It ends at the first failure, and all
// processes that it started end with it.
func (l *laboratory) runProgram(ctx context.Context, program string, t cleanTest, mutant string, bound time.Duration) outcome {
	args := []string{"-test.v", "-test.failfast", "-test.run", t.run, "-test.timeout", bound.String()}
	if t.short {
		args = append(args, "-test.short")
	}
	// The program stops itself at its time limit; it is killed if it cannot.
	limited, cancel := context.WithTimeout(ctx, bound+10*time.Second)
	defer cancel()
	c := exec.CommandContext(limited, program, args...)
	c.Dir = filepath.Join(l.root, t.pkg)
	c.Env = append(os.Environ(), mutantVariable+"="+mutant)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	var text bytes.Buffer
	c.Stdout, c.Stderr = &text, &text
	began := time.Now()
	err := c.Run()
	o := outcome{text: text.String(), took: time.Since(began), err: err}
	o.timedOut = limited.Err() != nil || strings.Contains(o.text, "panic: test timed out after")
	return o
}
