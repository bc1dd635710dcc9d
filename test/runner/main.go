// Command runner runs go test for make and CI. It prints what go test prints without -v, and keeps how long each test took for
// "make times". With -again it runs a test that failed once more, alone, because a test with real machines may fail by the load
// of its neighbours. SALVOR_BESIDE names a file on which tests that run beside hold a lock until they end. At most three tests of a CI run get a second try: a fourth failure ends the run at once. Nothing acquits a data race, a
// panic or a fatal error. -new forgets what former runs left.
//
//	runner [-name NAME] [-again] -- GO-TEST-FLAGS... -- PACKAGES...
//	runner -new
//	runner -times
//	runner -flaky
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxAgain is how many tests of one CI run may fail and be run again.
const maxAgain = 3

type options struct {
	dir                 string
	name                string
	again, times, flaky bool
	fresh               bool
	flags, packages     []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := runTests(ctx, os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("runner", flag.ContinueOnError)
	f.StringVar(&o.dir, "dir", filepath.Join("build", "tests"), "the `directory` that keeps times and failed tests between the parts of a run")
	f.StringVar(&o.name, "name", "tests", "the `name` of this part of the run, which names its file of times")
	f.BoolVar(&o.again, "again", false, "run a failed test once more, alone")
	f.BoolVar(&o.times, "times", false, "print the slowest tests and packages of the last run; run nothing")
	f.BoolVar(&o.flaky, "flaky", false, "print the tests of the last run that passed at their second try; run nothing")
	f.BoolVar(&o.fresh, "new", false, "forget the times and the failed tests of former runs; run nothing")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	rest := f.Args()
	if o.times || o.flaky || o.fresh {
		if len(rest) > 0 {
			return o, fmt.Errorf("unexpected argument %q beside -new, -times and -flaky", rest[0])
		}
		return o, nil
	}
	split := slices.Index(rest, "--")
	if split < 0 || split == len(rest)-1 {
		return o, errors.New("no packages are given; usage: runner -name NAME -- GO-TEST-FLAGS -- PACKAGES")
	}
	o.flags, o.packages = rest[:split], rest[split+1:]
	return o, nil
}

func runTests(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	switch {
	case o.fresh:
		return os.RemoveAll(o.dir)
	case o.times:
		return printTimes(o.dir, out)
	case o.flaky:
		return printFlaky(o.dir, out)
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	earlier, err := readNames(filepath.Join(o.dir, failedFile))
	if err != nil {
		return err
	}
	first := &suite{out: out}
	if o.again {
		first.limited, first.mayFail = true, maxAgain-len(earlier)
	}
	err = first.run(ctx, slices.Concat(o.flags, o.packages))
	if writeErr := writeTimes(o.dir, o.name, first.times); writeErr != nil && err == nil {
		err = writeErr
	}
	if err == nil || !o.again || len(first.failed) == 0 || first.broken != "" || ctx.Err() != nil {
		return err
	}
	if first.proof != "" {
		return fmt.Errorf("%s; a second try would prove nothing: %w", first.proof, err)
	}
	if len(first.failed) > first.mayFail {
		return fmt.Errorf("%d tests of this run failed, and at most %d are run again: %s", len(earlier)+len(first.failed), maxAgain,
			strings.Join(append(earlier, namesOf(first.failed)...), ", "))
	}
	if err := appendNames(filepath.Join(o.dir, failedFile), namesOf(first.failed)); err != nil {
		return err
	}
	if err := awaitBeside(os.Getenv("SALVOR_BESIDE")); err != nil {
		return err
	}
	return runAgain(ctx, o, first.failed, out)
}

// awaitBeside waits until the tests have ended that make ci runs beside these: they hold a lock on the file. Without a file, none run.
func awaitBeside(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

// runAgain runs each failed test alone. A test that passes is noted as flaky; the first test that fails again ends the run.
func runAgain(ctx context.Context, o options, failed []test, out io.Writer) error {
	for _, t := range failed {
		fmt.Fprintf(out, "%s failed; it runs once more, alone\n", t)
		args := append(slices.Clone(o.flags), "-count", "1")
		if t.name != "" {
			args = append(args, "-run", "^"+t.name+"$")
		}
		second := &suite{out: out}
		if err := second.run(ctx, append(args, t.pkg)); err != nil {
			return fmt.Errorf("%s failed twice: %w", t, err)
		}
		if !slices.Contains(second.passed, t) {
			return fmt.Errorf("%s did not pass at the second try: it was skipped, or did not run", t)
		}
		if err := appendNames(filepath.Join(o.dir, flakyFile), []string{t.String()}); err != nil {
			return err
		}
	}
	return nil
}
