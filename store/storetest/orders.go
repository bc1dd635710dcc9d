package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// bothStores are the store and another one on the same database, where the engine allows that; else the store twice.
func bothStores(b *testEnv) []*store.Store { return []*store.Store{b.s, b.other()} }

func sampleOrder(host string, change ...func(*compute.Order)) *compute.Order {
	o := &compute.Order{HostID: host, BootID: "boot1", ServerID: "s", Epoch: 3, Verb: compute.Define, Args: json.RawMessage(`{"power":"on"}`),
		Secret: secret.New(`{"hash":"h"}`), Within: 60, JobID: "j", Action: "define/1"}
	for _, c := range change {
		c(o)
	}
	return o
}

func (b *testEnv) order(o *compute.Order) bool {
	b.Helper()
	var old bool
	b.do(func(tx job.Tx) (err error) { old, err = b.s.InsertOrder(tx, o); return err })
	return old
}

func (b *testEnv) finish(o *compute.Order, r compute.Result) (done *compute.Order, err error) {
	err = b.s.Do(b.ctx, func(tx job.Tx) (err error) {
		done, err = b.s.FinishOrder(tx, o.ID, o.HostID, o.BootID, o.Epoch, r)
		return err
	})
	return done, err
}

func testOrders(b *testEnv) {
	o := sampleOrder("h1")
	if b.order(o) || o.ID == "" || o.CreatedAt.IsZero() {
		b.Fatalf("a new order: %+v", o)
	}
	again := sampleOrder("h1", func(o *compute.Order) { o.Verb = compute.Remove })
	if !b.order(again) || again.ID != o.ID || again.Verb != compute.Define || again.Secret.Reveal() != o.Secret.Reveal() {
		b.Fatalf("the order of a second run: %+v", again)
	}
	for _, c := range []func(*compute.Order){func(o *compute.Order) { o.Epoch++ }, func(o *compute.Order) { o.Action = "define/2" },
		func(o *compute.Order) { o.JobID = "" }, func(o *compute.Order) { o.JobID = "" }} {
		if b.order(sampleOrder("h2", c)) {
			b.Fatal("another action's order was taken for this one's")
		}
	}
	waiting := func(want ...string) {
		b.Helper()
		got := must.Get(b.s.HostsWithOrders(b.ctx))(b)
		if len(got) != len(want) || len(got) == 1 && got[0] != want[0] {
			b.Fatalf("orders for %v, want %v", got, want)
		}
	}
	waiting("h1", "h2")
	for _, sent := range []bool{false, true} {
		open := must.Get(b.s.OpenOrders(b.ctx, "h1"))(b)
		if len(open) != 1 || open[0].SentAt.IsZero() {
			b.Fatalf("open orders (sent before %v): %+v", sent, open)
		}
		o.SentAt = open[0].SentAt
		if d := cmp.Diff(*o, open[0]); d != "" {
			b.Fatalf("the order differs (-want +have):\n%s", d)
		}
		waiting("h2")
	}
	second := must.Get(b.s.OpenOrders(b.ctx, "h2"))(b)
	for i, o := range second[:3] {
		if o.CreatedAt.After(second[i+1].CreatedAt) {
			b.Errorf("not oldest first: %v", second)
		}
	}
}

