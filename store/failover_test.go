package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/access"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/store"
	"salvor/store/storetest"
	"salvor/test/must"
)

// openAt opens a store on a PostgreSQL URL as the program does.
func openAt(t *testing.T, at string, opts store.Options) *store.Store {
	t.Helper()
	key := must.Get(secret.NewKey(make([]byte, 32)))(t)
	s := must.Get(store.Open(t.Context(), at, key, opts))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// insertNode gives the error of one small transaction.
func insertNode(t *testing.T, s *store.Store, id string) error {
	t.Helper()
	return insertNodeIn(t.Context(), s, id)
}

func insertNodeIn(ctx context.Context, s *store.Store, id string) error {
	return s.Do(ctx, func(tx job.Tx) error { return s.InsertNode(tx, &metal.Node{ID: id, ProvisionState: metal.Enroll}) })
}

// eventuallyInserted tries until the database accepts a node, and gives the time that this took. Each refusal must be one that the
// client may repeat.
func eventuallyInserted(t *testing.T, s *store.Store, id string) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := insertNode(t, s, id)
		if err == nil || problem.Is(err, problem.Conflict) { // it was taken, though the connection ended before that was told
			return time.Since(began)
		}
		if !problem.Is(err, problem.Unavailable) {
			t.Fatalf("refused otherwise than as one that may be asked again: %v", err)
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("still refused: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestNoWriteGoesToAStandby: a URL that names a standby before the primary works. It still works with the remaining server after the
// primary's death.
func TestNoWriteGoesToAStandby(t *testing.T) {
	p := storetest.NewPair(t, true)
	p.Database("one")
	at := "postgres://postgres@/one?host=" + url.QueryEscape(p.Standby.Dir()+","+p.Primary.Dir()) + "&sslmode=disable"
	s := openAt(t, at, store.Options{Migrate: store.MigrateEmpty})
	must.OK(t, insertNode(t, s, "before"))
	p.Primary.Kill()
	if err := insertNode(t, s, "lost"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("without a primary: %v", err)
	}
	if _, err := s.Node(t.Context(), nil, "before"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a read from a standby that was not asked for: %v", err)
	}
	p.Standby.Promote()
	t.Logf("the first write after the promotion took %s", eventuallyInserted(t, s, "after"))
	for _, id := range []string{"before", "after"} {
		if _, err := s.Node(t.Context(), nil, id); err != nil {
			t.Error(err)
		}
	}
}

// TestAReadOnlyServerIsLeft: the store keeps no connection to a server that begins to refuse changes, as after a demotion, and finds
// another one.
func TestAReadOnlyServerIsLeft(t *testing.T) {
	p := storetest.NewPair(t, true)
	s := openAt(t, p.Database("one"), store.Options{Migrate: store.MigrateEmpty})
	must.OK(t, insertNode(t, s, "before"))
	db := must.Get(sql.Open("pgx", p.Primary.URL("one")))(t)
	defer db.Close()
	for _, text := range []string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"} {
		must.Get(db.ExecContext(t.Context(), text))(t)
	}
	for end := time.Now().Add(30 * time.Second); ; {
		// The server takes the setting up in its own time.
		err := insertNode(t, s, "n"+time.Now().Format("150405.000000000"))
		if problem.Is(err, problem.Unavailable) {
			break
		}
		if time.Now().After(end) || err != nil {
			t.Fatalf("the server takes changes on: %v", err)
		}
	}
	p.Standby.Promote()
	eventuallyInserted(t, s, "after")
	other := must.Get(sql.Open("pgx", p.Standby.URL("one")))(t)
	defer other.Close()
	n := 0
	if err := other.QueryRowContext(t.Context(), "SELECT count(*) FROM node WHERE id = 'after'").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows on the server that takes changes: %v", n, err)
	}
}

// TestADeadFirstHostCostsNoConnectionItsTime: the first server of a URL swallows everything. The next connections do not wait for it.
func TestADeadFirstHostCostsNoConnectionItsTime(t *testing.T) {
	d := storetest.CopiedPostgres(t)
	dead, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	living, _ := holed(t, d)
	u, err := url.Parse(living.URL)
	if err != nil {
		t.Fatal(err)
	}
	at := "postgres://postgres@" + dead.Addr().String() + "," + u.Host + u.Path + "?sslmode=disable"
	began := time.Now()
	s := must.Get(store.Open(t.Context(), at, d.Key, store.Options{}))(t)
	t.Cleanup(func() { _ = s.Close() })
	me := job.Conductor{ID: "c", Incarnation: "1", Hostname: "h"}
	must.OK(t, s.Register(t.Context(), me))
	// A beat has two seconds, and its connection is a new one.
	if err = s.RenewLease(t.Context(), me); err != nil {
		t.Logf("a busy machine may miss a beat: %v", err)
		began = began.Add(2 * time.Second)
		must.OK(t, s.RenewLease(t.Context(), me))
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the start beside a dead server took %s", took)
	}
	tool, err := store.OpenDatabase(t.Context(), at, store.Look)
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	if got := tool.URL(); !strings.Contains(got, dead.Addr().String()+","+u.Host) {
		t.Errorf("it calls itself %s", got)
	}
}

// TestPasswordsOfSeveralHostsAreNotShown: the URL of several servers is printed without its password.
func TestPasswordsOfSeveralHostsAreNotShown(t *testing.T) {
	for _, at := range []string{"postgres://u:hunter2@a:1,b:2/x", "postgres://u:hunter2@[::1]:1,[::2]:2/x", "postgres://u@/x?host=a,b&password=hunter2"} {
		if got := store.Masked(at); strings.Contains(got, "hunter2") {
			t.Errorf("%s is shown as %s", at, got)
		}
	}
	if got := store.Masked("postgres://u:hunter2@a:1,b:2/x"); !strings.Contains(got, "a:1,b:2/x") {
		t.Errorf("shown as %s", got)
	}
}

// TestAHungCommitIsAnswered: while a synchronous standby is frozen, a request learns in time that its change may have been made.
// Later changes are refused and not made. Reads go on, and the connections of the server are not used up. After the thaw all goes
// on.
func TestAHungCommitIsAnswered(t *testing.T) {
	t.Parallel()
	p := storetest.NewPair(t, true)
	const conns = 6
	s := openAt(t, p.Database("one"), store.Options{Migrate: store.MigrateEmpty, MaxConns: conns})
	other := openAt(t, p.URL("one"), store.Options{MaxConns: conns}) // another process
	me := job.Conductor{ID: "c", Incarnation: "1", Hostname: "h"}
	must.OK(t, s.Register(t.Context(), me))
	must.OK(t, insertNode(t, s, "before"))
	p.FreezeReceiver()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // as a request has it
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	may, not := 0, 0
	began := time.Now()
	for i := range 3 * conns {
		all.Go(func() {
			id := fmt.Sprint("n", i)
			err := s.Do(ctx, func(tx job.Tx) error {
				return errors.Join(s.InsertNode(tx, &metal.Node{ID: id, ProvisionState: metal.Enroll}),
					s.Insert(tx, &job.Job{Kind: "rescue", Version: 1, Class: job.Operation, Subject: job.Node(id)}))
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case problem.IsUnconfirmed(err) && problem.Is(err, problem.Unavailable):
				may++
			case problem.Is(err, problem.Unavailable):
				not++
			default:
				t.Errorf("a change while no commit ends: %v", err)
			}
		})
	}
	// Requests of users wait in a queue. They must not wait for one hung commit after the other.
	user := access.WithRequester(ctx, access.Requester{User: "ann", Source: "192.0.2.1"})
	for i := range 30 {
		all.Go(func() {
			asked := time.Now()
			err := s.Do(user, func(tx job.Tx) error {
				return s.InsertNode(tx, &metal.Node{ID: fmt.Sprint("n of a user", i), ProvisionState: metal.Enroll})
			})
			mu.Lock()
			defer mu.Unlock()
			if took := time.Since(asked); !problem.Is(err, problem.Unavailable) || took > 20*time.Second {
				t.Errorf("a request behind commits that hang was answered after %s: %v", took, err)
			}
			if problem.IsUnconfirmed(err) {
				may++
			}
		})
	}
	all.Go(func() {
		for range 3 { // a lease is renewed by nobody's mercy either
			if err := s.RenewLease(ctx, me); !problem.Is(err, problem.Unavailable) {
				t.Errorf("a beat while no commit ends: %v", err)
			}
		}
	})
	for range 5 {
		asked := time.Now()
		if _, err := s.Node(ctx, nil, "before"); err != nil || time.Since(asked) > 5*time.Second {
			t.Errorf("a read while no commit ends: %v after %s", err, time.Since(asked))
		}
	}
	all.Wait()
	if took := time.Since(began); took > 30*time.Second || may == 0 || may > conns || not == 0 {
		t.Errorf("after %s %d were told that it may have been made, %d that it was not", took, may, not)
	}
	if since, why := s.WriteFailure(); why == "" || since.IsZero() {
		t.Error("the store thinks that all is well")
	}
	came := time.Now() // a new request does not wait for what hangs already
	if err := insertNodeIn(user, s, "n late"); !problem.Is(err, problem.Unavailable) || problem.IsUnconfirmed(err) || time.Since(came) > 5*time.Second {
		t.Errorf("a request that came while commits hung: %v after %s", err, time.Since(came))
	}
	db := must.Get(sql.Open("pgx", p.Primary.URL("one")))(t)
	defer db.Close()
	backends := 0
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'salvor'").Scan(&backends); err != nil || backends > 3*conns {
		t.Errorf("%d connections: %v", backends, err)
	}
	t.Logf("%d may have been made, %d were not, %d connections on the server, %s", may, not, backends, time.Since(began))
	for _, s := range []*store.Store{s, other} {
		for len(s.Woken()) > 0 { // what woke before
			<-s.Woken()
		}
	}
	p.Standby.Thaw()
	for name, s := range map[string]*store.Store{"this process": s, "another process": other} {
		select {
		case <-s.Woken():
		case <-time.After(30 * time.Second):
			t.Errorf("%s was not told of jobs when their commits ended", name)
		}
	}
	eventuallyInserted(t, s, "after")
	n := 0
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		must.OK(t, db.QueryRowContext(ctx, "SELECT count(*) FROM node WHERE id LIKE 'n%'").Scan(&n))
		if n == may || time.Now().After(end) {
			break
		}
	}
	if n != may {
		t.Errorf("%d changes were made, %d may have been", n, may)
	}
}

