package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// enrollNode makes a node whose id is its name.
func enrollNode(t *testing.T, s *store.Store, id string) error {
	return s.Do(t.Context(), func(tx job.Tx) error { return s.InsertNode(tx, &metal.Node{ID: id, ProvisionState: metal.Enroll}) })
}

// copyFile copies a file, as an operator would.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	must.OK(t, os.WriteFile(to, must.Get(os.ReadFile(from))(t), 0o600))
}

// TestFilesAreWatchedWhileServed: each file of the database that is moved, removed, replaced or linked stops all changes before the next one, and
// with words before somebody asks for a change. mended tells whether changes go on without a restart.
func TestFilesAreWatchedWhileServed(t *testing.T) {
	remove := func(suffix string) func(*testing.T, string) {
		return func(t *testing.T, path string) { must.OK(t, os.Remove(path+suffix)) }
	}
	for name, c := range map[string]struct {
		harm, mend func(t *testing.T, path string)
		want       string
	}{
		"moved": {
			func(t *testing.T, path string) { must.OK(t, os.Rename(path, path+".away")) },
			func(t *testing.T, path string) { must.OK(t, os.Rename(path+".away", path)) }, "salvor.db was moved or removed while salvor serves",
		},
		"removed": {remove(""), nil, "salvor.db was moved or removed while salvor serves"},
		"replaced": {
			func(t *testing.T, path string) {
				copyFile(t, path, path+".new")
				must.OK(t, os.Rename(path, path+".away"))
				must.OK(t, os.Rename(path+".new", path))
			},
			func(t *testing.T, path string) { must.OK(t, os.Rename(path+".away", path)) }, "another file was put in the place of",
		},
		"linked": {
			func(t *testing.T, path string) { must.OK(t, os.Link(path, path+".link")) },
			func(t *testing.T, path string) { must.OK(t, os.Remove(path+".link")) }, "2 names (hard links)",
		},
		"log removed":    {remove("-wal"), nil, "salvor.db-wal was moved or removed"},
		"memory removed": {remove("-shm"), nil, "salvor.db-shm was moved or removed"},
		"lock removed":   {remove(".lock"), nil, "salvor.db.lock was moved or removed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.OnSQLite(t)
			path := strings.TrimPrefix(d.URL, "sqlite:")
			s := must.Get(store.Open(t.Context(), d.URL, d.Key, store.Options{NoSync: true}))(t)
			defer func() { _ = s.Close() }()
			must.OK(t, enrollNode(t, s, "before"))
			c.harm(t, path)
			if _, err := s.Incarnation(t.Context()); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("what is asked each second: want problem.Unavailable with %q, got %v", c.want, err)
			}
			if _, why := s.WriteFailure(); !strings.Contains(why, c.want) {
				t.Errorf("why the database takes no changes: want %q, got %q", c.want, why)
			}
			if err := enrollNode(t, s, "meanwhile"); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("a change: want problem.Unavailable with %q, got %v", c.want, err)
			}
			if nodes, err := s.Nodes(t.Context(), nil, metal.NodeFilter{}, record.Page{}); err == nil && len(nodes) != 1 || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("a read: want the one node, or an error with %q, got %d nodes and %v", c.want, len(nodes), err)
			}
			if c.mend == nil {
				return
			}
			c.mend(t, path)
			if err := enrollNode(t, s, "after"); err != nil {
				t.Errorf("a change after the file was put back: %v", err)
			}
			if _, err := s.Incarnation(t.Context()); err != nil {
				t.Errorf("what is asked each second, after the file was put back: %v", err)
			}
		})
	}
}

