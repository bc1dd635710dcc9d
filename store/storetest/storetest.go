// Package storetest is the contract suite of stores, run on every engine. It also makes the databases that tests of other packages need.
package storetest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// Database is one fresh database.
type Database struct {
	URL string
	Key *secret.Key
	// Shared tells that several stores may have it open at once.
	Shared bool
	// Dirs hold all files of the database, for the search for what must not be in them.
	Dirs []string
	// Flush brings all that was committed to the files; nil where it is there already.
	Flush func(t testing.TB)
}

// OnSQLite makes a SQLite database.
func OnSQLite(t testing.TB) Database {
	dir := t.TempDir()
	return Database{URL: "sqlite:" + filepath.Join(dir, "salvor.db"), Key: NewKey(t), Dirs: []string{dir}}
}

// OnPostgres makes a PostgreSQL database.
func OnPostgres(t testing.TB) Database {
	return Database{URL: Postgres(t), Key: NewKey(t), Shared: true, Dirs: []string{filepath.Join(server.dir, "data")}, Flush: runCheckpoint}
}

// NewKey makes a key that nobody else has.
func NewKey(t testing.TB) *secret.Key {
	t.Helper()
	key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
	return key
}

// Open opens a store until the test ends.
func Open(t testing.TB, d Database) *store.Store {
	t.Helper()
	s := must.Get(store.Open(context.Background(), d.URL, d.Key, store.Options{Logger: slog.New(slog.DiscardHandler), NoSync: true}))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// Run proves that stores on databases of fresh keep the contracts of job.Store, metal.Store and compute.Store.
func Run(t *testing.T, fresh func(t testing.TB) Database) {
	for _, c := range []struct {
		name string
		test func(*testEnv)
	}{
		{"node", testNode}, {"node names", testNodeNames}, {"node version", testNodeVersion}, {"node delete", testNodeDelete}, {"node marks", testNodeMarks},
		{"node reservation", testReservation}, {"node filters", testNodeFilters}, {"node pages", testNodePages}, {"boot plan", testBootPlan},
		{"portgroup", testPortgroup}, {"chassis", testChassis}, {"chassis held", testChassisHeld}, {"volume connector", testConnectors}, {"volume target", testTargets},
		{"allocation", testAllocations}, {"deploy template and runbook", testSteps}, {"inspection rule", testInspectionRules}, {"document", testDocuments}, {"repair part", testRepairParts}, {"repair sizes", testRepairSizes},
		{"goes with node", testGoesWithNode}, {"shards", testShards}, {"fleet", testFleet}, {"foreign markers", testForeignMarkers},
		{"flavor", testFlavors}, {"image", testImages}, {"keypair", testKeypairs}, {"volume", testVolumes}, {"host", testHosts},
		{"join token once", testJoinTokenOnce}, {"server", testServers}, {"server lists", testServerLists}, {"server secrets", testServerSecrets},
		{"network", testNetworks}, {"allocate", testAllocate}, {"allocate race", testAllocateRace}, {"allocate many", testAllocateMany}, {"allocate model", testAllocateModel},
		{"token", testTokens}, {"site", testSites}, {"planned nodes", testPlannedNodes}, {"token use", testTokenUse}, {"ended tokens", testEndedTokens},
		{"rescue image", testRescueImages}, {"rescue against remove", testRescueAgainstRemove},
		{"order", testOrders}, {"order result", testOrderResult}, {"orders move", testOrdersMove}, {"drop job orders", testDropJobOrders}, {"order once", testOrderOnce},
		{"orders woken", testOrdersWoken}, {"examination", testExamination}, {"server diagnoses", testServerDiagnoses}, {"lease", testLeases},
		{"host group", testHostGroups}, {"receipt", testReceipts}, {"receipt once", testReceiptOnce}, {"move against admission", testMoveAgainstAdmission},
		{"plan", testPlans}, {"move", testMoves}, {"guest reports", testGuestReports},
		{"port", testPort}, {"port pages", testPortPages}, {"contact", testContact}, {"token told once", testTellToken}, {"power turns", testPowerTurns}, {"power turns shared", testPowerShared},
		{"transaction", testTransaction}, {"cancelled callers", testCancelled}, {"panic", testPanic}, {"swallowed error", testSwallowed},
		{"records after rollback", testRestore}, {"hostile text", testHostileText},
		{"job", testJob}, {"lock", testLock}, {"claim", testClaim}, {"claim once", testClaimOnce}, {"claimed", testClaimed}, {"reschedule earlier", testRescheduleEarlier}, {"save", testSave}, {"fence", testFence},
		{"signal", testSignal}, {"signal under lock", testSignalUnderLock}, {"signal never lost", testSignalRace}, {"signal model", testSignalModel},
		{"interrupt", testInterrupt}, {"abort", testAbort}, {"retry now", testRetryNow}, {"interrupt race", testInterruptRace}, {"retire", testRetire}, {"conductor", testLease}, {"clock", testClock},
		{"expired", testExpired}, {"wait on", testWaitOn}, {"prune jobs", testPruneJobs}, {"woken", testWoken},
		{"events", testEvents}, {"events without gap", testEventsGapless}, {"prune events", testPrune}, {"feed", testFeed}, {"feed overtaken", testFeedOvertaken}, {"census", testCensus},
		{"secrets sealed", testSecretsSealed}, {"wrong key", testWrongKey}, {"key change", testKeyChange}, {"key fence", testKeyFence}, {"reopen", testReopen},
		{"incarnation", testIncarnation}, {"held readings", testHeldReadings}, {"free jobs", testFreeJobs},
		{"restart job", testRestartJob}, {"end without undo", testEndWithoutUndo}, {"release", testRelease}, {"save many", testSaveMany}, {"void all orders", testVoidAllOrders},
		{"lost witnesses", testLostWitnesses},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := fresh(t)
			c.test(&testEnv{T: t, db: d, s: Open(t, d), ctx: t.Context()})
		})
	}
}

