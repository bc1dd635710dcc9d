package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

// testHeldReadings: a held database keeps one reading of each node, and knows which nodes have none.
func testHeldReadings(b *testEnv) {
	known := func(group string) func(*metal.Node) {
		return func(n *metal.Node) { n.ProvisionState, n.ConductorGroup = metal.Active, group }
	}
	gone := b.node("a", known(""))
	b.node("b", known("north"))
	b.node("c", known("north"))
	b.node("in enroll")
	b.node("without a driver", known(""), func(n *metal.Node) { n.Driver = "" })
	unread := func(groups []string, limit int, want ...string) {
		b.Helper()
		nodes := must.Get(b.s.UnreadNodes(b.ctx, groups, limit))(b)
		var got []string
		for _, n := range nodes {
			got = append(got, n.ID)
		}
		if !slices.Equal(got, want) {
			b.Errorf("unread of %q, at most %d: %q, want %q", groups, limit, got, want)
		}
	}
	unread(nil, 10, "a", "b", "c")
	unread(nil, 2, "a", "b")
	unread([]string{"north"}, 10, "b", "c")
	unread([]string{}, 10)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	first := metal.HeldReading{NodeID: "a", ReadAt: at, Facts: metal.HeldFacts{Power: metal.PowerOn, Boot: &rescue.Boot{Device: "pxe"}, MediaRead: true}}
	second := metal.HeldReading{NodeID: "b", ReadAt: at, Facts: metal.HeldFacts{Unreadable: map[string]string{metal.FactPower: "no route"}}}
	b.ok(b.s.SaveReadings(b.ctx, []metal.HeldReading{first, second, {NodeID: "never there", ReadAt: at}}))
	unread(nil, 10, "c")
	first.ReadAt, first.Facts.Power = at.Add(time.Minute), metal.PowerOff
	b.ok(b.s.SaveReadings(b.ctx, []metal.HeldReading{first}))
	readings := func(ids []string, want map[string]metal.HeldReading) {
		b.Helper()
		got := must.Get(b.s.Readings(b.ctx, nil, ids))(b)
		if d := cmp.Diff(want, got); d != "" {
			b.Errorf("readings of %q (-want +have):\n%s", ids, d)
		}
	}
	readings([]string{"a", "c", "never there"}, map[string]metal.HeldReading{"a": first})
	readings([]string{}, map[string]metal.HeldReading{})
	b.do(func(tx job.Tx) error { return b.s.DeleteNode(tx, gone) })
	readings([]string{"a", "b"}, map[string]metal.HeldReading{"b": second})
	b.do(func(tx job.Tx) error { return b.s.DropReadings(tx) })
	unread(nil, 10, "b", "c")
}

// openJob inserts a job in a state.
func (b *testEnv) openJob(class job.Class, node string, state job.State) *job.Job {
	return b.insert(class, node, func(j *job.Job) {
		j.State, j.Action, j.Attempt, j.Crashes, j.Fence, j.Memo, j.Deadline, j.OperationDeadline = state, "boot", 2, 1, 4, map[string]string{"k": "v"}, 99, 990
		j.Due, j.ActionStartedAt = b.s.Now().Add(time.Hour), b.s.Now()
		if state == job.Waiting {
			j.WaitFor = "the agent"
		}
		if state == job.Ready {
			j.Secret = secret.New("hash")
		}
	})
}

