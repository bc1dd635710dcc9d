package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"salvor/access"
	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// TestBacklogRefusesAndLetsGo: while the backlog of a group is full, new operations of users are refused with a Retry-After, and
// nothing else is. Once a conductor has claimed some jobs, new operations are accepted again.
func TestBacklogRefusesAndLetsGo(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB) storetest.Database{"sqlite": storetest.CopiedSQLite, "postgres": storetest.CopiedPostgres} {
		t.Run(name, func(t *testing.T) { backlogRefusesAndLetsGo(t, fresh(t)) })
	}
}

func backlogRefusesAndLetsGo(t *testing.T, d storetest.Database) {
	var passed atomic.Int64
	start := time.Now().Truncate(time.Second)
	now := func() time.Time { return start.Add(time.Duration(passed.Load())) }
	s := must.Get(store.Open(t.Context(), d.URL, d.Key, store.Options{BacklogLimit: 3, Now: now}))(t)
	defer s.Close()
	user, work := access.WithRequester(t.Context(), access.Requester{User: "ann", Source: "192.0.2.1"}), t.Context()
	made := 0
	insert := func(ctx context.Context, group string, class job.Class, kind job.Kind) error {
		made++
		return s.Do(ctx, func(tx job.Tx) error {
			return s.Insert(tx, &job.Job{Kind: kind, Version: 1, Class: class, Group: group, Subject: job.Node(fmt.Sprint("n", made))})
		})
	}
	for i := range 3 {
		if err := insert(user, "oslo", job.Operation, "rescue"); err != nil {
			t.Fatalf("operation %d: %v", i+1, err)
		}
	}
	// A job that is rolled back takes no room, in another group either.
	for range 4 {
		err := s.Do(user, func(tx job.Tx) error {
			return errors.Join(s.Insert(tx, &job.Job{Kind: "rescue", Class: job.Operation, Group: "bergen", Subject: job.Node("b")}), problem.Conflictf("no"))
		})
		if !problem.Is(err, problem.Conflict) {
			t.Fatal(err)
		}
	}
	passed.Store(int64(30 * time.Second)) // three jobs in 30 s
	for i, want := range []time.Duration{10, 20, 30, 40, 50, 60, 60} {
		err := insert(user, "oslo", job.Operation, "rescue")
		if !problem.Is(err, problem.Unavailable) || problem.RetryAfterOf(err) != want*time.Second {
			t.Errorf("refusal %d: %v, after %s, want %d s", i+1, err, problem.RetryAfterOf(err), want)
		}
	}
	if err := insert(user, "oslo", job.Command, "power"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a change of power: %v", err)
	}
	for _, kind := range []job.Kind{metal.JobDiagnose, metal.JobRepair} { // each asks for a rescue
		if err := insert(user, "oslo", job.Background, kind); !problem.Is(err, problem.Unavailable) || problem.RetryAfterOf(err) == 0 {
			t.Errorf("a %s beyond the limit: %v, after %s; want it refused with a time to ask again", kind, err, problem.RetryAfterOf(err))
		}
	}
	for what, err := range map[string]error{
		"a question":             insert(user, "oslo", job.Background, "boot device"),
		"a fence":                insert(user, "oslo", job.Operation, compute.JobFence),
		"a cut of the power":     insert(user, "oslo", job.Command, metal.JobForcePowerOff),
		"another group":          insert(user, "bergen", job.Operation, "rescue"),
		"a conductor's own work": insert(work, "oslo", job.Operation, "unrescue"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if since, why := s.WriteFailure(); why != "" {
		t.Errorf("a full backlog is no trouble of the database, which said %s since %s", why, since)
	}
	if n := s.RefusedOperations(); n != 10 {
		t.Errorf("%d operations counted as refused, want 10", n)
	}
	must.OK(t, s.Register(work, job.Conductor{ID: "c", Incarnation: "c1", Hostname: "c", Groups: []string{"oslo"}}))
	kinds := map[job.Kind]int{"rescue": 1, "unrescue": 1, "boot device": 1, compute.JobFence: 1, metal.JobForcePowerOff: 1}
	claimed, err := s.Claim(work, "c1", now(), []string{"oslo"}, kinds, 64)
	if err != nil || len(claimed) < 6 {
		t.Fatalf("%d jobs claimed: %v", len(claimed), err)
	}
	waits, runs := job.Job{Group: "oslo", State: job.Ready, Due: now()}, claimed[0]
	if p, err := s.Place(work, runs); p != nil || err != nil {
		t.Errorf("the place of a job that runs: %+v, %v", p, err)
	}
	for i := range 2 {
		waits.ID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		waits.Kind, waits.Version, waits.Class, waits.Subject = "rescue", 1, job.Operation, job.Node(fmt.Sprint("w", i))
		waits.Due = now().Add(time.Duration(i) * time.Second)
		must.OK(t, s.Do(work, func(tx job.Tx) error { return s.Insert(tx, &waits) }))
	}
	if p, err := s.Place(work, waits); p != nil || err != nil {
		t.Errorf("the place of a job that is not due: %+v, %v", p, err)
	}
	passed.Add(int64(5 * time.Second))
	if p, err := s.Place(work, waits); err != nil || p == nil || *p != (job.Place{Before: 1, Waiting: 2, Running: len(claimed), Limit: 3, Due: 4 * time.Second}) || !p.Full() {
		t.Errorf("the place of the second job that waits: %+v, %v", p, err)
	}
	if err := insert(user, "oslo", job.Operation, "rescue"); err != nil {
		t.Errorf("after a conductor took the jobs: %v", err)
	}
}
