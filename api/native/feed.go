package native

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"salvor/job"
	"salvor/problem"
)

// Bounds of those who follow the timeline.
const (
	feedPage     = 256                    // events that one follower holds at most
	feedRing     = 4096                   // events that all of them share
	feedRead     = 1000                   // events of one query for all
	feedPoll     = 500 * time.Millisecond // after which other processes' events are looked for, where no hint came
	feedGap      = 10 * time.Millisecond  // the same while one may have been overtaken; it grows to feedPoll
	maxFollowers = 1000
	maxOfOne     = 50 // followers of one principal
)

// Feed reads the timeline once for all who follow it. While nobody does, it asks nothing.
type Feed struct {
	store job.Feed
	log   *slog.Logger

	mu        sync.Mutex
	followers int
	of        map[string]int // followers by principal
	began     chan struct{}  // the first follower has come
	over      bool
	news      chan struct{} // closed when head is raised, or all is over
	// ring are the newest events up to head, all that there are after low.
	ring      []job.Event
	low, head int64
	ready     bool // head is one that was settled
	settled   job.Settled
	// gap is Run's own: how long it waits for what may come before events that are seen, 0 where nothing may.
	gap time.Duration
}

// NewFeed makes a feed; Run keeps it.
func NewFeed(store job.Feed, log *slog.Logger) *Feed {
	return &Feed{store: store, log: log, of: map[string]int{}, began: make(chan struct{}, 1), news: make(chan struct{})}
}

// Run reads for the followers until ctx ends; then they end too.
func (f *Feed) Run(ctx context.Context) error {
	defer f.end()
	for ctx.Err() == nil {
		if !f.followed() {
			select {
			case <-ctx.Done():
			case <-f.began:
			}
			continue
		}
		told := f.store.EventsChanged() // before the look: what is told meanwhile is looked for at once
		wait, err := f.turn(ctx)
		if err != nil && ctx.Err() == nil {
			f.log.Warn("read the timeline for those who follow it", "error", err)
			wait = time.Second
		}
		if wait == 0 {
			continue
		}
		if f.gap > 0 {
			told = nil // what comes after the gap is told no sooner for that
		}
		pause := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-told:
			// Many commits follow each other: they are read together.
			sleepFor(ctx, 10*time.Millisecond)
		case <-pause.C:
		}
		pause.Stop()
	}
	return nil
}

func sleepFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (f *Feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	close(f.news)
}

func (f *Feed) followed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers == 0 {
		f.ring, f.ready = nil, false
	}
	return f.followers > 0
}

// turn reads what is new, as far as nothing can come before it any more; it tells how long to wait, 0: there is more.
func (f *Feed) turn(ctx context.Context) (time.Duration, error) {
	f.mu.Lock()
	ready, head := f.ready, f.head
	f.mu.Unlock()
	if !ready {
		at, err := f.horizon(ctx)
		if err != nil {
			return 0, err
		}
		f.raise(at, nil)
		f.gap = 0
		return 0, nil
	}
	// What is settled is asked for before the rows are read: later it would hold for some that were not there yet.
	at, gap := int64(0), f.gap
	if gap > 0 {
		var err error
		if at, err = f.settle(ctx); err != nil {
			return 0, err
		}
		// One row tells whether there is more to read: any transaction of the server may last for hours.
		next, err := f.store.Feed(ctx, job.FeedFilter{After: head}, 1)
		if err == nil && len(next) > 0 && next[0].Num > max(head+1, at) {
			f.gap = min(2*gap, feedPoll)
			return f.gap, nil
		}
	}
	rows, err := f.store.Feed(ctx, job.FeedFilter{After: head}, feedRead)
	if err != nil {
		return 0, err
	}
	// Numbers that follow each other leave no room for another.
	n := 0
	for last := head; n < len(rows) && rows[n].Num <= max(last+1, at); n++ {
		last = rows[n].Num
	}
	if n > 0 {
		f.raise(rows[n-1].Num, rows[:n])
	}
	f.gap = 0
	switch {
	case n < len(rows):
		f.gap = feedGap
		if gap == 0 {
			_, err = f.settle(ctx)
		}
		return f.gap, err
	case n == feedRead:
		return 0, nil
	}
	return feedPoll, nil
}

