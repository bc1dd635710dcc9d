package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"salvor/access"
	"salvor/problem"
)

// acquireDatabaseSlot waits until the caller may use the database. A request waits in its queue, a step of a job at its semaphore; all other
// callers do not wait.
func acquireDatabaseSlot(ctx context.Context, requests *fairQueue, steps semaphore) (release func(), err error) {
	switch classOf(ctx) {
	case requestClass:
		release, err = requests.acquire(ctx)
	case stepClass:
		release, err = steps.acquire(ctx)
	default:
		return func() {}, nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = unavailableError("it is busy", err) // the same error as for a pool without a free connection: the runner repeats a step
	}
	return release, err
}

// semaphore bounds the number of its holders; nil: there is no bound.
type semaphore chan struct{}

func newSemaphore(n int) semaphore {
	if n <= 0 {
		return nil
	}
	return make(semaphore, n)
}

func (s semaphore) acquire(ctx context.Context) (release func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fairQueue bounds how many requests of users use the database at once. Users take turns, and so do the source addresses of one
// user. A client with 500 connections delays another client by one turn, not by 500.
type fairQueue struct {
	seats int // requests that may use the database at once
	limit int // requests of one user from one source that may wait

	mu    sync.Mutex
	used  int
	users roundRobin[*roundRobin[*requestFlow]]
}

// requestFlow holds the waiting requests of one user from one source, oldest first.
type requestFlow struct{ waiting []*queuedRequest }

// queuedRequest is one waiting request; its turn closes granted.
type queuedRequest struct{ granted chan struct{} }

// roundRobin gives turns to its members one after the other.
type roundRobin[T any] struct {
	names   []string
	members map[string]T
	next    int
}

func (r *roundRobin[T]) add(name string, make func() T) T {
	m, ok := r.members[name]
	if !ok {
		if r.members == nil {
			r.members = map[string]T{}
		}
		m = make()
		r.members[name] = m
		// A new member is placed behind all members that were there before.
		r.names = append(r.names[:r.next:r.next], append([]string{name}, r.names[r.next:]...)...)
		r.next++
	}
	return m
}

// turn returns the member that is next, and advances the ring.
func (r *roundRobin[T]) turn() (name string, member T) {
	if r.next >= len(r.names) {
		r.next = 0
	}
	name = r.names[r.next]
	r.next++
	return name, r.members[name]
}

func (r *roundRobin[T]) remove(name string) {
	for i, n := range r.names {
		if n == name {
			r.names = append(r.names[:i], r.names[i+1:]...)
			if i < r.next {
				r.next--
			}
			break
		}
	}
	delete(r.members, name)
}

// maxWaiting bounds the waiting requests of one user from one source. The queue refuses further requests at once.
const maxWaiting = 2000

func newFairQueue(seats int) *fairQueue { return &fairQueue{seats: max(seats, 1), limit: maxWaiting} }

// acquire waits for a seat. A caller without a requester in its context needs none. After a nil error the caller must call release.
func (q *fairQueue) acquire(ctx context.Context) (release func(), err error) {
	requester, ok := access.RequesterOf(ctx)
	if !ok {
		return func() {}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q.mu.Lock()
	if q.used < q.seats { // no request waits while a seat is free
		q.used++
		q.mu.Unlock()
		return q.release, nil
	}
	f := q.users.add(requester.User, func() *roundRobin[*requestFlow] { return &roundRobin[*requestFlow]{} }).add(requester.Source, func() *requestFlow { return &requestFlow{} })
	if len(f.waiting) >= q.limit {
		q.mu.Unlock()
		return nil, problem.RetryAfter(5*time.Second, problem.Unavailablef("%d requests of this client wait for the database already; ask again in 5 s", q.limit))
	}
	s := &queuedRequest{granted: make(chan struct{})}
	f.waiting = append(f.waiting, s)
	q.mu.Unlock()
	select {
	case <-s.granted:
		return q.release, nil
	case <-ctx.Done():
		q.leave(requester, s)
		return nil, ctx.Err()
	}
}

// leave removes a request that stopped waiting from the queue. If the request got a seat meanwhile, leave grants that seat to the
// next one.
func (q *fairQueue) leave(requester access.Requester, s *queuedRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-s.granted:
		q.grant()
		return
	default:
	}
	user := q.users.members[requester.User]
	f := user.members[requester.Source]
	for i, one := range f.waiting {
		if one == s {
			f.waiting = append(f.waiting[:i], f.waiting[i+1:]...)
			break
		}
	}
	q.forget(requester.User, requester.Source)
}

func (q *fairQueue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.grant()
}

// grant passes a free seat to the request whose turn it is.
func (q *fairQueue) grant() {
	if len(q.users.names) == 0 {
		q.used--
		return
	}
	name, user := q.users.turn()
	source, f := user.turn()
	s := f.waiting[0]
	f.waiting[0] = nil
	f.waiting = f.waiting[1:]
	q.forget(name, source)
	close(s.granted)
}

// forget removes a flow without waiting requests, and its user with the last flow.
func (q *fairQueue) forget(name, source string) {
	user := q.users.members[name]
	if len(user.members[source].waiting) > 0 {
		return
	}
	if user.remove(source); len(user.members) == 0 {
		q.users.remove(name)
	}
}
