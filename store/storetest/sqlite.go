package storetest

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"salvor/job"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// blankDatabase is a database with its tables and nothing in them, made once, with its key.
type blankDatabase struct {
	file []byte
	key  *secret.Key
}

var template = sync.OnceValues(func() (blankDatabase, error) {
	dir, err := os.MkdirTemp("", "storetest")
	if err != nil {
		return blankDatabase{}, err
	}
	defer os.RemoveAll(dir)
	key, err := secret.NewKey(secret.GenerateKey())
	if err != nil {
		return blankDatabase{}, err
	}
	path := filepath.Join(dir, "s.db")
	s, err := store.Open(context.Background(), "sqlite:"+path, key, store.Options{NoSync: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return blankDatabase{}, err
	}
	if err := s.Close(); err != nil {
		return blankDatabase{}, err
	}
	file, err := os.ReadFile(path)
	return blankDatabase{file, key}, err
})

// SQLite opens a fresh store in a file of the test's own, with the key of its secrets. Its
// tables are copied: a test that needs hundreds of stores does not migrate each of them.
func SQLite(t testing.TB, versions ...map[job.Kind]int) (*store.Store, *secret.Key) {
	t.Helper()
	made := must.Get(template())(t)
	path := filepath.Join(t.TempDir(), "s.db")
	must.OK(t, os.WriteFile(path, made.file, 0o600))
	s, err := store.Open(context.Background(), "sqlite:"+path, made.key, store.Options{NoSync: true, Logger: slog.New(slog.DiscardHandler), Versions: mergeVersions(versions)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, made.key
}

// mergeVersions are the versions of the operations' lists that new jobs are given; none: the first.
func mergeVersions(versions []map[job.Kind]int) map[job.Kind]int {
	out := map[job.Kind]int{}
	for _, v := range versions {
		maps.Copy(out, v)
	}
	return out
}
