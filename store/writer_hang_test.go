package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"salvor/job"
	"salvor/problem"
)

// TestAHungDiskIsAnswered: while the disk of a SQLite file lets no commit end, both waiting requests get an answer in time. The one
// in the commit learns that its change may have been made, the one behind it that its change was not made. Reads go on. When the
// disk is back, both answers prove true.
func TestAHungDiskIsAnswered(t *testing.T) {
	t.Parallel()
	s := openHere(t)
	w := s.engine.(*sqliteEngine).writer
	hung, thaw := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // as a request has it
	defer cancel()
	began := time.Now()
	var once sync.Once
	var all sync.WaitGroup
	all.Go(func() {
		err := s.Do(ctx, func(tx job.Tx) error {
			w.testHook = func(text string) { // the writer waits for this closure, so nothing races
				if text == "COMMIT" {
					once.Do(func() { close(hung); <-thaw })
				}
			}
			return errors.Join(s.InsertNode(tx, node("inside")), s.Insert(tx, &job.Job{Kind: "rescue", Version: 1, Class: job.Operation, Subject: job.Node("inside")}))
		})
		if !problem.Is(err, problem.Unavailable) || !problem.IsUnconfirmed(err) {
			t.Errorf("in a commit that hangs: %v", err)
		}
	})
	<-hung
	all.Go(func() {
		if err := s.Do(ctx, insertsNode(s, "behind")); !problem.Is(err, problem.Unavailable) || problem.IsUnconfirmed(err) {
			t.Errorf("behind a commit that hangs: %v", err)
		}
	})
	if _, err := s.Node(ctx, nil, "nobody"); !problem.Is(err, problem.NotFound) {
		t.Errorf("a read while a commit hangs: %v", err)
	}
	all.Wait()
	if took := time.Since(began); took > 3*commitTime {
		t.Errorf("answered after %s", took)
	}
	came := time.Now() // nobody waits anew for what hangs already
	if err := s.Do(ctx, insertsNode(s, "late")); !problem.Is(err, problem.Unavailable) || problem.IsUnconfirmed(err) || time.Since(came) > commitTime/2 {
		t.Errorf("who came while the commit hung: %v after %s", err, time.Since(came))
	}
	for len(s.Woken()) > 0 { // what woke before
		<-s.Woken()
	}
	close(thaw)
	select {
	case <-s.Woken():
	case <-time.After(commitTime):
		t.Error("nobody was told of the job when its commit ended")
	}
	if err := s.Do(t.Context(), insertsNode(s, "after")); err != nil {
		t.Error(err)
	}
	if _, err := s.Node(ctx, nil, "inside"); err != nil {
		t.Errorf("what may have been made was not: %v", err)
	}
	if _, err := s.Node(ctx, nil, "behind"); !problem.Is(err, problem.NotFound) {
		t.Errorf("what was told not to be made: %v", err)
	}
}
