package storetest

import (
	"fmt"
	"sync"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/store"
	"salvor/test/must"
)

func testClaim(b *testEnv) {
	now := b.s.Now().UTC().Truncate(time.Microsecond)
	due := func(at time.Time) func(*job.Job) { return func(j *job.Job) { j.Due = at } }
	b.insert(job.Background, "second", due(now.Add(-time.Second)))
	b.insert(job.Background, "first", due(now.Add(-time.Minute)))
	later := b.insert(job.Background, "later", due(now.Add(job.MaxDelay)))
	b.insert(job.Background, "newer", func(j *job.Job) { j.Version = 2 })
	b.insert(job.Background, "unknown", func(j *job.Job) { j.Kind = "strange" })
	b.insert(job.Background, "north", func(j *job.Job) { j.Group = "north" })
	b.insert(job.Operation, "waits", func(j *job.Job) { j.State = job.Waiting })
	kinds := map[job.Kind]int{"work": 1, "other": 4}
	claim := func(at time.Time, limit int, groups ...string) (subjects string, jobs []job.Job) {
		b.Helper()
		jobs = must.Get(b.s.Claim(b.ctx, owner, at, groups, kinds, limit))(b)
		for _, j := range jobs {
			subjects += j.Subject.ID + " "
		}
		return subjects, jobs
	}
	if have, _ := claim(now, 10); have != "" {
		b.Errorf("claimed %s for no group", have)
	}
	have, jobs := claim(now, 1, "", "north")
	if have != "first " || jobs[0].State != job.Running || jobs[0].Owner != owner || jobs[0].Fence != 1 {
		b.Fatalf("claimed %s: %+v", have, jobs)
	}
	if have, _ = claim(now, 10, ""); have != "second " {
		b.Errorf("claimed %q, want the second alone", have)
	}
	if have, _ = claim(now.Add(time.Minute), 10, "north"); have != "north " {
		b.Errorf("claimed %q in the north", have)
	}
	next := must.Get(b.s.NextDue(b.ctx, []string{""}, kinds))(b)
	if !next.Equal(later.Due) {
		b.Errorf("next due %v; the others that are due are of kinds unknown here, want %v", next, later.Due)
	}
	kinds["strange"], kinds["work"] = 1, 2
	if have, _ = claim(now.Add(time.Minute), 10, ""); have != "newer unknown " && have != "unknown newer " {
		b.Errorf("claimed %q", have)
	}
	next = must.Get(b.s.NextDue(b.ctx, []string{""}, kinds))(b)
	if !next.Equal(later.Due) {
		b.Errorf("next due %v, want %v", next, later.Due)
	}
	next = must.Get(b.s.NextDue(b.ctx, []string{"nowhere"}, kinds))(b)
	if !next.IsZero() {
		b.Errorf("next due nowhere %v", next)
	}
}

// testClaimOnce: however many claim at once, each job is claimed once.
func testClaimOnce(b *testEnv) {
	const jobs = 120
	b.do(func(tx job.Tx) error {
		for i := range jobs {
			j := &job.Job{Kind: "work", Version: 1, Class: job.Background, Subject: job.Node(fmt.Sprint(i))}
			if err := b.s.Insert(tx, j); err != nil {
				return err
			}
		}
		return nil
	})
	stores := []*store.Store{b.s, b.other()}
	var mu sync.Mutex
	claims := map[string]int{}
	countConcurrentWins(8, func(i int) bool {
		for range 2000 {
			got, err := stores[i%2].Claim(b.ctx, fmt.Sprint("c", i), b.s.Now(), []string{""}, map[job.Kind]int{"work": 1}, 7)
			if err != nil {
				b.Error(err)
				return false
			}
			mu.Lock()
			for _, j := range got {
				claims[j.ID]++
			}
			all := len(claims) == jobs
			mu.Unlock()
			if all {
				break
			}
		}
		return true
	})
	if len(claims) != jobs {
		b.Fatalf("%d of %d jobs were claimed", len(claims), jobs)
	}
	for id, n := range claims {
		if n != 1 || b.read(id).Fence != 1 {
			b.Fatalf("job %s was claimed %d times", id, n)
		}
	}
}

