package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// test is a test function of a package; without a name it is the whole package.
type test struct{ pkg, name string }

func (t test) String() string {
	if t.name == "" {
		return t.pkg
	}
	return t.pkg + "." + t.name
}

func namesOf(tests []test) (out []string) {
	for _, t := range tests {
		out = append(out, t.String())
	}
	return out
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
	// ImportPath and FailedBuild name a package that does not compile.
	ImportPath  string
	FailedBuild string
}

// suite is one run of go test.
type suite struct {
	out io.Writer
	// limited: more failed tests than mayFail end the run at once. Otherwise the run goes on to its end.
	limited bool
	mayFail int

	passed []test  // tests and packages
	failed []test  // in the order of their failures
	proof  string  // the package whose output proves a bug: a data race, a panic, a fatal error
	broken string  // the package that does not compile
	times  []timed // of tests and of packages that ended

	packages map[string]*packageRun
	stop     func()
}

// packageRun is what is known of a package while its tests run.
type packageRun struct {
	said    strings.Builder             // what the package prints outside of its tests
	tests   map[string]*strings.Builder // what each test printed that has not passed
	order   []string
	running map[string]bool
	proof   string // a line that proves a bug, whichever test printed it
}

// run runs go test with the arguments. An error says that a test failed, or that go test itself did.
func (s *suite) run(ctx context.Context, args []string) error {
	s.packages = map[string]*packageRun{}
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Env = os.Environ()
	if slices.Contains(args, "-race") {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1") // the race detector is linked by the C compiler
	}
	// A group of its own lets the end of a run reach the test programs too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := s.read(pipe)
	err = cmd.Wait()
	switch {
	case s.broken != "":
		return fmt.Errorf("%s does not compile", s.broken)
	case len(s.failed) > 0:
		return fmt.Errorf("%d tests failed: %s", len(s.failed), strings.Join(namesOf(s.failed), ", "))
	}
	return errors.Join(err, readErr)
}

func (s *suite) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				s.take(e)
			} else {
				_, _ = s.out.Write(line) // a line that go test prints outside of its events
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *suite) take(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(s.out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := s.packages[e.Package]
	if p == nil {
		p = &packageRun{tests: map[string]*strings.Builder{}, running: map[string]bool{}}
		s.packages[e.Package] = p
	}
	if e.Test == "" {
		s.takePackage(p, e)
		return
	}
	switch e.Action {
	case "run":
		p.running[e.Test] = true
		p.order = append(p.order, e.Test)
		p.tests[e.Test] = &strings.Builder{}
	case "output":
		p.judge(e.Output)
		if said := p.tests[e.Test]; said != nil && !isProgress(e.Output) {
			said.WriteString(e.Output)
		}
	case "pass", "skip", "fail":
		delete(p.running, e.Test)
		s.times = append(s.times, timed{Name: test{e.Package, e.Test}.String(), Seconds: e.Elapsed})
		if e.Action == "fail" {
			s.fail(test{e.Package, e.Test})
			return
		}
		if e.Action == "skip" {
			fmt.Fprintf(s.out, "skip\t%s.%s\t%s\n", e.Package, e.Test, skipReason(p.tests[e.Test]))
		} else {
			s.passed = append(s.passed, test{e.Package, e.Test})
		}
		delete(p.tests, e.Test)
	}
}

// fail notes a failed test. A test that has subtests counts once, by its own name.
func (s *suite) fail(t test) {
	if strings.Contains(t.name, "/") {
		return
	}
	s.failed = append(s.failed, t)
	if s.limited && len(s.failed) > s.mayFail {
		s.stop()
	}
}

// takePackage takes an event of the package itself. A passed package is told in one line, a failed one with all that its failed tests
// printed.
func (s *suite) takePackage(p *packageRun, e event) {
	switch e.Action {
	case "output":
		p.judge(e.Output)
		p.said.WriteString(e.Output)
		return
	case "pass", "skip", "fail":
	default:
		return
	}
	s.times = append(s.times, timed{Name: e.Package, Seconds: e.Elapsed, Package: true})
	delete(s.packages, e.Package)
	if e.Action != "fail" {
		s.passed = append(s.passed, test{pkg: e.Package})
		for line := range strings.Lines(p.said.String()) {
			if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "?") || strings.HasPrefix(line, "testing: warning") {
				fmt.Fprint(s.out, line)
			}
		}
		return
	}
	if e.FailedBuild != "" {
		s.broken = e.FailedBuild
	}
	for _, name := range p.order {
		if said := p.tests[name]; said != nil {
			fmt.Fprint(s.out, said.String())
		}
	}
	if p.proof != "" && s.proof == "" {
		s.proof = e.Package + ": " + p.proof
	}
	fmt.Fprint(s.out, p.said.String())
	s.failUnended(p, e)
}

// judge notes a line that proves a bug, if the package fails: no second try acquits it. Go prints a race in the output of whichever test
// runs, which may pass. What a test logs is indented, so it is no proof.
func (p *packageRun) judge(line string) {
	for _, sign := range []string{"panic:", "fatal error:", "WARNING: DATA RACE"} {
		if strings.HasPrefix(line, sign) && p.proof == "" {
			p.proof = strings.TrimSpace(line)
		}
	}
}

// failUnended counts a package as failed whose program ended in the middle of a test, or failed outside of its tests, perhaps beside a
// failed test. Which tests such a program left out is not known, so the whole package is what failed.
func (s *suite) failUnended(p *packageRun, e event) {
	isOf := func(t test) bool { return t.pkg == e.Package }
	if e.FailedBuild != "" || len(p.running) == 0 && slices.ContainsFunc(s.failed, isOf) && !saysMore(p.said.String()) {
		return
	}
	s.failed = slices.DeleteFunc(s.failed, isOf)
	s.fail(test{pkg: e.Package})
}

// saysMore tells whether a failed package printed more, outside of its tests, than go test prints about failed tests.
func saysMore(said string) bool {
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if line != "" && line != "FAIL" && line != "PASS" && !strings.HasPrefix(line, "exit status ") && !strings.HasPrefix(line, "FAIL\t") {
			return true
		}
	}
	return false
}

// isProgress matches the lines that go test adds for -v.
func isProgress(line string) bool {
	for _, prefix := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// skipReason gives the last line that a test printed before its result: the reason why it was skipped.
func skipReason(said *strings.Builder) string {
	if said == nil {
		return ""
	}
	last := ""
	for line := range strings.Lines(said.String()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") {
			last = line
		}
	}
	return last
}
