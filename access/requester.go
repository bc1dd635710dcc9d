package access

import (
	"context"
	"sync/atomic"
)

// Requester is the client of a request: the queues of the store share their turns among requesters.
type Requester struct {
	// User is who asks, Source the address that the request came from.
	User, Source string
	// Changed is set once a transaction of the request was committed, or may have been; nil: nobody asks.
	Changed *atomic.Bool
}

type requesterKey struct{}

// WithRequester marks a context as one of a user's request. Accepted work, heartbeats and lease renewals have no requester.
func WithRequester(ctx context.Context, r Requester) context.Context {
	return context.WithValue(ctx, requesterKey{}, r)
}

// RequesterOf gives the requester of a context; false: no user's request began it.
func RequesterOf(ctx context.Context) (Requester, bool) {
	r, ok := ctx.Value(requesterKey{}).(Requester)
	return r, ok
}
