package api

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/google/uuid"

	"salvor/access"
)

type contextKey int

const requestKey contextKey = iota

// Request is what the plumbing knows of a request; handlers reach it through its context.
type Request struct {
	ID   string // "req-" and a UUID
	User access.Principal
	// Connection ends with the client's connection, and not with the time-out of a request: for answers that are streams.
	Connection context.Context
	// hidden is the full cause of the failure, if the answer does not contain it.
	hidden string
	// changed becomes true when a transaction of the request was committed, or may have been.
	changed atomic.Bool
}

// NewRequestID makes a request id as OpenStack spells it.
func NewRequestID() string { return "req-" + uuid.NewString() }

// Of gives what the plumbing knows of the request; an empty Request outside of Serve.
func Of(ctx context.Context) *Request {
	if r, ok := ctx.Value(requestKey).(*Request); ok {
		return r
	}
	return &Request{}
}

// RequestedBy records the client of a request, so that the store gives its transactions their turn among those of other clients.
func RequestedBy(r *http.Request, who access.Principal) *http.Request {
	info := Of(r.Context())
	info.User = who
	source := peerHost(r)
	if v := requestStateOf(r); v != nil {
		source = v.source.String()
	}
	return r.WithContext(access.WithRequester(r.Context(), access.Requester{User: who.Owner(), Source: source, Changed: &info.changed}))
}

// withRequest gives the request a context with a fresh Request in it.
func withRequest(ctx context.Context, r *http.Request) (*http.Request, *Request) {
	info := &Request{ID: NewRequestID(), Connection: r.Context()}
	exchangeOf(ctx).ID = info.ID
	return r.WithContext(context.WithValue(ctx, requestKey, info)), info
}
