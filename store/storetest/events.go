package storetest

import (
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"salvor/job"
	"salvor/store"
	"salvor/test/must"
)

func testEvents(b *testEnv) {
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
func testEventsGapless(b *testEnv) {
	stores := []*store.Store{b.s, b.other()}
	kept := countConcurrentWins(30, func(i int) bool {
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
	got := must.Get(b.s.Events(b.ctx, job.Node("a"), 0, 100))(b)
	if kept != 24 || len(got) != kept {
		b.Fatalf("%d events of %d", len(got), kept)
	}
	for i, e := range got {
		if e.Seq != int64(i)+1 {
			b.Fatalf("event %d has the number %d", i+1, e.Seq)
		}
	}
}

func testPrune(b *testEnv) {
	now := time.Now()
	b.do(func(tx job.Tx) error { return b.s.InsertNode(tx, newNode("b")) }) // the counter of a node that is gone does not stay
	b.do(func(tx job.Tx) error {
		for i := range 10 {
			for _, id := range []string{"a", "b"} {
				at := now
				if i < 4 {
					at = now.AddDate(0, 0, -40) // of a week in which nothing is younger
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
	n, err := b.s.Prune(b.ctx, now.AddDate(0, 0, -60), now, 0)
	b.ok(err)
	if n != 0 {
		b.Fatalf("%d events pruned of none", n)
	}
	// What is younger than spare stays, whatever its number.
	n, err = b.s.Prune(b.ctx, now.AddDate(0, 0, -60), now.AddDate(0, 0, -30), 9)
	b.ok(err)
	if n != 1 {
		b.Fatalf("%d pruned by their number; want the oldest of a's ten", n)
	}
	if n, err = b.s.Prune(b.ctx, now.AddDate(0, 0, -60), now.AddDate(0, 0, -50), 2); err != nil || n != 0 {
		b.Fatalf("%d, %v pruned of those that are to stay whatever their number", n, err)
	}
	n, err = b.s.Prune(b.ctx, now.AddDate(0, 0, -30), now.Add(time.Hour), 2)
	b.ok(err)
	left, err := b.s.Events(b.ctx, job.Node("a"), 0, 100)
	b.ok(err)
	if n != 10 || len(left) != 2 || left[0].Seq != 9 {
		b.Fatalf("%d pruned, left %+v", n, left)
	}
	// A record that is gone leaves no counter when its events are gone.
	token := job.Subject{Kind: "token", ID: "t1"}
	for range 2 {
		b.do(func(tx job.Tx) error { return b.s.Append(tx, job.Event{Subject: token, At: now.AddDate(0, 0, -50)}) })
	}
	b.do(func(tx job.Tx) error { return b.s.Append(tx, job.Event{Subject: job.Node("c"), At: now}) }) // the newest event of all stays
	_, err = b.s.Prune(b.ctx, now.AddDate(0, 0, -30), now.Add(time.Hour), 0)
	b.ok(err)
	b.do(func(tx job.Tx) error { return b.s.Append(tx, job.Event{Subject: token, At: now}) })
	if left, err = b.s.Events(b.ctx, token, 0, 100); err != nil || len(left) != 1 || left[0].Seq != 1 {
		b.Fatalf("after a prune of all events of a token: %+v %v, want its counter to begin anew", left, err)
	}
	// The counter of a node goes on.
	b.do(func(tx job.Tx) error { return b.s.Append(tx, job.Event{Subject: job.Node("b")}) })
	if left, err = b.s.Events(b.ctx, job.Node("b"), 0, 100); err != nil || len(left) != 1 || left[0].Seq != 4 {
		b.Fatalf("after a prune of all: %+v %v", left, err)
	}
}

// testFeed: the events of all subjects in one order, in which nothing is missed by who goes on from what it saw last.
func testFeed(b *testEnv) {
	for i := range 6 {
		b.do(func(tx job.Tx) error {
			return b.s.Append(tx, job.Event{Subject: job.Node([]string{"a", "b"}[i%2]), Type: []string{"state", "action", "state"}[i%3], Text: fmt.Sprint(i)})
		})
	}
	texts := func(f job.FeedFilter, limit int) (out string, last int64) {
		events := must.Get(b.s.Feed(b.ctx, f, limit))(b)
		for _, e := range events {
			out += e.Text
			if e.Num <= last {
				b.Fatalf("number %d after %d", e.Num, last)
			}
			last = e.Num
		}
		return out, last
	}
	for _, tt := range []struct {
		f     job.FeedFilter
		limit int
		want  string
	}{
		{job.FeedFilter{}, 10, "012345"}, {job.FeedFilter{}, 2, "01"}, {job.FeedFilter{Newest: true}, 2, "45"},
		{job.FeedFilter{Subjects: []job.Subject{job.Node("a")}}, 10, "024"}, {job.FeedFilter{Subjects: []job.Subject{job.Node("a"), job.Node("b")}}, 10, "012345"},
		{job.FeedFilter{Subjects: []job.Subject{job.Node("a")}, Newest: true}, 2, "24"}, {job.FeedFilter{Type: "action"}, 10, "14"},
		{job.FeedFilter{Subjects: []job.Subject{job.Node("ghost")}}, 10, ""},
	} {
		if got, _ := texts(tt.f, tt.limit); got != tt.want {
			b.Errorf("%+v, %d: %q, want %q", tt.f, tt.limit, got, tt.want)
		}
	}
	_, third := texts(job.FeedFilter{}, 3)
	if got, _ := texts(job.FeedFilter{After: third}, 10); got != "345" {
		b.Errorf("after the third: %q", got)
	}
	_, newest := texts(job.FeedFilter{}, 10)
	waitUntilSettled(b, newest)
}

// waitUntilSettled waits until the events up to a number are settled: transactions of other databases on the server count as well.
func waitUntilSettled(b *testEnv, num int64) {
	at := readSettledNumber(b)
	for end := time.Now().Add(30 * time.Second); at < num && time.Now().Before(end); at = readSettledNumber(b) {
		time.Sleep(10 * time.Millisecond)
	}
	if at < num {
		b.Errorf("settled up to %d of %d", at, num)
	}
}

func readSettledNumber(b *testEnv) int64 {
	var at job.Settled
	for range 3 {
		var err error
		at, err = b.s.Settle(b.ctx, at)
		b.ok(err)
	}
	return at.UpTo
}

// testFeedOvertaken: an event that is committed after one with a higher number is not passed over, because nothing is
// settled while it may come.
func testFeedOvertaken(b *testEnv) {
	if !b.db.Shared {
		b.do(func(tx job.Tx) error { return b.s.Append(tx, job.Event{Subject: job.Node("a")}) })
		return // one writer: what has a number is there
	}
	slow, other := b.other(), b.s
	held, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error)
	first := true
	go func() {
		done <- slow.Do(b.ctx, func(tx job.Tx) error {
			err := slow.Append(tx, job.Event{Subject: job.Node("slow")})
			if first {
				first = false
				close(held)
				<-goOn
			}
			return err
		})
	}()
	<-held
	b.do(func(tx job.Tx) error { return other.Append(tx, job.Event{Subject: job.Node("fast")}) })
	seen, err := other.Feed(b.ctx, job.FeedFilter{}, 10)
	b.ok(err)
	if len(seen) != 1 {
		b.Fatalf("%d events while one is being written", len(seen))
	}
	if at := readSettledNumber(b); at >= seen[0].Num {
		b.Errorf("settled up to %d while a lower number than %d may come", at, seen[0].Num)
	}
	close(goOn)
	b.ok(<-done)
	waitUntilSettled(b, seen[0].Num)
	if seen, err = other.Feed(b.ctx, job.FeedFilter{}, 10); err != nil || len(seen) != 2 || seen[0].Subject.ID != "slow" {
		b.Errorf("%+v %v", seen, err)
	}
}
