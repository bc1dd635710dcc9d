package storetest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"salvor/job"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

var compareJobs = cmp.Comparer(func(a, b secret.Value) bool { return a.Equal(b) })

func testJob(b *testEnv) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	j := &job.Job{ID: "j1", Kind: "rescue", Version: 3, Class: job.Operation, Subject: job.Subject{Kind: "host", ID: "h"}, Group: "north", State: job.Waiting,
		Action: "boot", Attempt: 1, Crashes: 2, Args: json.RawMessage(`{"a":1}`), Memo: map[string]string{"k": "v"}, Secret: secret.New("hash"),
		Result: json.RawMessage(`[2]`), Problem: "p", ProblemKind: "invalid", Fence: 4, Signals: 5, Seen: 5, Due: at, WaitFor: "w",
		Deadline: 9, OperationDeadline: 8, RequestID: "req", User: "u", CreatedAt: at, UpdatedAt: at, ActionStartedAt: at, EndedAt: at}
	b.do(func(tx job.Tx) error { return b.s.Insert(tx, j) })
	got := b.read("j1")
	if d := cmp.Diff(*j, got, compareJobs); d != "" {
		b.Fatalf("job differs (-want +have):\n%s", d)
	}
	_, err := b.s.Job(b.ctx, nil, "none")
	b.refused(err, problem.NotFound, "Job none could not be found.")
	bare := b.insert(job.Background, "a")
	if bare.ID == "" || bare.State != job.Ready || bare.CreatedAt.IsZero() || bare.Due.IsZero() {
		b.Fatalf("not filled in: %+v", bare)
	}
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error {
		return b.s.Insert(tx, &job.Job{ID: "j1", Class: job.Background, Subject: job.Node("x")})
	}), problem.Conflict, "A job with UUID j1 already exists.")
	if err := b.s.Do(b.ctx, func(tx job.Tx) error {
		return b.s.Insert(tx, &job.Job{Class: "wish", Subject: job.Node("x")})
	}); err == nil {
		b.Fatal("a job may be of no class")
	}
}

func testLock(b *testEnv) {
	try := func(class job.Class) error {
		return b.s.Do(b.ctx, func(tx job.Tx) error {
			return b.s.Insert(tx, &job.Job{Kind: "work", Version: 1, Class: class, Subject: job.Node("a")})
		})
	}
	const locked = "Node a is locked by host %s, please retry after the current operation is completed."
	b.ok(b.s.Register(b.ctx, job.Conductor{ID: "conductor", Incarnation: "1", Hostname: "host-a", Groups: []string{""}}))
	op := b.insert(job.Operation, "a")
	for _, class := range []job.Class{job.Operation, job.Command} {
		b.refused(try(class), problem.Conflict, strings.ReplaceAll(locked, "%s", "salvor"))
	}
	b.ok(try(job.Background))
	b.insert(job.Operation, "b") // another subject's own business
	jobs := b.claim(owner)
	b.refused(try(job.Command), problem.Conflict, strings.ReplaceAll(locked, "%s", "host-a"))
	i := slices.IndexFunc(jobs, func(j job.Job) bool { return j.ID == op.ID })
	parked := jobs[i]
	parked.State = job.Waiting
	b.save(&parked, false)
	b.refused(try(job.Operation), problem.Conflict, "Node a has an operation that waits (work); abort it or retry after it has ended.")
	b.ok(try(job.Command))
	unended := must.Get(b.s.Unended(nil, job.Node("a")))(b)
	if len(unended) != 3 || unended[0].Class != job.Operation || unended[1].Class != job.Command || unended[2].Class != job.Background {
		b.Fatalf("unended jobs %+v", unended)
	}
	wins := countConcurrentWins(10, func(int) bool {
		return b.s.Do(b.ctx, func(tx job.Tx) error {
			return b.s.Insert(tx, &job.Job{Kind: "work", Version: 1, Class: job.Operation, Subject: job.Node("c")})
		}) == nil
	})
	if wins != 1 {
		b.Fatalf("%d operations at once", wins)
	}
}

func testSave(b *testEnv) {
	b.insert(job.Operation, "a", func(j *job.Job) { j.Secret = secret.New("hash") })
	j := b.claimOne()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	j.Action, j.Attempt, j.Crashes, j.Memo = "boot", 2, 1, map[string]string{"k": "v"}
	j.Deadline, j.OperationDeadline, j.WaitFor, j.ActionStartedAt = 5, 7, "w", at
	b.save(&j, true)
	got := b.read(j.ID)
	j.UpdatedAt = got.UpdatedAt
	if d := cmp.Diff(j, got, compareJobs); d != "" {
		b.Fatalf("saved job differs (-want +have):\n%s", d)
	}
	if got.State != job.Running || got.Owner != owner {
		b.Fatalf("the claim is not kept: %+v", got)
	}
	// Written again, because the answer was lost: the second time is void.
	again := j
	again.Fence--
	if err := b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.Save(tx, &again, true) }); !errors.Is(err, job.ErrFenced) {
		b.Fatalf("the same was written twice: %v", err)
	}
	// Off the successful course the secret goes, whoever forgets it.
	j.State, j.Problem, j.ProblemKind = job.Undoing, "broken", "internal"
	b.save(&j, true)
	if got = b.inState(j.ID, job.Undoing); !got.Secret.Empty() || got.Owner != owner {
		b.Fatalf("undoing: %+v", got)
	}
	j.State, j.Due = job.Undoing, time.Now().Add(-time.Second)
	b.save(&j, false)
	j = b.claimOne()
	if j.State != job.Undoing || j.Fence != 5 {
		b.Fatalf("claimed to undo: %+v", j)
	}
	j.State, j.Result = job.Ended, json.RawMessage(`{}`)
	b.save(&j, true) // nobody owns an ended job
	if got = b.inState(j.ID, job.Ended); got.Owner != "" || got.EndedAt.IsZero() || string(got.Result) != "{}" || got.Problem != "broken" {
		b.Fatalf("ended: %+v", got)
	}
	b.insert(job.Operation, "a")
}

