package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/store"
)

// countConcurrentWins runs fn n times at once and counts how often it was true.
func countConcurrentWins(n int, fn func(i int) bool) int {
	var wins atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			if fn(i) {
				wins.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	return int(wins.Load())
}

func newNode(id string) *metal.Node { return &metal.Node{ID: id, ProvisionState: metal.Enroll} }

func (b *testEnv) has(id string) bool {
	b.Helper()
	_, err := b.s.Node(b.ctx, nil, id)
	if err != nil && !problem.Is(err, problem.NotFound) {
		b.Fatal(err)
	}
	return err == nil
}

// testTransaction: all or nothing, each caller for itself, however many share a commit.
func testTransaction(b *testEnv) {
	refusal := errors.New("no")
	failed := countConcurrentWins(40, func(i int) bool {
		err := b.s.Do(b.ctx, func(tx job.Tx) error {
			for _, half := range []string{"a", "b"} {
				if err := b.s.InsertNode(tx, newNode(fmt.Sprint(i, half))); err != nil {
					return err
				}
			}
			if i%3 == 0 {
				return refusal
			}
			return nil
		})
		if (i%3 == 0) != errors.Is(err, refusal) || err != nil && i%3 != 0 {
			b.Errorf("caller %d: %v", i, err)
		}
		return err != nil
	})
	if failed != 14 {
		b.Errorf("%d callers failed, want 14", failed)
	}
	for i := range 40 {
		for _, half := range []string{"a", "b"} {
			if b.has(fmt.Sprint(i, half)) == (i%3 == 0) {
				b.Errorf("caller %d: half %s is there: %v", i, half, i%3 != 0)
			}
		}
	}
	var kept job.Tx
	b.do(func(tx job.Tx) error { kept = tx; return nil })
	for _, tx := range []job.Tx{nil, kept} {
		if err := b.s.InsertNode(tx, newNode("late")); err == nil || b.has("late") {
			b.Error("written outside of a transaction")
		}
	}
	if _, err := b.s.Node(b.ctx, kept, "1a"); err == nil {
		b.Error("read in a transaction that is over")
	}
}

// testCancelled: a caller who leaves before its turn leaves nothing; later its end
// changes nothing; nor does it touch anybody else.
func testCancelled(b *testEnv) {
	gone, cancel := context.WithCancel(b.ctx)
	cancel()
	ran := false
	if err := b.s.Do(gone, func(job.Tx) error { ran = true; return nil }); !errors.Is(err, context.Canceled) || ran {
		b.Fatalf("a caller that has left: ran %v, %v", ran, err)
	}
	during, cancel := context.WithCancel(b.ctx)
	err := b.s.Do(during, func(tx job.Tx) error {
		cancel()
		return b.s.InsertNode(tx, newNode("during"))
	})
	if err != nil || !b.has("during") {
		b.Fatalf("a caller that leaves during its turn: %v", err)
	}
	late, cancel := context.WithDeadline(b.ctx, time.Unix(0, 0)) // the time of a step passes while the database is busy: the step is repeated
	defer cancel()
	if _, err := b.s.Node(late, nil, "during"); !problem.Is(err, problem.Unavailable) || !problem.IsDatabase(err) {
		b.Errorf("a read whose time has passed: %v; want an outage of the database", err)
	}
	if err := b.s.Do(late, func(job.Tx) error { return nil }); !problem.Is(err, problem.Unavailable) || !problem.IsDatabase(err) {
		b.Errorf("a transaction whose time has passed: %v; want an outage of the database", err)
	}
	lost := countConcurrentWins(60, func(i int) bool {
		ctx, cancel := context.WithCancel(b.ctx)
		defer cancel()
		if i%2 == 1 {
			go cancel()
		}
		id := fmt.Sprint("n", i)
		err := b.s.Do(ctx, func(tx job.Tx) error { return b.s.InsertNode(tx, newNode(id)) })
		if err != nil && (i%2 == 0 || !errors.Is(err, context.Canceled)) {
			b.Errorf("caller %d: %v", i, err)
		}
		n, _ := b.s.Node(b.ctx, nil, id)
		return (n != nil) != (err == nil)
	})
	if lost != 0 {
		b.Errorf("%d callers were told the wrong thing", lost)
	}
}

// testPanic: neither a panic nor the end of a goroutine inside of a closure stays, or stops others.
func testPanic(b *testEnv) {
	countConcurrentWins(12, func(i int) bool {
		id := fmt.Sprint("n", i)
		done := make(chan any)
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					done <- p
				}
			}()
			_ = b.s.Do(b.ctx, func(tx job.Tx) error {
				if err := b.s.InsertNode(tx, newNode(id)); err != nil {
					return err
				}
				switch i % 3 {
				case 0:
					panic("as planned")
				case 1:
					runtime.Goexit()
				}
				return nil
			})
		}()
		p := <-done
		if (p != nil) != (i%3 == 0) {
			b.Errorf("caller %d: panic %v", i, p)
		}
		return true
	})
	for i := range 12 {
		if b.has(fmt.Sprint("n", i)) != (i%3 == 2) {
			b.Errorf("caller %d: wrong end", i)
		}
	}
}