// testFreeJobs: every open job is free and its fence is raised, so its former owner writes nothing more. Jobs that have ended stay as they are.
func testFreeJobs(b *testEnv) {
	b.insert(job.Operation, "a", func(j *job.Job) { j.Deadline = 99 })
	running := b.claimOne()
	open := map[job.State]*job.Job{}
	for _, state := range []job.State{job.Ready, job.Waiting, job.Undoing} {
		open[state] = b.openJob(job.Operation, string(state), state)
	}
	asked := b.openJob(job.Background, "b", job.Ready)
	ended := b.openJob(job.Operation, "c", job.Ended)
	endedBefore := b.read(ended.ID)
	const step = 1 << 20
	b.do(func(tx job.Tx) error { return b.s.FreeJobs(tx, step) })
	free := func(id string, state job.State, fence, deadline int64, isDue bool) {
		b.Helper()
		j := b.inState(id, state)
		if j.Owner != "" || j.Fence != fence+step || j.Deadline != deadline || !j.Due.After(b.s.Now()) != isDue {
			b.Errorf("%s job: owner %q, fence %d, deadline %d, due %s", state, j.Owner, j.Fence, j.Deadline, j.Due)
		}
	}
	free(running.ID, job.Ready, running.Fence, 0, true)
	free(open[job.Ready].ID, job.Ready, 4, 0, true)
	free(open[job.Waiting].ID, job.Waiting, 4, 0, false)
	free(open[job.Undoing].ID, job.Undoing, 4, 0, true)
	free(asked.ID, job.Ready, 4, 0, true)
	if d := cmp.Diff(endedBefore, b.read(ended.ID), compareJobs); d != "" {
		b.Errorf("a job that has ended changed (-before +after):\n%s", d)
	}
	if err := b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.Save(tx, &running, false) }); err == nil {
		b.Error("the former owner of a job wrote a step of it")
	}
	jobs := must.Get(b.s.OpenJobs(b.ctx, nil))(b)
	want := map[string]bool{running.ID: true, asked.ID: true, open[job.Ready].ID: true, open[job.Waiting].ID: true, open[job.Undoing].ID: true}
	got := map[string]bool{}
	for i, j := range jobs {
		got[j.ID] = true
		if i > 0 && j.CreatedAt.Before(jobs[i-1].CreatedAt) {
			b.Errorf("job %s is listed after a later one", j.ID)
		}
	}
	if !maps.Equal(got, want) {
		b.Errorf("open jobs %v, want %v", got, want)
	}
}

// testRestartJob: a free job begins again at its first action and keeps its secret; one that is being undone stays as it is.
func testRestartJob(b *testEnv) {
	ready, waiting, undoing := b.openJob(job.Operation, "a", job.Ready), b.openJob(job.Operation, "b", job.Waiting), b.openJob(job.Operation, "c", job.Undoing)
	locked := b.openJob(job.Operation, "d", job.Waiting)
	lock := b.insert(job.Command, "d")
	for _, j := range []*job.Job{ready, waiting, undoing, locked} {
		b.do(func(tx job.Tx) error { return b.s.RestartJob(tx, *j) })
	}
	fresh := func(id string, state job.State) {
		b.Helper()
		j := b.inState(id, state)
		if j.Action != "" || len(j.Memo) != 0 || j.Attempt != 0 || j.Crashes != 0 || j.WaitFor != "" || j.Deadline != 0 || !j.ActionStartedAt.IsZero() {
			b.Errorf("%+v", j)
		}
	}
	fresh(ready.ID, job.Ready)
	fresh(waiting.ID, job.Ready)
	fresh(locked.ID, job.Waiting)
	if j := b.inState(undoing.ID, job.Undoing); j.Action != "boot" || j.Attempt != 2 {
		b.Errorf("a job that is being undone began again: %+v", j)
	}
	if got := b.read(ready.ID).Secret.Reveal(); got != "hash" {
		b.Errorf("the secret is %q", got)
	}
	claimed := b.claim(owner)
	held := claimed[slices.IndexFunc(claimed, func(j job.Job) bool { return j.ID == lock.ID })]
	held.State, held.EndedAt = job.Ended, b.s.Now()
	b.do(func(tx job.Tx) error { return b.s.Save(tx, &held, false) })
	b.inState(locked.ID, job.Ready) // the end of what locked its subject lets it go on
}

// testEndWithoutUndo: a job that is to end without undo is claimed at once and says so, with its cause and its other notes, whatever it waited for. One that has ended
// before keeps its own end.
func testEndWithoutUndo(b *testEnv) {
	endWithoutUndo := func(j *job.Job) error {
		return b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.EndWithoutUndo(tx, *j, "ended by a test") })
	}
	for _, state := range []job.State{job.Ready, job.Waiting, job.Undoing} {
		j := b.openJob(job.Operation, string(state), state)
		b.ok(endWithoutUndo(j))
		got := b.claimOne()
		if got.ID != j.ID || !got.EndsWithoutUndo() || got.AbortCause != "ended by a test" || got.Memo["k"] != "v" {
			b.Errorf("a job in state %s that was to end without undo is claimed as %+v, want job %s, ended by \"ended by a test\", with the memo k", state, got, j.ID)
		}
	}
	ended := b.openJob(job.Operation, "ended", job.Ended)
	b.refused(endWithoutUndo(ended), problem.Conflict, fmt.Sprintf("Job %s (%s) has just ended; there is nothing to abort.", ended.ID, ended.Kind))
	if j := b.read(ended.ID); j.EndsWithoutUndo() {
		b.Errorf("a job that had ended is to end without undo: %+v", j)
	}
}

