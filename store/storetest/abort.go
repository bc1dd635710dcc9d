package storetest

import (
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// testAbort: whatever a job does, its owner learns of an abort, and what waits or rests is made claimable at once.
func testAbort(b *testEnv) {
	abort := func(id, cause string) {
		b.do(func(tx job.Tx) error { return b.s.Abort(tx, b.read(id), cause) })
	}
	aborted := func() map[string]string {
		out := must.Get(b.s.Aborted(b.ctx, owner))(b)
		return out
	}
	// One that works: its owner is told until its problem says so.
	b.insert(job.Operation, "a")
	working := b.claimOne()
	abort(working.ID, "by request")
	if got := aborted(); got[working.ID] != "by request" || len(got) != 1 {
		b.Fatalf("told of %v", got)
	}
	// It parks before it hears: it does not stay parked.
	working.State, working.WaitFor = job.Waiting, "w"
	b.save(&working, false)
	again := b.claimOne()
	if again.ID != working.ID || again.AbortCause != "by request" {
		b.Fatalf("claimed %+v", again)
	}
	again.State, again.Problem, again.ProblemKind = job.Undoing, "by request", "conflict"
	b.save(&again, true)
	if got := aborted(); len(got) != 0 {
		b.Fatalf("told twice of %v", got)
	}
	// Its undo tries again later: the abort that has its effect does not hasten that. The next one does.
	undo := b.read(again.ID)
	undo.Due, undo.Attempt = time.Now().Add(time.Hour), 1
	b.save(&undo, false)
	if got := b.read(undo.ID); !got.Due.After(time.Now().Add(time.Minute)) {
		b.Fatalf("due %s", got.Due)
	}
	abort(undo.ID, "no further")
	if got := b.claimOne(); got.ID != undo.ID || got.State != job.Undoing || got.AbortCause != "no further" {
		b.Fatalf("claimed %+v", got)
	}
	// One that waits beside a command goes on when the command has ended.
	b.insert(job.Operation, "b")
	waits := b.parked()
	command := b.insert(job.Command, "b")
	abort(waits.ID, "by request")
	b.inState(waits.ID, job.Waiting)
	c := b.claimOne()
	if c.ID != command.ID {
		b.Fatal("another job was claimed")
	}
	c.State = job.Ended
	b.save(&c, false)
	b.inState(waits.ID, job.Ready)
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.Abort(tx, c, "late") }), problem.Conflict, "")
}

// testRetryNow: the next try of a job comes at once, whether it is awaited or follows one that is under way.
func testRetryNow(b *testEnv) {
	now := func() { b.do(func(tx job.Tx) error { return b.s.RetryNow(tx, job.Node("a")) }) }
	b.insert(job.Operation, "a")
	later := func(j job.Job) job.Job {
		j.State, j.Attempt, j.Due = job.Ready, 2, time.Now().Add(time.Hour)
		b.save(&j, false)
		return b.read(j.ID)
	}
	if j := later(b.claimOne()); !j.Due.After(time.Now().Add(time.Minute)) {
		b.Fatalf("due %s", j.Due)
	}
	now()
	under := b.claimOne()
	now()
	if j := later(under); j.Due.After(time.Now().Add(time.Minute)) {
		b.Fatalf("the try after the one under way is due %s", j.Due)
	}
	if j := later(b.claimOne()); !j.Due.After(time.Now().Add(time.Minute)) {
		b.Fatalf("hastened twice: due %s", j.Due)
	}
}