// raise tells the followers of more events, up to head.
func (f *Feed) raise(head int64, more []job.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ready {
		f.ready, f.low = true, head
	}
	f.head = head
	f.ring = append(f.ring, more...)
	if over := len(f.ring) - feedRing; over > 0 {
		f.low = f.ring[over-1].Num
		f.ring = slices.Clone(f.ring[over:])
	}
	close(f.news)
	f.news = make(chan struct{})
}

// settle tells up to which number nothing can come any more.
func (f *Feed) settle(ctx context.Context) (int64, error) {
	f.mu.Lock()
	was := f.settled
	f.mu.Unlock()
	now, err := f.store.Settle(ctx, was)
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settled == was {
		f.settled = now
	}
	return f.settled.UpTo, nil
}

// horizonPatience is how long a look waits for transactions that run to end.
const horizonPatience = time.Second

// horizon is settle for whoever looks only now: the number that was the newest when it began, if those before it end soon.
func (f *Feed) horizon(ctx context.Context) (int64, error) {
	var first int64
	pause := feedGap
	for began := time.Now(); ; sleepFor(ctx, pause) {
		at, err := f.settle(ctx)
		if err != nil {
			return 0, err
		}
		f.mu.Lock()
		next := f.settled.Next
		f.mu.Unlock()
		if first == 0 {
			first = max(next, at)
		}
		if at >= first || time.Since(began) > horizonPatience || ctx.Err() != nil {
			return at, ctx.Err()
		}
		pause = min(2*pause, horizonPatience/4)
	}
}

// follow counts a follower until release is called.
func (f *Feed) follow(requester string) (release func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || f.followers >= maxFollowers {
		return nil, problem.Unavailablef("no more than %d may follow the timeline of one process; ask again", maxFollowers)
	}
	if f.of[requester] >= maxOfOne {
		return nil, problem.Unavailablef("%.100q follows the timeline %d times already: end a stream first", requester, maxOfOne)
	}
	f.followers++
	f.of[requester]++
	select {
	case f.began <- struct{}{}:
	default:
	}
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.followers--
		if f.of[requester]--; f.of[requester] == 0 {
			delete(f.of, requester)
		}
	}), nil
}

// nextEvents is what a follower is given next.
type nextEvents struct {
	events []job.Event
	cursor int64 // all up to it is told
	over   bool
	// news is closed when there may be more; nil: there is more now.
	news <-chan struct{}
}

// next gives what follows a cursor, from the ring where it reaches back so far, else from the store.
func (f *Feed) next(ctx context.Context, filter job.FeedFilter) (nextEvents, error) {
	f.mu.Lock()
	p := nextEvents{cursor: filter.After, over: f.over, news: f.news}
	ready, head, inRing := f.ready, f.head, filter.After >= f.low
	if ready && inRing {
		f.fromRing(filter, &p)
	}
	f.mu.Unlock()
	if p.over || !ready || inRing || filter.After >= head {
		return p, nil
	}
	rows, err := f.store.Feed(ctx, filter, feedPage)
	if err != nil {
		return p, err
	}
	if len(rows) == feedPage {
		head = min(head, rows[len(rows)-1].Num)
	}
	p.events = slices.DeleteFunc(rows, func(e job.Event) bool { return e.Num > head })
	p.cursor, p.news = head, nil
	return p, nil
}

func (f *Feed) fromRing(filter job.FeedFilter, p *nextEvents) {
	from, _ := slices.BinarySearchFunc(f.ring, filter.After+1, func(e job.Event, num int64) int { return int(e.Num - num) })
	for _, e := range f.ring[from:] {
		if len(p.events) == feedPage {
			p.news = nil
			return
		}
		if (len(filter.Subjects) == 0 || slices.Contains(filter.Subjects, e.Subject)) && (filter.Type == "" || filter.Type == e.Type) {
			p.events = append(p.events, e)
		}
		p.cursor = e.Num
	}
	p.cursor = max(p.cursor, f.head)
}
