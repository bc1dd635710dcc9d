package access

import (
	"context"
	"sync/atomic"
)

// Requester is the client of a request. The queues of the store give requesters their turns.
type Requester struct {
	// User is the client, Source the address of its connection.
	User, Source string
	// Changed becomes true when a transaction of the request was committed, or may have been; nil: not recorded.
	Changed *atomic.Bool
}

type requesterKey struct{}

// WithRequester adds the requester of a request to a context. Accepted work, heartbeats and lease renewals have none.
func WithRequester(ctx context.Context, r Requester) context.Context {
	return context.WithValue(ctx, requesterKey{}, r)
}

// RequesterOf gives the requester of a context; false: the context belongs to no request of a user.
func RequesterOf(ctx context.Context) (Requester, bool) {
	r, ok := ctx.Value(requesterKey{}).(Requester)
	return r, ok
}
