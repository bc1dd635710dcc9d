package storetest

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"salvor/job"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// blankKey seals the databases that tests copy. A test that changes the key of its database changes a secret.Key of its own.
var blankKey = sync.OnceValue(secret.GenerateKey)

// newBlankKey makes a secret.Key of the blank database's key.
func newBlankKey(t testing.TB) *secret.Key {
	t.Helper()
	return must.Get(secret.NewKey(blankKey()))(t)
}

// makePostgresBlank makes the database model_of_tests, with its tables and nothing in them, once.
var makePostgresBlank = sync.OnceValue(func() error {
	if server.once.Do(func() { server.err = startServer() }); server.err != nil {
		return server.err
	}
	key, err := secret.NewKey(blankKey())
	if err != nil {
		return err
	}
	if _, err := server.db.Exec("CREATE DATABASE model_of_tests"); err != nil {
		return err
	}
	s, err := store.Open(context.Background(), serverURL("model_of_tests"), key, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return s.Close()
})

// CopiedPostgres makes a PostgreSQL database whose tables are copied. A test that needs dozens of databases does not migrate each of them.
func CopiedPostgres(t testing.TB) Database {
	t.Helper()
	if !server.managed {
		t.Fatal("storetest: TestMain must call storetest.Main, which stops PostgreSQL")
	}
	err := makePostgresBlank()
	if errors.Is(err, errNoServer) && testing.Short() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	// FILE_COPY costs half of what PostgreSQL's default strategy costs, which writes each page of the copy to the log.
	return Database{URL: createDatabase(t, "TEMPLATE model_of_tests STRATEGY FILE_COPY"), Key: newBlankKey(t), Shared: true, Dirs: []string{filepath.Join(server.dir, "data")}, Flush: runCheckpoint}
}

// PostgresStore opens a fresh store on the server of this test binary, with the key of its secrets. Its tables are copied.
func PostgresStore(t testing.TB, versions ...map[job.Kind]int) (*store.Store, *secret.Key) {
	t.Helper()
	d := CopiedPostgres(t)
	s, err := store.Open(context.Background(), d.URL, d.Key, store.Options{Logger: slog.New(slog.DiscardHandler), MaxConns: 6, Versions: mergeVersions(versions)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, d.Key
}