// testSwallowed: a statement that the engine refused ends the transaction even if the closure looks away.
func testSwallowed(b *testEnv) {
	err := b.s.Do(b.ctx, func(tx job.Tx) error {
		if err := b.s.InsertNode(tx, newNode("a")); err != nil {
			return err
		}
		_ = b.s.InsertPort(tx, &metal.Port{Record: record.Record{ID: "p"}, NodeID: "ghost", Address: "x"})
		return nil
	})
	if err == nil || b.has("a") {
		b.Fatalf("half of a transaction was kept: %v", err)
	}
	// A rule that refuses a row is an answer, not a failure: what is told as Conflict of an insert may be lived with.
	b.do(func(tx job.Tx) error {
		if err := b.s.InsertNode(tx, newNode("b")); err != nil {
			return err
		}
		if err := b.s.InsertNode(tx, newNode("b")); !problem.Is(err, problem.Conflict) {
			return fmt.Errorf("want a conflict, have %v", err)
		}
		return nil
	})
	if !b.has("b") {
		b.Fatal("the row is gone")
	}
}

// testHostileText: no word of a user or a machine makes a statement fail, or differ between engines.
func testHostileText(b *testEnv) {
	for in, want := range map[string]string{"a\x00b": "a\uFFFDb", "\xff\xfe": "\uFFFD", "'; DROP TABLE node; --": "'; DROP TABLE node; --",
		"$1 %s \\ \u2028 \U0001F680": "$1 %s \\ \u2028 \U0001F680"} {
		n := b.node(fmt.Sprintf("%x", in), func(n *metal.Node) {
			n.LastError, n.Description = in, in
			n.Extra = metal.Object{"k\x00": "v\x00"}
		})
		b.do(func(tx job.Tx) error { return b.s.Append(tx, job.Event{Subject: job.Node("t"), Text: in}) })
		got, err := b.s.Node(b.ctx, nil, n.ID)
		b.ok(err)
		if got.LastError != want || got.Extra["k\x00"] != "v\x00" {
			b.Errorf("%q is read as %q and %q", in, got.LastError, got.Extra)
		}
		_, err = b.s.Node(b.ctx, nil, in)
		b.refused(err, problem.NotFound, "")
		list, err := b.s.Nodes(b.ctx, nil, metal.NodeFilter{DescriptionContains: in}, record.Page{})
		b.ok(err)
		if !slices.ContainsFunc(list, func(l *metal.Node) bool { return l.ID == n.ID }) {
			b.Errorf("not found by its description %q", in)
		}
	}
}

// testRestore: a record whose transaction came to nothing is as before, so that it may be tried again.
func testRestore(b *testEnv) {
	n := b.node("a")
	refusal := errors.New("no")
	err := b.s.Do(b.ctx, func(tx job.Tx) error {
		for range 2 {
			if err := b.s.SaveNode(tx, n); err != nil {
				return err
			}
		}
		if n.Version != 3 {
			return fmt.Errorf("version %d inside", n.Version)
		}
		return refusal
	})
	if !errors.Is(err, refusal) || n.Version != 1 || !n.UpdatedAt.IsZero() {
		b.Fatalf("after the rollback: version %d, updated %v, %v", n.Version, n.UpdatedAt, err)
	}
	b.do(func(tx job.Tx) error { return b.s.SaveNode(tx, n) })

	// Read, change, write by many: nobody's change is lost, whatever had to run again.
	second := b.other()
	var refused atomic.Int64
	countConcurrentWins(24, func(i int) bool {
		s := []*store.Store{b.s, second}[i%2]
		for {
			err := s.Do(b.ctx, func(tx job.Tx) error {
				c, err := s.Contact(b.ctx, tx, "a")
				if err != nil {
					return err
				}
				c.PowerFailures++
				return s.SaveContact(tx, c)
			})
			if problem.Is(err, problem.Unavailable) {
				refused.Add(1)
				continue
			}
			if err != nil {
				b.Error(err)
			}
			return true
		}
	})
	c, err := b.s.Contact(b.ctx, nil, "a")
	b.ok(err)
	if c.PowerFailures != 24 {
		b.Fatalf("%d of 24 changes are left (%d refusals)", c.PowerFailures, refused.Load())
	}
}