// testRelease: a release gives the database a new id and the next counter, keeps the former id, and forgets readings. A
// release that comes to nothing changes nothing, and there is one release only.
func testRelease(b *testEnv) {
	b.node("a", func(n *metal.Node) { n.ProvisionState = metal.Active })
	other := b.other()
	release := func() error { return b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.ReleaseHold(tx) }) }
	b.refused(release(), problem.Conflict, "The database is not held any more: someone else has released it.")
	if former, err := b.s.FormerIncarnations(b.ctx); err != nil || len(former) != 0 {
		b.Fatalf("a release that was refused: %v %v", former, err)
	}
	b.ok(b.s.HoldDatabase(b.ctx, record.HeldBackup, "a test"))
	b.ok(b.s.SaveReadings(b.ctx, []metal.HeldReading{{NodeID: "a", ReadAt: b.s.Now()}}))
	held := must.Get(b.s.Incarnation(b.ctx))(b)
	lost := problem.Conflictf("a failure after the release")
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error {
		if err := b.s.ReleaseHold(tx); err != nil {
			return err
		}
		return lost
	}), problem.Conflict, lost.Error())
	if i, err := other.Incarnation(b.ctx); err != nil || i.ID != held.ID || i.Held == nil {
		b.Fatalf("after a release that came to nothing: %+v %v", i, err)
	}
	b.ok(release())
	i, err := other.Incarnation(b.ctx)
	if err != nil || i.ID == held.ID || len(i.ID) != 32 || i.Counter != held.Counter+1 || i.Held != nil {
		b.Fatalf("released: %+v %v", i, err)
	}
	former, err := other.FormerIncarnations(b.ctx)
	if err != nil || !maps.Equal(former, map[string]int64{held.ID: held.Counter}) {
		b.Errorf("former incarnations %v %v, want %s at %d", former, err, held.ID, held.Counter)
	}
	readings, err := b.s.Readings(b.ctx, nil, []string{"a"})
	b.ok(err)
	if len(readings) != 0 {
		b.Errorf("readings %v outlive the release", readings)
	}
	b.refused(release(), problem.Conflict, "The database is not held any more: someone else has released it.")
	if again, err := b.s.Incarnation(b.ctx); err != nil || again.ID != i.ID {
		b.Errorf("a second release: %+v %v", again, err)
	}
}

// testLostWitnesses: what a lost witness remembers holds the database no more, whether it remembers a later state of the database or
// another database.
func testLostWitnesses(b *testEnv) {
	b.node("a")
	i := must.Get(b.s.Incarnation(b.ctx))(b)
	ahead := record.LostWitness{Name: "file", Witness: record.Witness{ID: i.ID, Counter: i.Counter + 7}, User: "op"}
	foreign := record.LostWitness{Name: "host", Witness: record.Witness{ID: "another", Counter: 3}}
	behind := record.LostWitness{Name: "old file", Witness: record.Witness{ID: i.ID, Counter: 1}}
	for _, w := range []record.LostWitness{ahead, foreign, behind} {
		b.do(func(tx job.Tx) error { return b.s.LoseWitness(tx, w) })
	}
	if got, err := b.other().Incarnation(b.ctx); err != nil || got.ID != i.ID || got.Counter != ahead.Counter {
		b.Errorf("%+v %v, want state %d", got, err, ahead.Counter)
	}
	for _, w := range []record.LostWitness{ahead, foreign} {
		if err := b.s.Compare(b.ctx, w.Witness, w.Name); err != nil || b.s.Held() != nil {
			b.Errorf("%s: %v, held %+v", w.Name, err, b.s.Held())
		}
	}
	b.ok(b.s.Compare(b.ctx, record.Witness{ID: "a third", Counter: 1}, "host"))
	if held := b.s.Held(); held == nil || held.Code != record.HeldReplaced {
		b.Errorf("another witness: held %+v", held)
	}
}

