package native

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/test/must"
)

// gappedTimeline is a timeline in which a number is missing, because its transaction was rolled back, or has not ended yet.
type gappedTimeline struct {
	changed chan struct{}

	mu                  sync.Mutex
	missing, last, upTo int64
	rows, looks         int
	after               func() // happens once, after all rows that there are were read
}

func (g *gappedTimeline) EventsChanged() <-chan struct{} { return g.changed }

func (g *gappedTimeline) Feed(_ context.Context, f job.FeedFilter, limit int) (out []job.Event, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks++
	for n := f.After + 1; n <= g.last && len(out) < limit; n++ {
		if n != g.missing {
			out = append(out, job.Event{Num: n})
		}
	}
	g.rows += len(out)
	if limit > 1 && len(out) > 1 && g.after != nil {
		g.after()
		g.after = nil
	}
	return out, nil
}

func (g *gappedTimeline) Settle(context.Context, job.Settled) (job.Settled, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks++
	return job.Settled{UpTo: g.upTo, Next: g.upTo, Fence: 1}, nil
}

// TestFeedMissesNone: what is committed between the reading of rows and the look at what is settled is told too.
func TestFeedMissesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gappedTimeline{changed: make(chan struct{}), missing: 3, last: 9, upTo: 2}
		f := NewFeed(g, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = f.Run(ctx) })
		g.after = func() { g.missing, g.upTo = 0, g.last } // before anybody follows: the first read of rows must meet it
		release := must.Get(f.follow("ann"))(t)
		time.Sleep(time.Minute)
		if p, err := f.next(ctx, job.FeedFilter{After: 2}); err != nil || len(p.events) != 7 || p.events[0].Num != 3 {
			t.Errorf("a follower was told %+v: %v", p.events, err)
		}
		release()
		stop()
		run.Wait()
	})
}

// TestFeedWaitsAtAGap: as long as some transaction of the server lasts, what comes after a number that is missing is not read again
// and again, however much is told meanwhile; then all of it is told at once.
func TestFeedWaitsAtAGap(t *testing.T) {
	for name, end := range map[string]func(*gappedTimeline){
		"nobody has the number": func(g *gappedTimeline) { g.upTo = g.last },
		"it came late":          func(g *gappedTimeline) { g.missing = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gappedTimeline{changed: make(chan struct{}), missing: 3, last: 900, upTo: 2}
				close(g.changed) // there is always something new
				f := NewFeed(g, slog.New(slog.DiscardHandler))
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = f.Run(ctx) })
				release := must.Get(f.follow("ann"))(t)
				time.Sleep(5 * time.Second)
				g.mu.Lock()
				if g.rows > 1000 || g.looks > 40 {
					t.Errorf("in 5 s %d rows were read with %d looks", g.rows, g.looks)
				}
				end(g)
				g.mu.Unlock()
				time.Sleep(feedPoll + 50*time.Millisecond)
				if p, err := f.next(ctx, job.FeedFilter{After: 2}); err != nil || len(p.events) != feedPage {
					t.Errorf("a follower was told %d events up to %d: %v", len(p.events), p.cursor, err)
				}
				release()
				stop()
				run.Wait()
			})
		})
	}
}

// TestOnePrincipalLeavesStreamsToOthers: it holds so many and no more, and each that ends may be begun again.
func TestOnePrincipalLeavesStreamsToOthers(t *testing.T) {
	f := NewFeed(&gappedTimeline{}, slog.New(slog.DiscardHandler))
	var ends []func()
	for range maxOfOne {
		end := must.Get(f.follow("p1/ann"))(t)
		ends = append(ends, end)
	}
	if _, err := f.follow("p1/ann"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("one stream more: %v", err)
	}
	if end, err := f.follow("p1/bob"); err != nil {
		t.Errorf("another principal: %v", err)
	} else {
		end()
	}
	ends[0]()
	ends[0]() // counted once
	end, err := f.follow("p1/ann")
	if err != nil {
		t.Fatalf("after one ended: %v", err)
	}
	if _, err := f.follow("p1/ann"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("one stream more, after one ended: %v", err)
	}
	for _, one := range append(ends, end) {
		one()
	}
	if n := f.Followers(); n != 0 || len(f.of) != 0 {
		t.Errorf("%d followers and %d principals are left", n, len(f.of))
	}
}

func (g *gappedTimeline) FindSubject(_ context.Context, kind, ident string) (job.Subject, string, error) {
	return job.Subject{Kind: kind, ID: ident}, "", nil
}

func (g *gappedTimeline) SubjectNames(context.Context, []job.Subject) (map[job.Subject]string, error) {
	return nil, nil
}
