package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/test/must"
)

// tests is a Go module whose tests fail as their names say.
const tests = `package probe

import (
	"os"
	"testing"
)

// once fails the first time, and passes afterwards.
func once(t *testing.T) {
	if os.Mkdir(t.Name()+".tried", 0o755) == nil {
		t.Error("an unlucky first try")
	}
}

func TestPasses(t *testing.T)  { t.Log("words of a test that passes") }
func TestSkipped(t *testing.T) { t.Skip("the reason to skip") }
func TestOnceA(t *testing.T)   { t.Run("inner", func(t *testing.T) { if os.Mkdir("A.tried", 0o755) == nil { t.Error("an unlucky first try") } }) }
func TestOnceB(t *testing.T)   { once(t) }
func TestOnceC(t *testing.T)   { once(t) }
func TestOnceD(t *testing.T)   { once(t) }
func TestAlways(t *testing.T)  { t.Error("a real fault") }
func TestDies(t *testing.T) {
	if os.Mkdir("dies.tried", 0o755) == nil {
		os.Exit(3)
	}
}
`

// probe runs the runner over the tests that the expression chooses, and returns the error's text and the output.
func probe(t *testing.T, dir, expression string, options ...string) (string, string) {
	t.Helper()
	var out bytes.Buffer
	args := append([]string{"-dir", filepath.Join(dir, "kept")}, options...)
	err := runTests(t.Context(), append(args, "--", "-count", "1", "-run", expression, "--", "."), &out)
	return fmt.Sprint(err), out.String()
}

func newProbe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module probe\n\ngo 1.26\n"), 0o644))
	must.OK(t, os.WriteFile(filepath.Join(dir, "probe_test.go"), []byte(tests), 0o644))
	t.Chdir(dir)
	t.Setenv("SALVOR_BESIDE", "") // make ci runs these tests beside others
	return dir
}

func flakyOf(t *testing.T, dir string) string {
	t.Helper()
	var out bytes.Buffer
	must.OK(t, runTests(t.Context(), []string{"-dir", filepath.Join(dir, "kept"), "-flaky"}, &out))
	return out.String()
}

func TestFailedTestRunsAgainAlone(t *testing.T) {
	dir := newProbe(t)
	err, out := probe(t, dir, "Passes|Skipped|OnceA", "-again")
	if err != "<nil>" {
		t.Fatalf("a test that passes at its second try: want no error, got %s\n%s", err, out)
	}
	if !strings.Contains(out, "an unlucky first try") {
		t.Errorf("want the output of the first failure, got:\n%s", out)
	}
	if strings.Contains(out, "words of a test that passes") {
		t.Errorf("want no output of a test that passes, got:\n%s", out)
	}
	if !strings.Contains(out, "skip\tprobe.TestSkipped\t") || !strings.Contains(out, "the reason to skip") {
		t.Errorf("want the skipped test with its reason, got:\n%s", out)
	}
	if got := flakyOf(t, dir); got != "flaky: probe.TestOnceA\n" {
		t.Errorf("flaky tests: want probe.TestOnceA alone, got %q", got)
	}
}