func testOrderResult(b *testEnv) {
	o := sampleOrder("h1")
	b.order(o)
	b.do(func(tx job.Tx) error { return b.s.OrderProgress(tx, o.ID, "h1", "fetching 40 %") })
	for _, c := range []struct {
		wrong func(*compute.Order)
		kind  problem.Kind
		says  string
	}{
		{func(o *compute.Order) { o.HostID = "h2" }, problem.NotFound, "Order " + o.ID + " could not be found."},
		{func(o *compute.Order) { o.ID = "ghost" }, problem.NotFound, "Order ghost could not be found."},
		{func(o *compute.Order) { o.BootID = "boot0" }, problem.Conflict, ""},
		{func(o *compute.Order) { o.Epoch-- }, problem.Conflict, ""},
	} {
		wrong := *o
		c.wrong(&wrong)
		_, err := b.finish(&wrong, compute.Result{})
		b.refused(err, c.kind, c.says)
	}
	now, err := b.s.Order(b.ctx, nil, o.ID)
	b.ok(err)
	if now.Progress != "fetching 40 %" || now.Result != nil || now.Secret.Empty() {
		b.Fatalf("an open order: %+v", now)
	}
	first := compute.Result{Guest: &compute.Guest{ID: "s", Power: compute.PowerOn}, Fingerprint: "SHA256:f"}
	for _, r := range []compute.Result{first, {Error: "no", ErrorKind: "conflict"}} { // the second result is ignored
		done := must.Get(b.finish(o, r))(b)
		if d := cmp.Diff(&first, done.Result); d != "" || !done.Secret.Empty() || done.FinishedAt.IsZero() || done.JobID != "j" {
			b.Fatalf("a finished order: %+v\n%s", done, d)
		}
	}
	b.do(func(tx job.Tx) error { return b.s.OrderProgress(tx, o.ID, "h1", "late") })
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.OrderProgress(tx, o.ID, "h2", "x") }), problem.NotFound, "")
	if open, err := b.s.OpenOrders(b.ctx, "h1"); err != nil || len(open) != 0 {
		b.Fatalf("open after the result: %v %v", open, err)
	}
	for before, want := range map[time.Time]int{time.Now().Add(-time.Hour): 0, time.Now().Add(time.Hour): 1} {
		if n, err := b.s.PruneOrders(b.ctx, before); err != nil || want == 0 && n != 0 || want == 1 && n > 1 {
			b.Fatalf("pruned %d, want %d: %v", n, want, err)
		}
	}
	_, err = b.s.Order(b.ctx, nil, o.ID)
	b.refused(err, problem.NotFound, "")
}

// testDropJobOrders: the orders of one job go, open and finished, and those of no job and of others stay.
func testDropJobOrders(b *testEnv) {
	open := sampleOrder("h1")
	done := sampleOrder("h1", func(o *compute.Order) { o.Action = "another" })
	other := sampleOrder("h1", func(o *compute.Order) { o.JobID = "j2" })
	none := sampleOrder("h1", func(o *compute.Order) { o.JobID = "" })
	for _, o := range []*compute.Order{open, done, other, none} {
		b.order(o)
	}
	must.Get(b.finish(done, compute.Result{}))(b)
	b.do(func(tx job.Tx) error { return b.s.DropJobOrders(tx, open.JobID) })
	b.do(func(tx job.Tx) error { return b.s.DropJobOrders(tx, "") })
	for o, left := range map[*compute.Order]bool{open: false, done: false, other: true, none: true} {
		if _, err := b.s.Order(b.ctx, nil, o.ID); left != (err == nil) || !left && !problem.Is(err, problem.NotFound) {
			b.Errorf("the order of job %q: %v", o.JobID, err)
		}
	}
}

func testOrdersMove(b *testEnv) {
	old := sampleOrder("h1", func(o *compute.Order) { o.Epoch = 2 })
	now := sampleOrder("h1")
	b.order(old)
	b.order(now)
	_, err := b.s.OpenOrders(b.ctx, "h1")
	b.ok(err)
	b.do(func(tx job.Tx) error { return b.s.MoveOrders(tx, "h1", "boot2") })
	if hosts, err := b.s.HostsWithOrders(b.ctx); err != nil || len(hosts) != 1 {
		b.Fatalf("the new boot does not hear of its orders: %v %v", hosts, err)
	}
	_, err = b.finish(now, compute.Result{})
	b.refused(err, problem.Conflict, "")
	b.do(func(tx job.Tx) error { return b.s.VoidOrders(tx, "s", 3) })
	open, err := b.s.OpenOrders(b.ctx, "h1")
	b.ok(err)
	if len(open) != 1 || open[0].ID != now.ID || open[0].BootID != "boot2" {
		b.Fatalf("open after the epoch rose: %+v", open)
	}
	void, err := b.s.Order(b.ctx, nil, old.ID)
	b.ok(err)
	if void.Result == nil || void.Result.ErrorKind != problem.Conflict.String() || !void.Secret.Empty() {
		b.Fatalf("a void order: %+v", void)
	}
}

// testOrderOnce: of many runs of one action, in two processes, one makes the order and all find it.
func testOrderOnce(b *testEnv) {
	stores := bothStores(b)
	ids := make([]string, 12)
	fresh := countConcurrentWins(len(ids), func(i int) bool {
		s, o, old := stores[i%2], sampleOrder("h1"), true
		err := s.Do(b.ctx, func(tx job.Tx) (err error) {
			o = sampleOrder("h1")
			old, err = s.InsertOrder(tx, o)
			return err
		})
		ids[i] = o.ID
		if err != nil {
			b.Error(err)
		}
		return !old
	})
	for _, id := range ids {
		if fresh != 1 || id != ids[0] {
			b.Fatalf("%d orders were made: %v", fresh, ids)
		}
	}
}

