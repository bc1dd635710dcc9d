package storetest

import (
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"salvor/job"
	"salvor/store"
)

func testEvents(b *bench) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	e := job.Event{Subject: job.Node("a"), At: at, Type: "action", Text: "t", Severity: "error", JobID: "j", Action: "boot", Duration: 1500 * time.Microsecond,
		RequestID: "r", User: "u"}
	b.do(func(tx job.Tx) error {
		for _, e := range []job.Event{e, {Subject: job.Node("b"), Text: "other"}, {Subject: job.Node("a"), Text: "second"}} {
			if err := b.s.Append(tx, e); err != nil {
				return err
			}
		}
		return nil
	})
	got, err := b.s.Events(b.ctx, job.Node("a"), 0, 10)
	b.ok(err)
	e.Seq = 1
	if len(got) != 2 || got[1].Seq != 2 || got[1].At.IsZero() || got[1].Severity != "info" {
		b.Fatalf("events %+v", got)
	}
	if d := cmp.Diff(e, got[0]); d != "" {
		b.Fatalf("event differs (-want +have):\n%s", d)
	}
	got, err = b.s.Events(b.ctx, job.Node("a"), 1, 10)
	b.ok(err)
	if len(got) != 1 || got[0].Text != "second" {
		b.Fatalf("events after the first: %+v", got)
	}
	if got, err = b.s.Events(b.ctx, job.Node("a"), 0, 1); err != nil || len(got) != 1 || got[0].Seq != 1 {
		b.Fatalf("one event: %+v %v", got, err)
	}
	if got, err = b.s.Latest(b.ctx, job.Node("a"), 1); err != nil || len(got) != 1 || got[0].Seq != 2 {
		b.Fatalf("the latest event: %+v %v", got, err)
	}
	if got, err = b.s.Latest(b.ctx, job.Node("a"), 10); err != nil || len(got) != 2 || got[0].Seq != 1 {
		b.Fatalf("the latest events, oldest first: %+v %v", got, err)
	}
}

// testEventsGapless: many write to one timeline, some come to nothing; the numbers run 1, 2, 3.
func testEventsGapless(b *bench) {
	stores := []*store.Store{b.s, b.other()}
	kept := race(30, func(i int) bool {
		s := stores[i%2]
		err := s.Do(b.ctx, func(tx job.Tx) error {
			if err := s.Append(tx, job.Event{Subject: job.Node("a"), Text: fmt.Sprint(i)}); err != nil {
				return err
			}
			if i%5 == 0 {
				return fmt.Errorf("no")
			}
			return nil
		})
		if (err == nil) == (i%5 == 0) {
			b.Error(err)
		}
		return err == nil
	})
	got, err := b.s.Events(b.ctx, job.Node("a"), 0, 100)
	b.ok(err)
	if kept != 24 || len(got) != kept {
		b.Fatalf("%d events of %d", len(got), kept)
	}
	for i, e := range got {
		if e.Seq != int64(i)+1 {
			b.Fatalf("event %d has the number %d", i+1, e.Seq)
		}
	}
}

func testPrune(b *bench) {
	now := time.Now()
	b.do(func(tx job.Tx) error {
		for i := range 10 {
			for _, id := range []string{"a", "b"} {
				at := now
				if i < 4 {
					at = now.Add(-time.Hour)
				}
				if id == "b" && i >= 3 {
					continue
				}
				if err := b.s.Append(tx, job.Event{Subject: job.Node(id), At: at}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	n, err := b.s.Prune(b.ctx, now.Add(-2*time.Hour), 0)
	b.ok(err)
	if n != 0 {
		b.Fatalf("%d events pruned of none", n)
	}
	n, err = b.s.Prune(b.ctx, now.Add(-time.Minute), 2)
	b.ok(err)
	left, err := b.s.Events(b.ctx, job.Node("a"), 0, 100)
	b.ok(err)
	if n != 11 || len(left) != 2 || left[0].Seq != 9 {
		b.Fatalf("%d pruned, left %+v", n, left)
	}
	// The counter goes on.
	b.do(func(tx job.Tx) error { return b.s.Append(tx, job.Event{Subject: job.Node("b")}) })
	if left, err = b.s.Events(b.ctx, job.Node("b"), 0, 100); err != nil || len(left) != 1 || left[0].Seq != 4 {
		b.Fatalf("after a prune of all: %+v %v", left, err)
	}
}
