// Package conductortest runs the tests of operations on both database engines, and proves that each operation was swept.
package conductortest

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/job"
	"salvor/job/jobtest"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// onPostgres is the name of the tests whose worlds stand on PostgreSQL.
const onPostgres = "on PostgreSQL"

// AbortWithin bounds the time from an abort to its effect. It is 5 s on a machine that has nothing else to do; without the abort it would
// be minutes.
const AbortWithin = 30 * time.Second

// Store gives the store of a test. Its engine is said by the test's name, so that no world has to be told.
func Store(t *testing.T, all []job.Definition) (*store.Store, *secret.Key) {
	t.Helper()
	if strings.Contains(t.Name(), strings.ReplaceAll(onPostgres, " ", "_")) {
		return storetest.PostgresStore(t, job.Versions(all))
	}
	return storetest.SQLite(t, job.Versions(all))
}

// OpenJobs lists the jobs of a subject that have not ended.
func OpenJobs(t *testing.T, st *store.Store, subject job.Subject) (open []job.Job) {
	t.Helper()
	must.OK(t, st.Do(context.Background(), func(tx job.Tx) (err error) {
		open, err = st.Unended(tx, subject)
		return err
	}))
	return open
}

// swept are the kinds of operations that were swept, and readSwept those whose reads were.
var swept, readSwept sync.Map

// Sweep sweeps an operation on SQLite, and by samples on PostgreSQL.
func Sweep(t *testing.T, fresh func(t *testing.T) *jobtest.World) {
	noted := func(t *testing.T) *jobtest.World {
		w := fresh(t)
		swept.Store(w.Kind, true)
		readSwept.Store(w.Kind, true)
		return w
	}
	jobtest.Sweep(t, noted)
	t.Run(onPostgres, func(t *testing.T) { jobtest.Sample(t, 40, noted) })
}

// SweepReads fails each read of an operation once, on SQLite. It is for operations that a Sweep would disturb for too long.
func SweepReads(t *testing.T, fresh func(t *testing.T) *jobtest.World) {
	jobtest.SweepReads(t, func(t *testing.T) *jobtest.World {
		w := fresh(t)
		readSwept.Store(w.Kind, true)
		return w
	})
}

// sweepTest is the begin of a test that sweeps, by the names of such tests.
var sweepTest = regexp.MustCompile(`(?m)^func (Test\w*(?:Sweep|Reads)\w*)\(t \*testing\.T\)`)

// sweepTests lists the names of the tests that sweep, by the source files in a directory.
func sweepTests(dir string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, file := range files {
		source, _ := os.ReadFile(file)
		for _, found := range sweepTest.FindAllSubmatch(source, -1) {
			names = append(names, string(found[1]))
		}
	}
	return names
}

// runsAll tells whether go test runs all tests of these names, given its flags -run, -skip and -list. A slash chooses among subtests, so some of them
// are left out.
func runsAll(names []string, run, skip, list string) bool {
	if list != "" || strings.Contains(run+skip, "/") {
		return false
	}
	if run == "" && skip == "" {
		return true
	}
	chosen, err := regexp.Compile(run)
	if err != nil {
		return false
	}
	skipped, err := regexp.Compile(cmp.Or(skip, "^$"))
	if err != nil {
		return false
	}
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !chosen.MatchString(name) || skipped.MatchString(name) })
}

func flagOf(name string) string { return flag.Lookup(name).Value.String() }

// Main runs the tests of a package, whose source files lie in the working directory as go test has it. It proves in the end, where all sweeps have
// run, that every operation of the package was swept, and that the reads of every definition were failed.
func Main(m *testing.M, all []job.Definition) {
	code := storetest.Main(m)
	if code == 0 && runsAll(sweepTests("."), flagOf("test.run"), flagOf("test.skip"), flagOf("test.list")) {
		for _, d := range all {
			if _, ok := swept.Load(d.Kind); !ok && d.Class == job.Operation {
				fmt.Printf("operation %s was never swept\n", d.Kind)
				code = 1
			}
			if _, ok := readSwept.Load(d.Kind); !ok {
				fmt.Printf("no test fails the reads of %s\n", d.Kind)
				code = 1
			}
		}
	}
	os.Exit(code)
}