// TestRemovedLogLosesNothing: what was committed is in the database as soon as the loss of the log is noticed, and the next start finds it.
func TestRemovedLogLosesNothing(t *testing.T) {
	for _, suffixes := range [][]string{{"-wal"}, {"-wal", "-shm"}, {"-shm"}} {
		t.Run(strings.Join(suffixes, ""), func(t *testing.T) {
			d := storetest.OnSQLite(t)
			path := strings.TrimPrefix(d.URL, "sqlite:")
			s := must.Get(store.Open(t.Context(), d.URL, d.Key, store.Options{}))(t)
			defer func() { _ = s.Close() }()
			must.OK(t, enrollNode(t, s, "before"))
			for _, suffix := range suffixes {
				must.OK(t, os.Remove(path+suffix))
			}
			if _, err := s.Incarnation(t.Context()); err == nil {
				t.Fatal("the loss is not noticed")
			}
			killed := storetest.Database{URL: "sqlite:" + filepath.Join(t.TempDir(), "salvor.db"), Key: d.Key}
			copyFile(t, path, strings.TrimPrefix(killed.URL, "sqlite:")) // as kill -9 would leave the file
			must.OK(t, s.Close())
			for name, after := range map[string]storetest.Database{"after an end in order": d, "after a kill": killed} {
				if nodes, err := storetest.Open(t, after).Nodes(t.Context(), nil, metal.NodeFilter{}, record.Page{}); err != nil || len(nodes) != 1 {
					t.Errorf("%s: want the one node, got %d nodes and %v", name, len(nodes), err)
				}
			}
		})
	}
}

// TestReplacedLogIsLeftAlone: another process may use the file that lies in the place of the log, so the database beside that file stays as it is.
func TestReplacedLogIsLeftAlone(t *testing.T) {
	d := storetest.OnSQLite(t)
	path := strings.TrimPrefix(d.URL, "sqlite:")
	s := must.Get(store.Open(t.Context(), d.URL, d.Key, store.Options{}))(t)
	defer func() { _ = s.Close() }()
	must.OK(t, enrollNode(t, s, "before"))
	former := must.Get(os.ReadFile(path))(t)
	copyFile(t, path+"-wal", path+".new")
	must.OK(t, os.Rename(path+"-wal", path+".away"))
	must.OK(t, os.Rename(path+".new", path+"-wal"))
	const want = "another file was put in the place of"
	if err := enrollNode(t, s, "meanwhile"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a change beside another log: want an error with %q, got %v", want, err)
	}
	if now := must.Get(os.ReadFile(path))(t); !bytes.Equal(former, now) {
		t.Errorf("the database file: want the %d bytes of before, got other content of %d bytes", len(former), len(now))
	}
	must.OK(t, os.Rename(path+".away", path+"-wal"))
	if err := enrollNode(t, s, "after"); err != nil {
		t.Errorf("a change after the log was put back: %v", err)
	}
}

// TestHardLinkedFileIsRefused: a second name of the file would have a lock and a log of its own.
func TestHardLinkedFileIsRefused(t *testing.T) {
	d := storetest.OnSQLite(t)
	path := strings.TrimPrefix(d.URL, "sqlite:")
	must.OK(t, storetest.Open(t, d).Close())
	other := filepath.Join(t.TempDir(), "salvor.db")
	must.OK(t, os.Link(path, other))
	const want = "has 2 names (hard links)"
	for _, name := range []string{path, other} {
		if _, err := store.Open(t.Context(), "sqlite:"+name, d.Key, store.Options{NoSync: true}); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), name+" "+want) || !strings.Contains(err.Error(), "find") {
			t.Errorf("open %s: want problem.Invalid with %q and how to find the names, got %v", name, want, err)
		}
		if _, err := store.OpenDatabase(t.Context(), "sqlite:"+name, store.Own); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("own %s: want problem.Invalid with %q, got %v", name, want, err)
		}
		opened(t, "sqlite:"+name, store.Look) // a look changes nothing
	}
	must.OK(t, os.Remove(other))
	storetest.Open(t, d)
}

// TestLinkedPathHasTheLockOfItsFile: two state directories whose salvor.db is one file by a symbolic link serve one process.
func TestLinkedPathHasTheLockOfItsFile(t *testing.T) {
	d := storetest.OnSQLite(t)
	storetest.Open(t, d)
	link := filepath.Join(t.TempDir(), "salvor.db")
	must.OK(t, os.Symlink(strings.TrimPrefix(d.URL, "sqlite:"), link))
	if s, err := store.Open(t.Context(), "sqlite:"+link, d.Key, store.Options{NoSync: true}); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "another salvor process") {
		if s != nil {
			_ = s.Close()
		}
		t.Errorf("open by a link while the file is served: want problem.Conflict, got %v", err)
	}
	must.OK(t, os.Remove(link))
	must.OK(t, os.Symlink(filepath.Join(t.TempDir(), "nothing"), link))
	if _, err := store.Open(t.Context(), "sqlite:"+link, d.Key, store.Options{NoSync: true}); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), link) {
		t.Errorf("open by a link to nothing: want problem.Invalid that names the link, got %v", err)
	}
}