// testEnv is what each test works at.
type testEnv struct {
	*testing.T
	db  Database
	s   *store.Store
	ctx context.Context
}

// other gives a second store on the same database where the engine allows it, else the first.
func (b *testEnv) other() *store.Store {
	if !b.db.Shared {
		return b.s
	}
	return Open(b.T, b.db)
}

func (b *testEnv) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// refused checks the kind of an error and that its text tells the user what was the matter.
func (b *testEnv) refused(err error, kind problem.Kind, text string) {
	b.Helper()
	if !problem.Is(err, kind) || text != "" && err.Error() != text {
		b.Fatalf("want %s %q, have %v", kind, text, err)
	}
}

func (b *testEnv) do(fn func(tx job.Tx) error) {
	b.Helper()
	b.ok(b.s.Do(b.ctx, fn))
}

// node inserts a node after change has had its way with it.
func (b *testEnv) node(id string, change ...func(*metal.Node)) *metal.Node {
	b.Helper()
	n := &metal.Node{ID: id, Driver: "fake-hardware", ProvisionState: metal.Enroll}
	for _, c := range change {
		c(n)
	}
	b.do(func(tx job.Tx) error { return b.s.InsertNode(tx, n) })
	return n
}

// insert adds a job of class on the node and gives it as inserted.
func (b *testEnv) insert(class job.Class, node string, change ...func(*job.Job)) *job.Job {
	b.Helper()
	j := &job.Job{Kind: "work", Version: 1, Class: class, Subject: job.Node(node)}
	for _, c := range change {
		c(j)
	}
	b.do(func(tx job.Tx) error { return b.s.Insert(tx, j) })
	return j
}

const owner = "conductor/1"

// retire ends owner.
func (b *testEnv) retire() {
	b.Helper()
	b.ok(b.s.Retire(b.ctx, job.Conductor{ID: "conductor", Incarnation: "1"}))
}

// claim claims all that is due for owner.
func (b *testEnv) claim(owner string) []job.Job {
	b.Helper()
	// Stores of one server know its time to within a round trip.
	jobs := must.Get(b.s.Claim(b.ctx, owner, b.s.Now().Add(time.Second), []string{""}, map[job.Kind]int{"work": 1}, 100))(b)
	return jobs
}

// claimOne claims the one job that is due.
func (b *testEnv) claimOne() job.Job {
	b.Helper()
	jobs := b.claim(owner)
	if len(jobs) != 1 {
		b.Fatalf("want one job, have %d", len(jobs))
	}
	return jobs[0]
}

// parked claims the job that is due and parks it.
func (b *testEnv) parked() job.Job {
	b.Helper()
	j := b.claimOne()
	j.State, j.WaitFor = job.Waiting, "the agent"
	b.save(&j, false)
	return b.read(j.ID)
}

func (b *testEnv) save(j *job.Job, keep bool) {
	b.Helper()
	b.do(func(tx job.Tx) error { return b.s.Save(tx, j, keep) })
	j.Fence++
}

func (b *testEnv) read(id string) job.Job {
	b.Helper()
	j := must.Get(b.s.Job(b.ctx, nil, id))(b)
	return j
}

func (b *testEnv) inState(id string, want job.State) job.Job {
	b.Helper()
	j := b.read(id)
	if j.State != want {
		b.Fatalf("job is %s, want %s", j.State, want)
	}
	return j
}

func (b *testEnv) signal(node string) {
	b.Helper()
	b.do(func(tx job.Tx) error { return b.s.Signal(tx, job.Node(node)) })
}

func pointerTo[T any](v T) *T { return &v }
