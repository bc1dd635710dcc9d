package storetest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"salvor/job"
	"salvor/secret"
	"salvor/store"
)

// postgresBlank is a database of PostgreSQL with its tables and nothing in them, made once, with its key.
var postgresBlank = sync.OnceValues(func() (*secret.Key, error) {
	if server.once.Do(func() { server.err = startServer() }); server.err != nil {
		return nil, server.err
	}
	key, err := secret.NewKey(secret.GenerateKey())
	if err != nil {
		return nil, err
	}
	if _, err := server.db.Exec("CREATE DATABASE model_of_tests"); err != nil {
		return nil, err
	}
	s, err := store.Open(context.Background(), serverURL("model_of_tests"), key, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return key, s.Close()
})

// PostgresStore opens a fresh store on the server of this test binary, with the key of its secrets. Its tables are
// copied: a test that needs dozens of stores does not migrate each of them.
func PostgresStore(t testing.TB, versions ...map[job.Kind]int) (*store.Store, *secret.Key) {
	t.Helper()
	if !server.managed {
		t.Fatal("storetest: TestMain must call storetest.Main, which stops PostgreSQL")
	}
	key, err := postgresBlank()
	if err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	name := fmt.Sprintf("t%d", server.names.Add(1))
	if _, err := server.db.Exec("CREATE DATABASE " + name + " TEMPLATE model_of_tests"); err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	t.Cleanup(func() {
		if _, err := server.db.Exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("PostgreSQL for tests: %v", err)
		}
	})
	s, err := store.Open(context.Background(), serverURL(name), key, store.Options{Logger: slog.New(slog.DiscardHandler), MaxConns: 6, Versions: mergeVersions(versions)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, key
}