func testRetire(b *testEnv) {
	b.insert(job.Operation, "a")
	b.insert(job.Operation, "b")
	b.insert(job.Background, "c")
	jobs := b.claim(owner)
	for i := range jobs {
		if jobs[i].Subject.ID == "b" {
			jobs[i].State = job.Undoing
			b.save(&jobs[i], true)
		}
	}
	b.insert(job.Operation, "d")
	other := b.claim("other/1")
	b.retire()
	for _, j := range jobs {
		want := job.Ready
		if j.Subject.ID == "b" {
			want = job.Undoing
		}
		if got := b.inState(j.ID, want); got.Crashes != 1 || got.Owner != "" {
			b.Fatalf("freed: %+v", got)
		}
	}
	if got := b.inState(other[0].ID, job.Running); got.Crashes != 0 {
		b.Fatal("another owner's job was freed")
	}
	if len(b.claim("third/1")) != 3 {
		b.Fatal("freed jobs cannot be claimed")
	}
}

func testLease(b *testEnv) {
	c := job.Conductor{ID: "conductor", Incarnation: "1", Hostname: "h2", Groups: []string{"", "north"}, Description: []byte(`{"drivers":null}`)}
	b.ok(b.s.Register(b.ctx, c))
	b.ok(b.s.Register(b.ctx, job.Conductor{ID: "conductor2", Incarnation: "1", Hostname: "h1"}))
	b.insert(job.Operation, "mine")
	b.insert(job.Operation, "others", func(j *job.Job) { j.Group = "north" })
	mine := b.claim(c.Owner())
	others, err := b.s.Claim(b.ctx, "conductor2/1", b.s.Now(), []string{"north"}, map[job.Kind]int{"work": 1}, 10)
	b.ok(err)
	if len(mine) != 1 || len(others) != 1 {
		b.Fatal("claims went wrong")
	}
	b.ok(b.s.RenewLease(b.ctx, c))
	all, err := b.s.Conductors(b.ctx)
	b.ok(err)
	if len(all) != 2 || all[0].Hostname != "h1" || all[1].Counter != 1 || len(all[1].Groups) != 2 || string(all[1].Description) != string(c.Description) || all[1].StartedAt.IsZero() {
		b.Fatalf("conductors %+v", all)
	}
	former := c
	c.Incarnation, c.Groups = "2", []string{"south"}
	b.ok(b.s.Register(b.ctx, c))
	if got := b.inState(mine[0].ID, job.Ready); got.Crashes != 1 {
		b.Fatalf("the former incarnation's job: %+v", got)
	}
	b.inState(others[0].ID, job.Running)
	if err := b.s.RenewLease(b.ctx, former); err == nil {
		b.Fatal("a former incarnation beats")
	}
	b.ok(b.s.Retire(b.ctx, former)) // takes nothing from its successor
	j := b.claim(c.Owner())
	b.ok(b.s.RenewLease(b.ctx, c))
	b.ok(b.s.RenewLease(b.ctx, c))
	c.Counter = 1 // as somebody saw it before the last beat
	if err := b.s.Retire(b.ctx, c); !problem.Is(err, problem.Conflict) {
		b.Fatalf("one that beats was retired: %v", err)
	}
	b.inState(j[0].ID, job.Running)
	c.Counter = 2
	b.ok(b.s.Retire(b.ctx, c))
	b.inState(j[0].ID, job.Ready)
	if err := b.s.RenewLease(b.ctx, c); err == nil {
		b.Fatal("a conductor that is gone beats")
	}
	if all, err = b.s.Conductors(b.ctx); err != nil || len(all) != 1 {
		b.Fatalf("conductors %+v %v", all, err)
	}
	// A claim that was begun before its conductor ended, and is committed after that.
	late := b.claim(c.Owner())
	if n, err := b.s.ReleaseOrphans(b.ctx); n != 1 || err != nil || len(late) != 1 {
		b.Fatalf("%d jobs, %d freed: %v", len(late), n, err)
	}
	b.inState(late[0].ID, job.Ready)
	b.inState(others[0].ID, job.Running) // its owner lives
	if n, err := b.s.ReleaseOrphans(b.ctx); n != 0 || err != nil {
		b.Fatalf("%d freed once more: %v", n, err)
	}
}

