// Command mutants shows which mistakes the tests notice. Each row of its table is a mistake that could hurt a user. The command
// compiles the row's tests with that mistake by go test's -overlay, so it never writes to the tree. A test must fail. The command
// prints the mutants that survive, and exits with 1 if they are more than 5 %.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

//go:embed mutants.txt
var table string

// maxSurvivors is the share of survivors, in percent, that a run may have.
const maxSurvivors = 5

type options struct {
	ids, rooms []string
	parallel   int
	list       bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string, errs io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("mutants", flag.ContinueOnError)
	f.SetOutput(errs)
	words := func(list *[]string) func(string) error {
		return func(value string) error {
			*list = append(*list, strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })...)
			return nil
		}
	}
	f.Func("id", "run only the mutants with these `IDs` (C07,K05)", words(&o.ids))
	f.Func("package", "run only the mutants of files in these `directories` and below them (conductor,agent/image)", words(&o.rooms))
	f.IntVar(&o.parallel, "p", runtime.NumCPU(), "how many mutants are compiled and tested at once")
	f.BoolVar(&o.list, "list", false, "print the rows and whether their old text is in the sources; run nothing")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; mutants are chosen with -id and -package", f.Arg(0))
	}
	if o.parallel < 1 {
		return o, fmt.Errorf("-p %d: at least one mutant has to be tested at a time", o.parallel)
	}
	for i := range o.rooms {
		o.rooms[i] = filepath.ToSlash(filepath.Clean(o.rooms[i]))
	}
	return o, nil
}

// moduleRoot is the directory that the files and packages of the table start from.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	name := strings.TrimSpace(string(out))
	if filepath.Base(name) != "go.mod" {
		return "", fmt.Errorf("no go.mod here or above; run it in the source tree")
	}
	return filepath.Dir(name), nil
}

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	o, err := parseOptions(args, errs)
	if err != nil {
		return err
	}
	rows, err := parseTable(table)
	if err != nil {
		return fmt.Errorf("mutants.txt: %w", err)
	}
	if rows, err = choose(rows, o.ids, o.rooms); err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if o.list {
		return list(out, root, rows)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := newLaboratory(root, dir)
	if err := l.prepare(rows); err != nil {
		return err
	}
	results := runAll(ctx, l, rows, o.parallel, func(r result) { fmt.Fprintln(out, r.row()) })
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped before all mutants were run: %w", err)
	}
	return report(out, results)
}

// runAll runs the rows, some at once, and returns their results in the order of the table.
func runAll(ctx context.Context, l *laboratory, rows []mutant, parallel int, done func(result)) []result {
	results := make([]result, len(rows))
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := make(chan int)
	for range parallel {
		wg.Go(func() {
			for i := range next {
				r := l.test(ctx, rows[i])
				mu.Lock()
				results[i] = r
				if ctx.Err() == nil {
					done(r)
				}
				mu.Unlock()
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	wg.Wait()
	return results
}

// list prints the rows; a row whose old text is not in its file exactly once is an error.
func list(out io.Writer, root string, rows []mutant) error {
	stale := 0
	for _, m := range rows {
		note := ""
		if _, err := m.mutate(root); err != nil {
			stale++
			note = "; stale: " + err.Error()
		} else if m.equivalent != "" {
			note = "; equivalent: " + m.equivalent
		}
		fmt.Fprintf(out, "%-5s %-32s %s%s\n", m.id, m.file, m.what, note)
	}
	fmt.Fprintf(out, "%d mutants\n", len(rows))
	if stale > 0 {
		return fmt.Errorf("%d of %d mutants are stale: write their old text anew in lab/mutants/mutants.txt", stale, len(rows))
	}
	return nil
}