// testFence: what an owner says after its claim was given up, freed or taken over is void, with all else in its transaction.
func testFence(b *testEnv) {
	b.insert(job.Operation, "a")
	former := b.claimOne()
	void := func(j job.Job) {
		b.Helper()
		err := b.s.Do(b.ctx, func(tx job.Tx) error {
			if err := b.s.InsertNode(tx, newNode("ghost")); err != nil {
				return err
			}
			j.State = job.Ended
			return b.s.Save(tx, &j, false)
		})
		if !errors.Is(err, job.ErrFenced) || b.has("ghost") {
			b.Fatalf("a void claim counted: %v", err)
		}
	}
	b.retire()
	void(former)
	again := b.claimOne() // by the same owner: the fence tells them apart
	void(former)
	j := again
	j.State = job.Ready
	b.save(&j, false)
	void(again)
	void(job.Job{ID: "none", Owner: owner, Fence: 1})
	unowned := b.read(j.ID)
	void(unowned)
	b.inState(j.ID, job.Ready)
}

func testInterrupt(b *testEnv) {
	b.insert(job.Operation, "a", func(j *job.Job) { j.Secret = secret.New("hash") })
	interrupt := func(id string, to job.State) error {
		return b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.Interrupt(tx, id, to, problem.Conflictf("aborted by user")) })
	}
	running := b.claimOne()
	b.refused(interrupt(running.ID, job.Undoing), problem.Conflict, "")
	running.State, running.WaitFor, running.Attempt = job.Waiting, "w", 3
	b.save(&running, false)
	command := b.insert(job.Command, "a")
	b.refused(interrupt(running.ID, job.Undoing), problem.Conflict, "")
	b.refused(interrupt(running.ID, job.Ended), problem.Conflict, "")
	c := b.claimOne()
	c.State = job.Ended
	b.save(&c, false)
	if c.ID != command.ID {
		b.Fatal("another job was claimed")
	}
	b.ok(interrupt(running.ID, job.Undoing))
	got := b.inState(running.ID, job.Undoing)
	if !got.Secret.Empty() || got.Problem != "aborted by user" || got.ProblemKind != "conflict" || got.Owner != "" || got.WaitFor != "" || got.Attempt != 0 {
		b.Fatalf("interrupted: %+v", got)
	}
	b.refused(interrupt(running.ID, job.Ended), problem.Conflict, "")
	undo := b.claimOne()
	if undo.State != job.Undoing || undo.Action != running.Action {
		b.Fatalf("to undo: %+v", undo)
	}
	b.insert(job.Operation, "b")
	other := b.parked()
	b.do(func(tx job.Tx) error {
		if err := b.s.Interrupt(tx, other.ID, job.Ended, nil); err != nil {
			return err
		}
		return b.s.Insert(tx, &job.Job{Kind: "work", Version: 1, Class: job.Operation, Subject: job.Node("b")}) // takes over
	})
	if got := b.inState(other.ID, job.Ended); got.EndedAt.IsZero() || got.Problem != "" {
		b.Fatalf("ended: %+v", got)
	}
	if err := interrupt(other.ID, job.Ready); err == nil {
		b.Fatal("interrupted to ready")
	}
}

func testPruneJobs(b *testEnv) {
	old := time.Now().Add(-time.Hour)
	ended := func(j *job.Job) { j.State, j.EndedAt = job.Ended, old }
	b.insert(job.Background, "a", ended)
	b.insert(job.Command, "a", ended)
	op := b.insert(job.Operation, "a", ended)
	b.insert(job.Background, "a", func(j *job.Job) { j.State, j.EndedAt = job.Ended, time.Now() })
	live := b.insert(job.Background, "a")
	before := time.Now().Add(-time.Minute)
	n := must.Get(b.s.PruneJobs(b.ctx, before, job.Background, job.Command))(b)
	if n != 2 {
		b.Fatalf("%d asks and commands pruned, want 2", n)
	}
	b.read(op.ID)
	b.read(live.ID)
	n = must.Get(b.s.PruneJobs(b.ctx, before))(b)
	if n != 1 {
		b.Fatalf("%d operations pruned, want 1", n)
	}
}