func testClock(b *testEnv) {
	groups := []string{"", "north"}
	seen := must.Get(b.s.Ticks(b.ctx, groups))(b)
	if len(seen) != 2 || seen[""] != 0 {
		b.Fatalf("fresh clocks %v", seen)
	}
	for want := int64(1); want <= 3; want++ {
		// Many see the same and advance: one tick.
		countConcurrentWins(6, func(int) bool { b.ok(b.s.Advance(b.ctx, seen)); return true })
		seen = must.Get(b.s.Ticks(b.ctx, groups))(b)
		if seen[""] != want || seen["north"] != want {
			b.Fatalf("clocks %v, want %d", seen, want)
		}
	}
	b.ok(b.s.Advance(b.ctx, map[string]int64{"": 1, "north": 3}))
	if seen, _ = b.s.Ticks(b.ctx, groups); seen[""] != 3 || seen["north"] != 4 {
		b.Fatalf("clocks %v", seen)
	}
}

func testExpired(b *testEnv) {
	waits := func(deadline, whole int64) func(*job.Job) {
		return func(j *job.Job) { j.State, j.Deadline, j.OperationDeadline = job.Waiting, deadline, whole }
	}
	work := map[job.Kind]int{"work": 1}
	b.insert(job.Operation, "unknown", waits(1, 0), func(j *job.Job) { j.Kind = "strange" })
	b.insert(job.Operation, "newer", waits(1, 0), func(j *job.Job) { j.Version = 2 })
	b.insert(job.Operation, "two", waits(2, 0))
	b.insert(job.Operation, "one", waits(5, 1))
	b.insert(job.Operation, "never", waits(0, 0))
	b.insert(job.Operation, "five", waits(5, 9))
	b.insert(job.Operation, "ready", func(j *job.Job) { j.Deadline = 1 })
	b.insert(job.Operation, "north", func(j *job.Job) { waits(1, 0)(j); j.Group = "north" })
	for tick, want := range []string{"", "one ", "one two ", "one two ", "one two ", "one two five "} {
		got := must.Get(b.s.Expired(b.ctx, []string{"", "north"}, work, job.Job{}, 10))(b)
		have := ""
		for _, j := range got {
			have += j.Subject.ID + " "
		}
		if have != want {
			b.Errorf("at tick %d expired %q, want %q", tick, have, want)
		}
		b.ok(b.s.Advance(b.ctx, map[string]int64{"": int64(tick)}))
	}
	have := ""
	var last job.Job
	for {
		got := must.Get(b.s.Expired(b.ctx, []string{""}, work, last, 1))(b)
		if len(got) == 0 {
			break
		}
		last = got[0]
		have += last.Subject.ID + " "
	}
	if have != "one two five " {
		b.Errorf("one after the other: %q", have)
	}
}

// testWaitOn: a wait that goes on ends at its new deadline or at that of the whole job, whichever is earlier, and keeps its notes. A job that does not wait is left as it is.
func testWaitOn(b *testEnv) {
	work := map[job.Kind]int{"work": 1}
	waits := b.insert(job.Operation, "waits", func(j *job.Job) { j.State, j.Deadline, j.OperationDeadline = job.Waiting, 1, 9 })
	ready := b.insert(job.Operation, "ready", func(j *job.Job) { j.Deadline = 1 })
	bounded := b.insert(job.Operation, "bounded", func(j *job.Job) { j.State, j.Deadline, j.OperationDeadline = job.Waiting, 1, 3 })
	on := func(id string, until int64) error {
		j := b.read(id)
		j.Memo = map[string]string{"k": "v"}
		return b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.WaitOn(tx, &j, until) })
	}
	before := b.read(waits.ID)
	b.ok(on(waits.ID, 2))
	b.ok(on(bounded.ID, 9))
	b.refused(on(ready.ID, 2), problem.Conflict, "Job "+ready.ID+" does not wait any more as it did.")
	// A conductor that read the job before another one had it wait on changes nothing.
	before.Memo = map[string]string{"k": "late"}
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.WaitOn(tx, &before, 3) }), problem.Conflict, "Job "+waits.ID+" does not wait any more as it did.")
	if j := b.read(waits.ID); j.Deadline != 2 || j.Memo["k"] != "v" || j.State != job.Waiting {
		b.Errorf("the job that waits on is %+v; want it to wait until tick 2, with the memo k", j)
	}
	for tick, want := range []int{0, 0, 1, 2} {
		if got := must.Get(b.s.Expired(b.ctx, []string{""}, work, job.Job{}, 10))(b); len(got) != want {
			b.Errorf("at tick %d %d waits are over, want %d", tick, len(got), want)
		}
		b.ok(b.s.Advance(b.ctx, map[string]int64{"": int64(tick)}))
	}
}

