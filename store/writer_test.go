package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/test/must"
)

func node(id string) *metal.Node { return &metal.Node{ID: id, ProvisionState: metal.Enroll} }

// together runs closures so that one commit serves them all: the first holds the
// writer until the others have queued up.
func together(t *testing.T, s *Store, fns ...func(job.Tx) error) []error {
	t.Helper()
	w := s.engine.(*sqliteEngine).writer
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	holding := make(chan struct{})
	for i, fn := range fns {
		wg.Go(func() {
			errs[i] = s.Do(context.Background(), func(tx job.Tx) error {
				if i == 0 {
					close(holding)
					for end := time.Now().Add(time.Minute); len(w.queue[urgentClass]) < len(fns)-1; time.Sleep(time.Millisecond) {
						if time.Now().After(end) {
							return errors.New("the others never queued up")
						}
					}
				}
				return fn(tx)
			})
		})
		<-holding
	}
	wg.Wait()
	return errs
}

func insertsNode(s *Store, id string) func(job.Tx) error {
	return func(tx job.Tx) error { return s.InsertNode(tx, node(id)) }
}

// TestFailedCommit: when a commit fails, everybody in it is told so and nothing of it stays.
func TestFailedCommit(t *testing.T) {
	s := openHere(t)
	errs := together(t, s, insertsNode(s, "a"), insertsNode(s, "b"), func(j job.Tx) error {
		tx, err := s.tx(j)
		if err != nil {
			return err
		}
		// A rule that is looked at no sooner than at the commit.
		if _, err := tx.exec(`PRAGMA defer_foreign_keys = ON`); err != nil {
			return err
		}
		return s.InsertPort(tx, &metal.Port{Record: record.Record{ID: "p"}, NodeID: "ghost", Address: "x"})
	}, func(job.Tx) error { return errors.New("own failure") })
	for i, err := range errs[:3] {
		if err == nil || !strings.Contains(err.Error(), "commit") {
			t.Errorf("caller %d was told %v", i, err)
		}
	}
	if errs[3] == nil || errs[3].Error() != "own failure" {
		t.Errorf("the caller that failed by itself was told %v", errs[3])
	}
	for _, id := range []string{"a", "b"} {
		if _, err := s.Node(t.Context(), nil, id); !problem.Is(err, problem.NotFound) {
			t.Errorf("node %s: %v", id, err)
		}
	}
	if err := s.Do(t.Context(), insertsNode(s, "a")); err != nil {
		t.Errorf("the next transaction: %v", err)
	}
}

// TestLostTransaction: when the engine itself has ended the transaction under a
// closure, those before it in the batch are told, and the next batch works.
func TestLostTransaction(t *testing.T) {
	s := openHere(t)
	errs := together(t, s, insertsNode(s, "a"), func(j job.Tx) error {
		tx, err := s.tx(j)
		if err == nil {
			_, err = tx.exec(`ROLLBACK`)
		}
		return errors.Join(err, errors.New("disk trouble"))
	})
	if errs[0] == nil || errs[1] == nil {
		t.Fatalf("told %v", errs)
	}
	if _, err := s.Node(t.Context(), nil, "a"); !problem.Is(err, problem.NotFound) {
		t.Fatal(err)
	}
	must.OK(t, s.Do(t.Context(), insertsNode(s, "a")))
}

// TestOwnSavepoints: in one commit a failing closure takes nothing with it but its own.
func TestOwnSavepoints(t *testing.T) {
	s := openHere(t)
	errs := together(t, s, insertsNode(s, "a"), func(tx job.Tx) error {
		return errors.Join(s.InsertNode(tx, node("b")), errors.New("no"))
	}, insertsNode(s, "c"))
	if errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Fatalf("told %v", errs)
	}
	all, err := s.Nodes(t.Context(), nil, metal.NodeFilter{}, record.Page{})
	if err != nil || len(all) != 2 {
		t.Fatalf("%d nodes: %v", len(all), err)
	}
}

// TestClose: a transaction that has begun ends well, those after it are refused, nobody hangs.
func TestClose(t *testing.T) {
	s := openHere(t)
	begun, closing := make(chan struct{}), make(chan error, 1)
	during := make(chan error, 1)
	go func() {
		during <- s.Do(context.Background(), func(tx job.Tx) error {
			close(begun)
			go func() { closing <- s.Close() }()
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				select {
				case <-s.engine.(*sqliteEngine).writer.quit:
					return s.InsertNode(tx, node("a"))
				default:
				}
				if time.Now().After(end) {
					return errors.New("never closing")
				}
			}
		})
	}()
	<-begun
	must.OK(t, <-during)
	must.OK(t, <-closing)
	err := s.Do(t.Context(), insertsNode(s, "b"))
	if !problem.Is(err, problem.Unavailable) {
		t.Fatalf("after the close: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "odd name?#%41.db")
	open := func(url string) (*Store, error) { return Open(t.Context(), url, key, Options{NoSync: true}) }
	s := must.Get(open("sqlite:" + path))(t)
	if _, err := open("sqlite:" + path); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "another salvor process uses it") {
		t.Errorf("opened twice: %v", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(f.Name(), "odd name?#%41.db") {
			t.Errorf("%s: mode %v %v", f.Name(), info.Mode(), err)
		}
	}
	must.OK(t, s.Close())
	s, err = open("sqlite:" + path)
	if err != nil {
		t.Fatalf("opened after the close: %v", err)
	}
	_ = s.Close()
	rubbish := filepath.Join(dir, "rubbish.db")
	must.OK(t, os.WriteFile(rubbish, []byte(strings.Repeat("no database ", 1000)), 0o600))
	for _, url := range []string{"", "mysql://x", "sqlite:", "sqlite::memory:", "sqlite:" + dir, "sqlite:" + rubbish, "sqlite:/nowhere/at/all.db",
		"postgres://u:hunter2@127.0.0.1:1/x?connect_timeout=1", "postgres://u:hunter2@h:port/x"} {
		_, err := open(url)
		if err == nil || strings.Contains(fmt.Sprintf("%+v", err), "hunter2") {
			t.Errorf("open %q: %v", url, err)
		}
	}
}
