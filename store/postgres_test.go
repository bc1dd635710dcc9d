package store_test

import (
	"errors"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// TestPostgresRunsAgain: a closure whose row somebody changed between its look and
// its write sees the change in a second run, with its records as they were.
func TestPostgresRunsAgain(t *testing.T) {
	d := storetest.CopiedPostgres(t)
	a, b := storetest.Open(t, d), storetest.Open(t, d)
	n := &metal.Node{ID: "n", ProvisionState: metal.Enroll}
	must.OK(t, a.Do(t.Context(), func(tx job.Tx) error { return a.InsertNode(tx, n) }))
	runs := 0
	err := a.Do(t.Context(), func(tx job.Tx) error {
		runs++
		seen, err := a.Node(t.Context(), tx, "n")
		if err != nil {
			return err
		}
		if runs == 1 {
			err := b.Do(t.Context(), func(tx job.Tx) error {
				other := seen.Clone()
				other.Description = "b"
				return b.SaveNode(tx, other)
			})
			if err != nil {
				return errors.Join(errors.New("the other store"), err)
			}
		}
		seen.Owner = "a"
		return a.SaveNode(tx, seen)
	})
	if err != nil || runs != 2 {
		t.Fatalf("%d runs: %v", runs, err)
	}
	got, err := b.Node(t.Context(), nil, "n")
	if err != nil || got.Description != "b" || got.Owner != "a" || got.Version != 3 {
		t.Fatalf("%+v %v", got, err)
	}
}

// TestPostgresRecordsRunAgain: a record that a run has written is as before in the next run.
func TestPostgresRecordsRunAgain(t *testing.T) {
	d := storetest.CopiedPostgres(t)
	a, b := storetest.Open(t, d), storetest.Open(t, d)
	n := &metal.Node{ID: "n", ProvisionState: metal.Enroll}
	must.OK(t, a.Do(t.Context(), func(tx job.Tx) error { return a.InsertNode(tx, n) }))
	runs := 0
	err := a.Do(t.Context(), func(tx job.Tx) error {
		if err := a.SaveNode(tx, n); err != nil {
			return err
		}
		if runs++; runs == 1 {
			err := b.Do(t.Context(), func(tx job.Tx) error { return b.Append(tx, job.Event{Subject: job.Node("n")}) })
			if err != nil {
				return errors.Join(errors.New("the other store"), err)
			}
		}
		return a.Append(tx, job.Event{Subject: job.Node("n")})
	})
	if err != nil || runs != 2 || n.Version != 2 {
		t.Fatalf("%d runs, version %d: %v", runs, n.Version, err)
	}
}

// TestPostgresGone: while the server does not answer, callers learn that asking again may help.
func TestPostgresGone(t *testing.T) {
	d := storetest.CopiedPostgres(t)
	s := storetest.Open(t, d)
	storetest.Disconnect(t, d)
	refused := 0
	for range 40 {
		err := s.Do(t.Context(), func(tx job.Tx) error { return s.InsertNode(tx, &metal.Node{ID: "n", ProvisionState: metal.Enroll}) })
		if err == nil || problem.Is(err, problem.Conflict) {
			break
		}
		if !problem.Is(err, problem.Unavailable) {
			t.Fatalf("a cut connection is told as %v", err)
		}
		refused++
	}
	if _, err := s.Node(t.Context(), nil, "n"); err != nil {
		t.Fatalf("after %d refusals: %v", refused, err)
	}
}

// meet runs fn in a's transaction; what happens meanwhile, committed by another
// process, falls between the transaction's first look and fn. It gives how often fn ran.
func meet(t *testing.T, a *store.Store, meanwhile func() error, fn func(tx job.Tx) error) (runs int, err error) {
	t.Helper()
	err = a.Do(t.Context(), func(tx job.Tx) error {
		runs++
		if _, err := a.Unended(tx, job.Node("n")); err != nil {
			return err
		}
		if runs == 1 {
			if err := meanwhile(); err != nil {
				t.Fatalf("meanwhile: %v", err)
			}
		}
		return fn(tx)
	})
	return runs, err
}

// TestPostgresMeetings puts what signals, parks, locks and interrupts a job into
// each other's way exactly where a snapshot does not see the other.
func TestPostgresMeetings(t *testing.T) {
	for _, c := range []struct {
		name    string
		command bool // the subject is locked by a running command before
		// a's part, and b's meanwhile
		a, b func(s *store.Store, op, cmd job.Job, tx job.Tx) error
		want job.State
		kind problem.Kind
	}{
		{"a signal while the lock is given up", true, endCommand, signal, job.Ready, -1},
		{"the lock is given up while a signal is counted", true, signal, endCommand, job.Ready, -1},
		{"the lock is taken while a signal is counted", false, signal, lock, job.Waiting, -1},
		{"a signal while the lock is taken", false, lock, signal, job.Ready, problem.Conflict},
		{"the lock is taken while an abort comes", false, abort, lock, job.Waiting, problem.Conflict},
		{"an abort while a signal comes", false, signal, abort, job.Undoing, -1},
		{"a signal while an abort comes", false, abort, signal, job.Ready, problem.Conflict},
		{"two aborts", false, abort, abort, job.Undoing, problem.Conflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := storetest.CopiedPostgres(t)
			a, b := storetest.Open(t, d), storetest.Open(t, d)
			op := parked(t, a)
			var cmd job.Job
			if c.command {
				must.OK(t, a.Do(t.Context(), func(tx job.Tx) error { return lock(a, op, cmd, tx) }))
				cmd = claimed(t, a)
			}
			_, err := meet(t, a, func() error {
				return b.Do(t.Context(), func(tx job.Tx) error { return c.b(b, op, cmd, tx) })
			}, func(tx job.Tx) error { return c.a(a, op, cmd, tx) })
			if c.kind < 0 && err != nil || c.kind >= 0 && !problem.Is(err, c.kind) {
				t.Fatalf("told %v", err)
			}
			got, err := a.Job(t.Context(), nil, op.ID)
			if err != nil || got.State != c.want {
				t.Fatalf("the operation is %s, want %s: %v", got.State, c.want, err)
			}
		})
	}
}

