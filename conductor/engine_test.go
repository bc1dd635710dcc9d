package conductor

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"salvor/job"
	"salvor/job/jobtest"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
)

// onPostgres is the name of the tests whose worlds stand on PostgreSQL.
const onPostgres = "on PostgreSQL"

// standOn gives the store that a world stands on. Which engine it is of is said by the test's name, so that no world has to be told.
func standOn(t *testing.T) (*store.Store, *secret.Key) {
	t.Helper()
	if strings.Contains(t.Name(), strings.ReplaceAll(onPostgres, " ", "_")) {
		return storetest.PostgresStore(t, Versions())
	}
	return storetest.SQLite(t, Versions())
}

// swept are the kinds of operations that were swept.
var swept sync.Map

// sweep sweeps an operation on SQLite, and by samples on PostgreSQL.
func sweep(t *testing.T, fresh func(t *testing.T) *jobtest.World) {
	noted := func(t *testing.T) *jobtest.World {
		w := fresh(t)
		swept.Store(w.Kind, true)
		return w
	}
	jobtest.Sweep(t, noted)
	t.Run(onPostgres, func(t *testing.T) { jobtest.Sample(t, 40, noted) })
}

// TestMain proves in the end, where all tests have run, that every operation was swept.
func TestMain(m *testing.M) {
	code := storetest.Main(m)
	if run := flag.Lookup("test.run"); code == 0 && run.Value.String() == "" {
		for _, d := range New(Config{}).Definitions() {
			if _, ok := swept.Load(d.Kind); !ok && d.Class == job.Operation {
				fmt.Printf("operation %s was never swept\n", d.Kind)
				code = 1
			}
		}
	}
	os.Exit(code)
}
