package job

import "context"

// Feed is the timeline of all subjects in one order. Its numbers rise, with gaps. Where several processes write, an event may become
// visible after one with a higher number: only up to what is Settled nothing can come any more.
type Feed interface {
	// Feed lists events with Num > f.After, at most limit, by Num: the first ones, or with f.Newest the last ones.
	Feed(ctx context.Context, f FeedFilter, limit int) ([]Event, error)
	// FindSubject finds what has events by its kind and by its UUID or name. A UUID that no record has any more is good: its events may be
	// there. problem.NotFound: no record has the name, or nothing of the kind has events. problem.Conflict: several have the name.
	FindSubject(ctx context.Context, kind, ident string) (subject Subject, name string, err error)
	// SubjectNames are the names of records, by one query; those without a name, and those that are gone, have no entry.
	SubjectNames(ctx context.Context, subjects []Subject) (map[Subject]string, error)
	// Settle tells up to which number all events are visible that ever will be. was is what the last call gave, or zero.
	Settle(ctx context.Context, was Settled) (Settled, error)
	// EventsChanged gives a channel that is closed at the next commit that wrote an event here: a hint over polling.
	EventsChanged() <-chan struct{}
}

// FeedFilter narrows the feed; zero fields do not narrow.
type FeedFilter struct {
	Subjects []Subject
	Type     string
	After    int64
	Newest   bool
}

// Settled is the state of a look that may take two. Number Next is settled once no transaction runs that began before Fence.
type Settled struct{ UpTo, Next, Fence int64 }