func signal(s *store.Store, op, _ job.Job, tx job.Tx) error { return s.Signal(tx, op.Subject) }

func abort(s *store.Store, op, _ job.Job, tx job.Tx) error {
	return s.Interrupt(tx, op.ID, job.Undoing, problem.Conflictf("aborted"))
}

func lock(s *store.Store, op, _ job.Job, tx job.Tx) error {
	return s.Insert(tx, &job.Job{Kind: "work", Version: 1, Class: job.Command, Subject: op.Subject})
}

func endCommand(s *store.Store, _, cmd job.Job, tx job.Tx) error {
	cmd.State = job.Ended
	return s.Save(tx, &cmd, false)
}

func claimed(t *testing.T, s *store.Store) job.Job {
	t.Helper()
	jobs, err := s.Claim(t.Context(), "c/1", s.Now(), []string{""}, map[job.Kind]int{"work": 1}, 5)
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	return jobs[0]
}

// parked is an operation of node n that waits.
func parked(t *testing.T, s *store.Store) job.Job {
	t.Helper()
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error {
		return s.Insert(tx, &job.Job{Kind: "work", Version: 1, Class: job.Operation, Subject: job.Node("n")})
	}))
	j := claimed(t, s)
	j.State = job.Waiting
	must.OK(t, s.Do(t.Context(), func(tx job.Tx) error { return s.Save(tx, &j, false) }))
	return j
}

// TestPostgresCutInTheMiddle: wherever in a transaction the line is cut, asking again may help, and nothing is written by halves.
func TestPostgresCutInTheMiddle(t *testing.T) {
	d := storetest.CopiedPostgres(t)
	s := storetest.Open(t, d)
	insert := func(tx job.Tx, id string) error {
		return s.InsertNode(tx, &metal.Node{ID: id, ProvisionState: metal.Enroll})
	}
	for where := range 3 {
		err := s.Do(t.Context(), func(tx job.Tx) error {
			for i, id := range []string{"a", "b"} {
				if i == where {
					storetest.Disconnect(t, d)
				}
				if err := insert(tx, id); err != nil {
					return err
				}
			}
			if where == 2 {
				storetest.Disconnect(t, d)
			}
			return nil
		})
		if !problem.Is(err, problem.Unavailable) {
			t.Errorf("cut before write %d: %v", where+1, err)
		}
	}
	// The connections that were cut beside it are found out one by one.
	err := errors.New("not asked yet")
	for n := 0; err != nil && n < 40; n++ {
		err = s.Do(t.Context(), func(tx job.Tx) error { return insert(tx, "a") })
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Node(t.Context(), nil, "b"); !problem.Is(err, problem.NotFound) {
		t.Errorf("half of it was written: %v", err)
	}
}