// TestALeaseWaitsForNoCounter: whoever locks the row of the database's counter delays those who raise the counter or hold the
// database, and no lease of a conductor.
func TestALeaseWaitsForNoCounter(t *testing.T) {
	t.Parallel()
	server := storetest.NewInstance(t)
	s := openAt(t, server.URL("postgres"), store.Options{Migrate: store.MigrateEmpty})
	me := job.Conductor{ID: "c", Incarnation: "1", Hostname: "h"}
	must.OK(t, s.Register(t.Context(), me))
	db := must.Get(sql.Open("pgx", server.URL("postgres")))(t)
	defer db.Close()
	locked := must.Get(db.BeginTx(t.Context(), nil))(t)
	defer func() { _ = locked.Rollback() }()
	must.Get(locked.ExecContext(t.Context(), "SELECT 1 FROM incarnation FOR UPDATE"))(t)
	var all sync.WaitGroup
	defer all.Wait()
	for range 3 { // more than there are connections for leases
		all.Go(func() { _, _ = s.Raise(t.Context()) })
	}
	for end, n := time.Now().Add(30*time.Second), 0; n < 2; time.Sleep(10 * time.Millisecond) {
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&n); err != nil || time.Now().After(end) {
			t.Fatalf("%d wait for the row: %v", n, err)
		}
	}
	for tries := 3; ; tries-- { // a busy machine may miss a beat; the row stays locked
		if err := s.RenewLease(t.Context(), me); err == nil {
			break
		} else if tries == 1 {
			t.Errorf("a lease beside those who wait for the counter: %v", err)
			break
		}
	}
	if err := locked.Rollback(); err != nil {
		t.Error(err)
	}
}

// TestCloseWaitsForTransactions: Close waits for the transaction that has begun, refuses others meanwhile, and the transaction is
// committed.
func TestCloseWaitsForTransactions(t *testing.T) {
	d := storetest.CopiedPostgres(t)
	s := must.Get(store.Open(t.Context(), d.URL, d.Key, store.Options{}))(t)
	begun, release, closed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once, all = sync.Once{}, sync.WaitGroup{}
	all.Go(func() {
		err := s.Do(t.Context(), func(tx job.Tx) error {
			once.Do(func() { close(begun) })
			<-release
			return s.InsertNode(tx, &metal.Node{ID: "begun", ProvisionState: metal.Enroll})
		})
		if err != nil {
			t.Errorf("the transaction that had begun: %v", err)
		}
	})
	<-begun
	go func() { closed <- s.Close() }()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		err := insertNode(t, s, "n"+time.Now().Format("150405.000000000"))
		if problem.Is(err, problem.Unavailable) {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("a transaction beside Close: %v", err)
		}
	}
	select {
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
	default:
	}
	close(release)
	all.Wait()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
