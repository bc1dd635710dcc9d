package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"salvor/access"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

func requesterAt(user, source string) context.Context {
	return access.WithRequester(context.Background(), access.Requester{User: user, Source: source})
}

// waitUntil polls for a condition that another goroutine brings about.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (q *fairQueue) waitingRequests() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, user := range q.users.members {
		for _, f := range user.members {
			n += len(f.waiting)
		}
	}
	return n
}

// TestClientsTakeTurns: users take turns, and so do the sources of one user, in whatever order they came.
func TestClientsTakeTurns(t *testing.T) {
	q := newFairQueue(1)
	release := must.Get(q.acquire(requesterAt("holder", "x")))(t)
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	waiting := 0
	ask := func(user, source string) {
		all.Go(func() {
			release, err := q.acquire(requesterAt(user, source))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, user+source)
			mu.Unlock()
			release()
		})
		waiting++
		waitUntil(t, "the request waits", func() bool { return q.waitingRequests() == waiting })
	}
	for range 6 {
		ask("many", "1")
	}
	ask("many", "2")
	ask("few", "1")
	ask("few", "1")
	release()
	all.Wait()
	want := []string{"many1", "few1", "many2", "few1", "many1", "many1", "many1", "many1", "many1"}
	if !slices.Equal(order, want) {
		t.Errorf("turns %v, want %v", order, want)
	}
	if q.used != 0 || len(q.users.members) != 0 || len(q.users.names) != 0 {
		t.Errorf("%d seats are taken and %v wait after the last request", q.used, q.users.names)
	}
}

// TestQueueIsBounded: one client may have a limited number of waiting requests, another client still finds room, and a request that
// gives up leaves no trace.
func TestQueueIsBounded(t *testing.T) {
	q := newFairQueue(1)
	q.limit = 2
	release := must.Get(q.acquire(requesterAt("holder", "x")))(t)
	ctx, cancel := context.WithCancel(requesterAt("many", "1"))
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if _, err := q.acquire(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled request was told %v", err)
			}
		})
	}
	waitUntil(t, "two wait", func() bool { return q.waitingRequests() == 2 })
	if _, err := q.acquire(requesterAt("many", "1")); !problem.Is(err, problem.Unavailable) || problem.RetryAfterOf(err) <= 0 {
		t.Errorf("the third was told %v", err)
	}
	all.Go(func() {
		release, err := q.acquire(requesterAt("few", "1"))
		if err != nil {
			t.Error(err)
			return
		}
		release()
	})
	waitUntil(t, "another client waits, too", func() bool { return q.waitingRequests() == 3 })
	if free, err := q.acquire(context.Background()); err != nil {
		t.Errorf("work without a requester: %v", err)
	} else {
		free()
	}
	cancel()
	waitUntil(t, "who gave up has left", func() bool { return q.waitingRequests() == 1 })
	release()
	all.Wait()
	if q.used != 0 || len(q.users.members) != 0 {
		t.Errorf("%d seats are taken and %d users wait after the last request", q.used, len(q.users.members))
	}
}

// TestFairQueueUnderLoad: seats are never given out twice and none is lost, however many give up at the moment of their turn.
func TestFairQueueUnderLoad(t *testing.T) {
	q := newFairQueue(3)
	var mu sync.Mutex
	var all sync.WaitGroup
	inside, most := 0, 0
	for i := range 60 {
		all.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(requesterAt(fmt.Sprint(i%5), fmt.Sprint(i%3)), time.Duration(i%7)*50*time.Microsecond)
				if release, err := q.acquire(ctx); err == nil {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					mu.Lock()
					inside--
					mu.Unlock()
					release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if most > 3 || q.used != 0 || len(q.users.members) != 0 {
		t.Errorf("at most %d were inside, %d seats are taken, %d users wait; want at most 3, 0, 0", most, q.used, len(q.users.members))
	}
}

// TestAcceptedWorkGoesBeforeNewRequests: the writer serves leases and claims first, then steps of jobs, and requests still get a
// quarter of the turns.
func TestAcceptedWorkGoesBeforeNewRequests(t *testing.T) {
	s := openHere(t)
	w := s.engine.(*sqliteEngine).writer
	working := job.ForSteps(context.Background())
	var all sync.WaitGroup
	var order []string
	do := func(ctx context.Context, name string) {
		all.Go(func() {
			if err := s.Do(ctx, func(job.Tx) error { order = append(order, name); return nil }); err != nil {
				t.Error(name, err)
			}
		})
	}
	holding, let := make(chan struct{}), make(chan struct{})
	all.Go(func() {
		if err := s.Do(context.Background(), func(job.Tx) error { close(holding); <-let; w.turns = 0; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-holding
	for range 8 {
		do(requesterAt("u", "s"), "request")
	}
	waitUntil(t, "requests wait", func() bool { return len(w.queue[requestClass]) == 8 })
	for range 4 {
		do(working, "step")
	}
	for range 4 {
		do(context.Background(), "urgent")
	}
	waitUntil(t, "all wait", func() bool { return len(w.queue[stepClass]) == 4 && len(w.queue[urgentClass]) == 4 })
	close(let)
	all.Wait()
	want := []string{"urgent", "step", "urgent", "request", "urgent", "step", "urgent", "request", "step", "step",
		"request", "request", "request", "request", "request", "request"}
	if !slices.Equal(order, want) {
		t.Errorf("order\n%v, want\n%v", order, want)
	}
}

// TestRoomBesideReadsOfSteps: however many steps of jobs read at once, heartbeats and requests still do, and the other way round.
func TestRoomBesideReadsOfSteps(t *testing.T) {
	s := openHere(t)
	look := func(ctx context.Context) error {
		_, err := s.Nodes(ctx, nil, metal.NodeFilter{}, record.Page{})
		return err
	}
	working, asked := job.ForSteps(context.Background()), requesterAt("u", "s")
	var taken []func()
	take := func(ctx context.Context, n int) {
		for range n {
			release := must.Get(acquireDatabaseSlot(ctx, s.readQueue, s.stepReads))(t)
			taken = append(taken, release)
		}
	}
	waits := func(ctx context.Context) bool {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		return problem.Is(look(short), problem.Unavailable) // what a step tries again
	}
	take(working, cap(s.stepReads))
	if !waits(working) {
		t.Error("one step more than there are seats did read")
	}
	for what, ctx := range map[string]context.Context{"a heartbeat": context.Background(), "a request": asked} {
		if err := look(ctx); err != nil {
			t.Errorf("%s, while steps read: %v", what, err)
		}
	}
	take(asked, s.readQueue.seats)
	if !waits(asked) {
		t.Error("one request more than there are seats did read")
	}
	if err := look(context.Background()); err != nil {
		t.Errorf("a heartbeat, while steps and requests read: %v", err)
	}
	for _, release := range taken {
		release()
	}
	for _, ctx := range []context.Context{working, asked} {
		if err := look(ctx); err != nil {
			t.Error(err)
		}
	}
}