// testSaveMany: many records are written at once as each would be alone, and none of them if one was changed meanwhile. The count is that of
// one statement for many records, and some more.
func testSaveMany(b *testEnv) {
	const count = 28
	mac := func(i int) string { return fmt.Sprintf("52:54:00:00:01:%02x", i) }
	var nodes []*metal.Node
	var servers []*compute.Server
	for i := range count {
		nodes = append(nodes, b.node(fmt.Sprint("n", i), func(n *metal.Node) {
			id := n.ID
			*n = *fullNode()
			n.ID, n.Name, n.InstanceUUID, n.Version, n.Protected = id, id, id, 0, i%2 == 0
			n.Plan = &metal.BootPlan{Path: fmt.Sprint("path", i), MACs: []string{mac(i)}}
		}))
		v := fillRecord[compute.Server](i)
		v.ID, v.State = fmt.Sprint("s", i), compute.Active
		b.do(func(tx job.Tx) error { return b.s.Servers().Insert(tx, v) })
		servers = append(servers, v)
	}
	change := func() {
		for i := range count {
			nodes[i].BootNumber, nodes[i].PowerState, nodes[i].Description = int64(i), metal.PowerOff, "it's changed"
			if nodes[i].Plan.MACs = []string{mac(count + i)}; i%2 == 0 {
				nodes[i].Plan = nil
			}
			servers[i].Epoch, servers[i].Locked, servers[i].Name = int64(i), i%2 == 0, "changed"
		}
	}
	change()
	b.do(func(tx job.Tx) error {
		if err := b.s.SaveNodes(tx, nodes); err != nil {
			return err
		}
		return b.s.SaveServers(tx, servers)
	})
	same := func() {
		b.Helper()
		for i := range count {
			n := must.Get(b.s.Node(b.ctx, nil, nodes[i].ID))(b)
			if d := cmp.Diff(nodes[i], n, compareJobs, cmpopts.EquateEmpty()); d != "" || n.Version != 2 || n.UpdatedAt.IsZero() {
				b.Fatalf("node (-want +have):\n%s", d)
			}
			if n, err := b.s.NodeByMAC(b.ctx, mac(count+i)); i%2 == 1 && (err != nil || n.ID != nodes[i].ID) || i%2 == 0 && err == nil {
				b.Errorf("MAC of node %d: %v", i, err)
			}
			if _, err := b.s.NodeByMAC(b.ctx, mac(i)); err == nil {
				b.Errorf("former MAC of node %d is found", i)
			}
			v := must.Get(b.s.Servers().Get(b.ctx, nil, servers[i].ID))(b)
			if d := cmp.Diff(servers[i], v, compareJobs); d != "" || v.Version != 2 {
				b.Fatalf("server (-want +have):\n%s", d)
			}
		}
	}
	same()
	for _, stale := range []int{0, 24, count - 1} {
		n, v := *nodes[stale], *servers[stale]
		n.Version, v.Version = 1, 1
		some, others := slices.Clone(nodes), slices.Clone(servers)
		for i := range count {
			n, v := *nodes[i], *servers[i]
			some[i], others[i] = &n, &v
		}
		some[stale], others[stale] = &n, &v
		b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.SaveNodes(tx, some) }), problem.Conflict, "One of 28 nodes has been changed by another request; please retry.")
		b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.SaveServers(tx, others) }), problem.Conflict, "One of 28 servers has been changed by another request; please retry.")
		same()
	}
	b.do(func(tx job.Tx) error {
		if err := b.s.SaveNodes(tx, nil); err != nil {
			return err
		}
		return b.s.SaveServers(tx, nil)
	})
}

// testVoidAllOrders: the open orders of all servers end with a cause. Those of deleted servers and results stay.
func testVoidAllOrders(b *testEnv) {
	b.server("live")
	b.server("gone", func(v *compute.Server) { v.State = compute.Deleted })
	of := func(server, action string) *compute.Order {
		o := sampleOrder("h1", func(o *compute.Order) { o.ServerID, o.Action = server, action })
		b.order(o)
		return o
	}
	open, done, left := of("live", "a"), of("live", "b"), of("gone", "c")
	must.Get(b.finish(done, compute.Result{}))(b)
	b.do(func(tx job.Tx) error { return b.s.VoidAllOrders(tx, problem.Conflictf("void")) })
	for o, want := range map[*compute.Order]*compute.Result{open: {ErrorKind: problem.Conflict.String(), Error: "void"}, done: {}, left: nil} {
		got := must.Get(b.s.Order(b.ctx, nil, o.ID))(b)
		if d := cmp.Diff(want, got.Result); d != "" || got.Secret.Empty() != (want != nil) {
			b.Errorf("order %s of server %s (-want +have):\n%s", got.Action, got.ServerID, d)
		}
	}
}
