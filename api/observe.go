package api

import (
	"context"
	"net/http"
	"time"
)

// Exchange is a request with its answer, for those who watch.
type Exchange struct {
	ID     string // of the request
	Method string
	// Route is the pattern of the path ("/v1/nodes/{}"); empty: no route was found.
	Route  string
	Status int
	Began  time.Time
	Took   time.Duration
	// Parent is the traceparent header that came with the request.
	Parent string
}

type exchangeKey struct{}

// Observed tells of each request that a dialect served, when it has been answered. Streams, which last, are not told of.
func Observed(next http.Handler, tell func(Exchange)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &Exchange{Method: r.Method, Began: time.Now(), Parent: r.Header.Get("Traceparent")}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, e)))
		if e.ID == "" || w.Header().Get("Content-Type") == "text/event-stream" {
			return
		}
		e.Took = time.Since(e.Began)
		tell(*e)
	})
}

func exchangeOf(ctx context.Context) *Exchange {
	if e, ok := ctx.Value(exchangeKey{}).(*Exchange); ok {
		return e
	}
	return &Exchange{}
}

// Routed notes by which route a request is served.
func Routed(ctx context.Context, pattern string) { exchangeOf(ctx).Route = pattern }
