package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of the directory that a run keeps, beside a file of times for each part of the run.
const (
	failedFile = "failed" // tests that failed at their first try, a line each
	flakyFile  = "flaky"  // tests that passed at their second try, a line each
)

// timed is how long a test or a package took.
type timed struct {
	Name    string
	Seconds float64
	Package bool `json:",omitempty"`
}

// mostShown is how many tests, and how many packages, printTimes prints.
const mostShown = 30

func writeTimes(dir, name string, times []timed) error {
	text, err := json.Marshal(times)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".json"), text, 0o644)
}

// printTimes prints the slowest tests and packages of all parts of the last run. A subtest is a part of its test and not printed.
func printTimes(dir string, out io.Writer) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no times of a run: make test writes them", dir)
	}
	var tests, packages []timed
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var times []timed
		if err := json.Unmarshal(text, &times); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		part := strings.TrimSuffix(filepath.Base(file), ".json")
		for _, t := range times {
			slash := strings.LastIndex(t.Name, "/")
			isSubtest := !t.Package && slash >= 0 && strings.Contains(t.Name[:slash], ".Test")
			t.Name = part + ": " + t.Name
			switch {
			case t.Package:
				packages = append(packages, t)
			case !isSubtest:
				tests = append(tests, t)
			}
		}
	}
	for _, list := range [][]timed{tests, packages} {
		slices.SortStableFunc(list, func(a, b timed) int { return cmp.Compare(b.Seconds, a.Seconds) })
		for _, t := range list[:min(mostShown, len(list))] {
			fmt.Fprintf(out, "%8.2f s  %s\n", t.Seconds, t.Name)
		}
		fmt.Fprintln(out)
	}
	return nil
}

func printFlaky(dir string, out io.Writer) error {
	names, err := readNames(filepath.Join(dir, flakyFile))
	for _, name := range names {
		fmt.Fprintln(out, "flaky:", name)
	}
	return err
}

// readNames reads a file with a name on each line; a file that is not there has none.
func readNames(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

func appendNames(path string, names []string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, strings.Join(names, "\n"))
	return errors.Join(err, f.Close())
}