// testClaimed: what an owner holds is found, whoever forgot it.
func testClaimed(b *testEnv) {
	b.insert(job.Operation, "a")
	b.insert(job.Background, "b")
	jobs := b.claim(owner)
	b.insert(job.Background, "c")
	b.claim("other/1")
	got, err := b.s.Claimed(b.ctx, owner, 10)
	b.ok(err)
	if len(got) != 2 || got[0].Fence != jobs[0].Fence || got[0].Owner != owner {
		b.Fatalf("held: %+v", got)
	}
	b.save(&jobs[0], false)
	if got, err = b.s.Claimed(b.ctx, owner, 10); err != nil || len(got) != 1 || got[0].ID != jobs[1].ID {
		b.Fatalf("held: %+v %v", got, err)
	}
	if got, err = b.s.Claimed(b.ctx, "", 10); err != nil || len(got) != 0 {
		b.Fatalf("held by nobody: %+v %v", got, err)
	}
}

// testRescheduleEarlier: what a wrong clock put far ahead is made due, what lies nearer is not.
func testRescheduleEarlier(b *testEnv) {
	now := b.s.Now()
	ahead := func(d time.Duration) func(*job.Job) { return func(j *job.Job) { j.Due = now.Add(d) } }
	b.insert(job.Background, "far", ahead(2*job.MaxDelay))
	b.insert(job.Background, "near", ahead(time.Minute))
	b.insert(job.Background, "north", ahead(time.Minute), func(j *job.Job) { j.Group = "north" })
	if jobs := b.claim(owner); len(jobs) != 0 {
		b.Fatalf("claimed %+v", jobs)
	}
	for _, c := range []struct {
		after   time.Duration
		subject string
	}{{job.MaxDelay, "far"}, {0, "near"}} {
		n := must.Get(b.s.RescheduleEarlier(b.ctx, now, now.Add(c.after), []string{""}))(b)
		if jobs := b.claim(owner); n != 1 || len(jobs) != 1 || jobs[0].Subject.ID != c.subject {
			b.Fatalf("%d hastened, claimed %+v; want %s", n, jobs, c.subject)
		}
	}
}

// testWoken: after each commit that made a job claimable there is a hint, in every process.
func testWoken(b *testEnv) {
	stores := []*store.Store{b.s}
	if b.db.Shared {
		stores = append(stores, b.other())
	}
	drain := func() {
		for _, s := range stores {
			select {
			case <-s.Woken():
			default:
			}
		}
	}
	hint := func(what string) {
		b.Helper()
		for _, s := range stores {
			select {
			case <-s.Woken():
			case <-time.After(20 * time.Second):
				b.Fatalf("no hint after %s", what)
			}
		}
		drain()
	}
	if b.db.Shared {
		hint("the start") // a listener that begins to hear says so, for what it missed
	}
	drain()
	b.insert(job.Operation, "a")
	hint("an insert")
	j := b.claimOne()
	j.State = job.Waiting
	b.save(&j, false)
	drain()
	b.signal("a")
	hint("a signal")
	b.claimOne()
	b.retire()
	hint("the end of a conductor")
	j = b.claimOne()
	j.State = job.Waiting
	b.save(&j, false)
	drain()
	b.do(func(tx job.Tx) error { return b.s.Interrupt(tx, j.ID, job.Undoing, problem.Conflictf("aborted")) })
	hint("an interrupt")
}
