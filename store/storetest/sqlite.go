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

// sqliteBlank is the file of a database with its tables and nothing in them, made once, and sealed by blankKey.
var sqliteBlank = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "storetest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	key, err := secret.NewKey(blankKey())
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "s.db")
	s, err := store.Open(context.Background(), "sqlite:"+path, key, store.Options{NoSync: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// CopiedSQLite makes a SQLite database whose tables are copied. A test that needs hundreds of databases does not migrate each of them.
func CopiedSQLite(t testing.TB) Database {
	t.Helper()
	file := must.Get(sqliteBlank())(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	must.OK(t, os.WriteFile(path, file, 0o600))
	return Database{URL: "sqlite:" + path, Key: newBlankKey(t), Dirs: []string{dir}}
}

// SQLite opens a fresh store in a file of the test's own, with the key of its secrets. Its tables are copied.
func SQLite(t testing.TB, versions ...map[job.Kind]int) (*store.Store, *secret.Key) {
	t.Helper()
	d := CopiedSQLite(t)
	s, err := store.Open(context.Background(), d.URL, d.Key, store.Options{NoSync: true, Logger: slog.New(slog.DiscardHandler), Versions: mergeVersions(versions)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, d.Key
}

// mergeVersions are the versions of the operations' lists that new jobs are given; none: the first.
func mergeVersions(versions []map[job.Kind]int) map[job.Kind]int {
	out := map[job.Kind]int{}
	for _, v := range versions {
		maps.Copy(out, v)
	}
	return out
}