// testOrdersWoken: whoever waits for orders, in whatever process, hears of a commit that gives a host one.
func testOrdersWoken(b *testEnv) {
	stores := bothStores(b)
	for i, what := range []func(){
		func() { b.order(sampleOrder("h1")) },
		func() { b.do(func(tx job.Tx) error { return b.s.MoveOrders(tx, "h1", "boot2") }) },
	} {
		gates := []<-chan struct{}{stores[0].OrdersWoken(), stores[1].OrdersWoken()}
		what()
		for n, gate := range gates {
			select {
			case <-gate:
			case <-time.After(20 * time.Second):
				b.Fatalf("%d: store %d has no hint", i, n)
			}
		}
	}
	gate := b.s.OrdersWoken()
	if b.db.Shared {
		return // a hint of the other process's start may still come
	}
	b.do(func(tx job.Tx) error { return b.s.MoveOrders(tx, "h2", "boot2") })
	select {
	case <-gate:
		b.Error("a hint without an order")
	default:
	}
}

func testLeases(b *testEnv) {
	for i := range 120 {
		b.do(func(tx job.Tx) error {
			return b.s.Hosts().Insert(tx, &compute.Host{Record: record.Record{ID: fmt.Sprint("h", i)}, Kind: compute.AgentHost})
		})
	}
	at := func(i, n int) compute.Lease {
		return compute.Lease{HostID: fmt.Sprint("h", i), BootID: fmt.Sprint("boot", n), RenewedAt: beginning.Add(time.Duration(n) * time.Second), Renewals: int64(n)}
	}
	var many []compute.Lease
	for i := range 130 { // ten of hosts that are not there
		many = append(many, at(i, 5), at(i, 2))
	}
	b.ok(b.s.SaveLeases(b.ctx, nil))
	b.ok(b.s.SaveLeases(b.ctx, many))
	b.ok(b.s.SaveLeases(b.ctx, []compute.Lease{at(0, 4), at(1, 6)})) // what comes late takes nothing back
	got, err := b.s.Leases(b.ctx)
	b.ok(err)
	for i, n := range []int{5, 6, 5} {
		want := at(i, n)
		if i == 0 {
			want.Renewals++ // but it was a word of the host
		}
		if d := cmp.Diff(want, got[fmt.Sprint("h", i)]); d != "" || len(got) != 120 {
			b.Fatalf("%d leases (-want +have):\n%s", len(got), d)
		}
	}
	b.do(func(tx job.Tx) error {
		h, err := b.s.Hosts().Get(b.ctx, tx, "h0")
		if err != nil {
			return err
		}
		return b.s.Hosts().Delete(tx, h)
	})
	if got, err = b.s.Leases(b.ctx); err != nil || len(got) != 119 {
		b.Errorf("%d leases after a host went: %v", len(got), err)
	}
	// Two processes that save all leases do not stand in each other's way.
	stores := bothStores(b)
	if n := countConcurrentWins(4, func(i int) bool { return stores[i%2].SaveLeases(b.ctx, many) == nil }); n != 4 {
		b.Errorf("%d of 4 saves came through", n)
	}
}

// testExamination: what a helper guest found on disks is read back with the result, and lies sealed in the files of the database.
func testExamination(b *testEnv) {
	const line = "eXcErPt-of-fstab"
	o := sampleOrder("h1")
	b.order(o)
	examination := json.RawMessage(`{"systems":["` + line + `"]}`)
	done := must.Get(b.finish(o, compute.Result{Examination: examination}))(b)
	kept := must.Get(b.s.Order(b.ctx, nil, o.ID))(b)
	if string(done.Result.Examination) != string(examination) || string(kept.Result.Examination) != string(examination) || !kept.Secret.Empty() {
		b.Errorf("the result is read back as %s and %s", done.Result.Examination, kept.Result.Examination)
	}
	if b.db.Flush != nil {
		b.db.Flush(b)
	}
	if files := findInFiles(b, b.db.Dirs, line); len(files) != 0 {
		b.Errorf("the examination lies in %v", files)
	}
}
