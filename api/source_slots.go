package api

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
)

// sourceSlots bounds how many questions of one source are under way at once. It is safe for use by several goroutines.
type sourceSlots struct {
	most int

	mu     sync.Mutex
	shared map[netip.Addr]*sharedSlots
}

// sharedSlots are those of one source, as long as one of its requests uses or awaits one.
type sharedSlots struct {
	slots chan struct{}
	users int
}

func newSourceSlots(most int) *sourceSlots {
	return &sourceSlots{most: most, shared: map[netip.Addr]*sharedSlots{}}
}

// acquire waits for a slot of the source until ctx ends; release gives it back.
func (s *sourceSlots) acquire(ctx context.Context, source netip.Addr) (release func(), err error) {
	s.mu.Lock()
	own := s.shared[source]
	if own == nil {
		own = &sharedSlots{slots: make(chan struct{}, s.most)}
		s.shared[source] = own
	}
	own.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(s.shared, source)
		}
	}
	select {
	case own.slots <- struct{}{}:
		return func() { <-own.slots; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// clientSource is the address of a request's client: the one behind a trusted proxy where the server counts refusals by source.
func clientSource(r *http.Request) netip.Addr {
	if v := requestStateOf(r); v != nil {
		return v.source
	}
	return new(Limits).source(r)
}

// contextSource is clientSource by the context of a request; not valid where nobody counts refusals.
func contextSource(ctx context.Context) netip.Addr {
	if v, ok := ctx.Value(requestStateKey).(*requestState); ok {
		return v.source
	}
	return netip.Addr{}
}