// TestSecondTryAwaitsItsNeighbours: a failed test runs again when the tests have ended that run beside it, which hold a lock until then.
func TestSecondTryAwaitsItsNeighbours(t *testing.T) {
	dir := newProbe(t)
	beside := filepath.Join(dir, "beside")
	t.Setenv("SALVOR_BESIDE", beside)
	neighbour := must.Get(os.Create(beside))(t)
	must.OK(t, syscall.Flock(int(neighbour.Fd()), syscall.LOCK_EX))
	at := must.Get(neighbour.Stat())(t).Sys().(*syscall.Stat_t)
	waiting := regexp.MustCompile(fmt.Sprintf(`-> FLOCK .*:%d `, at.Ino))
	done := make(chan string)
	go func() {
		err, _ := probe(t, dir, "OnceA", "-again")
		done <- err
	}()
	for !waiting.Match(must.Get(os.ReadFile("/proc/locks"))(t)) {
		select {
		case err := <-done:
			t.Fatalf("want the second try to wait for the lock, got an end with the error %s", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	must.OK(t, neighbour.Close())
	if err := <-done; err != "<nil>" {
		t.Errorf("when the neighbours have ended: want no error, got %s", err)
	}
}

func TestUnitTestNeverRunsAgain(t *testing.T) {
	dir := newProbe(t)
	if err, out := probe(t, dir, "OnceA"); !strings.Contains(err, "probe.TestOnceA") {
		t.Errorf("without -again: want an error that names probe.TestOnceA, got %s\n%s", err, out)
	}
	if got := flakyOf(t, dir); got != "" {
		t.Errorf("flaky tests: want none, got %q", got)
	}
}

func TestRealFaultFailsTwice(t *testing.T) {
	err, out := probe(t, newProbe(t), "Always|OnceA", "-again")
	if !strings.Contains(err, "probe.TestAlways failed twice") {
		t.Errorf("want an error that names probe.TestAlways, got %s\n%s", err, out)
	}
}

// TestFourthFailureEndsTheRun: the tests that failed in all parts of a run count together.
func TestFourthFailureEndsTheRun(t *testing.T) {
	dir := newProbe(t)
	if err, out := probe(t, dir, "OnceA|OnceB|OnceC", "-again"); err != "<nil>" {
		t.Fatalf("three failures: want no error, got %s\n%s", err, out)
	}
	err, out := probe(t, dir, "OnceD", "-again")
	if !strings.Contains(err, "at most 3 are run again") || !strings.Contains(err, "TestOnceD") || !strings.Contains(err, "TestOnceA") {
		t.Errorf("a fourth failure in the next part: want an error that names all four, got %s\n%s", err, out)
	}
	if strings.Contains(out, "runs once more") {
		t.Errorf("a fourth failure ran again:\n%s", out)
	}
}

// TestProgramThatDies: a test program that ends in the middle of a test leaves out the tests behind it, so the whole package runs again.
func TestProgramThatDies(t *testing.T) {
	dir := newProbe(t)
	if err, out := probe(t, dir, "Dies|Passes", "-again"); err != "<nil>" {
		t.Fatalf("a program that dies once: want no error, got %s\n%s", err, out)
	}
	if got := flakyOf(t, dir); got != "flaky: probe\n" {
		t.Errorf("flaky tests: want the package, got %q", got)
	}
}

// write adds a file of tests to the probe.
func write(t *testing.T, name, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(name, []byte("package probe\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\n"+text), 0o644))
}

// TestProofsOfABugAreRed: a panic hides the tests behind it, and a race is a bug whenever it is seen, so neither has a second try.
func TestProofsOfABugAreRed(t *testing.T) {
	dir := newProbe(t)
	write(t, "panic_test.go", `func TestPanicA(t *testing.T) { if os.Mkdir("panic.tried", 0o755) == nil { panic("once") } }
func TestPanicZ(t *testing.T) { t.Error("a real fault") }
func TestPassesBesideARace(t *testing.T) { os.Stdout.WriteString("WARNING: DATA RACE\n") }
func TestRace(t *testing.T) { if os.Mkdir("race.tried", 0o755) == nil { os.Stdout.WriteString("WARNING: DATA RACE\n"); t.Error("race detected") } }
`)
	for _, c := range []struct{ tests, want string }{{"PanicA|PanicZ", "panic: once"}, {"TestRace", "DATA RACE"}, {"BesideARace|OnceB", "DATA RACE"}} {
		err, out := probe(t, dir, c.tests, "-again")
		if !strings.Contains(err, c.want) || strings.Contains(out, "once more") {
			t.Errorf("%s: want an error that names %q and no second try, got %s\n%s", c.tests, c.want, err, out)
		}
	}
	if got := flakyOf(t, dir); got != "" {
		t.Errorf("flaky tests: want none, got %q", got)
	}
}

// TestASkipAcquitsNobody: a test that skips at its second try, because of what its first try left, has not passed.
func TestASkipAcquitsNobody(t *testing.T) {
	dir := newProbe(t)
	write(t, "skip_test.go", `func TestSkipsLater(t *testing.T) { if os.Mkdir("skip.tried", 0o755) == nil { t.Fatal("a fault") }; t.Skip("what the first try left is in the way") }
`)
	if err, out := probe(t, dir, "SkipsLater", "-again"); !strings.Contains(err, "probe.TestSkipsLater did not pass at the second try") {
		t.Errorf("want an error that names probe.TestSkipsLater, got %s\n%s", err, out)
	}
}

// TestTwoReasonsToFail: a package that fails outside of its tests too runs again as a whole.
func TestTwoReasonsToFail(t *testing.T) {
	dir := newProbe(t)
	write(t, "main_test.go", `func TestMain(m *testing.M) {
	if m.Run(); os.Getenv("LEAKS") != "" { os.Stdout.WriteString("a leak of another test\n") }
	os.Exit(1)
}
`)
	t.Setenv("LEAKS", "yes")
	if err, out := probe(t, dir, "OnceA", "-again"); !strings.Contains(err, "probe failed twice") {
		t.Errorf("want an error of the whole package, got %s\n%s", err, out)
	}
}

// TestNewRunForgetsFormerOnes: what failed in a run of another day takes nobody's second try.
func TestNewRunForgetsFormerOnes(t *testing.T) {
	dir := newProbe(t)
	if err, out := probe(t, dir, "OnceA|OnceB|OnceC", "-again"); err != "<nil>" {
		t.Fatalf("three failures: want no error, got %s\n%s", err, out)
	}
	var out bytes.Buffer
	must.OK(t, runTests(t.Context(), []string{"-dir", filepath.Join(dir, "kept"), "-new"}, &out))
	if err, out := probe(t, dir, "OnceD", "-again"); err != "<nil>" {
		t.Errorf("a first failure of a new run: want no error, got %s\n%s", err, out)
	}
	if got := flakyOf(t, dir); got != "flaky: probe.TestOnceD\n" {
		t.Errorf("flaky tests of the new run: want probe.TestOnceD alone, got %q", got)
	}
}

func TestBrokenPackageIsNotRunAgain(t *testing.T) {
	dir := newProbe(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "broken_test.go"), []byte("package probe\n\nvar x int = \"\"\n"), 0o644))
	err, out := probe(t, dir, ".", "-again")
	if !strings.Contains(err, "does not compile") || strings.Contains(out, "once more") {
		t.Errorf("a package that does not compile: want an error that says so and no second try, got %s\n%s", err, out)
	}
}

func TestTimes(t *testing.T) {
	dir := newProbe(t)
	if err, out := probe(t, dir, "Passes|OnceA", "-again", "-name", "stories"); err != "<nil>" {
		t.Fatalf("run: %s\n%s", err, out)
	}
	var out bytes.Buffer
	must.OK(t, runTests(t.Context(), []string{"-dir", filepath.Join(dir, "kept"), "-times"}, &out))
	for _, want := range []string{"stories: probe.TestPasses\n", "stories: probe.TestOnceA\n", "stories: probe\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("times: want a line of %q, got:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "/inner") {
		t.Errorf("times: want no subtests, got:\n%s", out.String())
	}
}
