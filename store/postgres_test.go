package store_test

import (
	"errors"
	"testing"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/store/storetest"
)

// TestPostgresRunsAgain: a closure whose row somebody changed between its look and
// its write sees the change in a second run, with its records as they were.
func TestPostgresRunsAgain(t *testing.T) {
	d := storetest.OnPostgres(t)
	a, b := storetest.Open(t, d), storetest.Open(t, d)
	n := &metal.Node{ID: "n", ProvisionState: metal.Enroll}
	if err := a.Do(t.Context(), func(tx job.Tx) error { return a.InsertNode(tx, n) }); err != nil {
		t.Fatal(err)
	}
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

// TestPostgresGone: while the server does not answer, callers learn that asking again may help.
func TestPostgresGone(t *testing.T) {
	d := storetest.OnPostgres(t)
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
