package odd

import (
	"bytes"
	"context"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// firstTime remembers when a thing happened first.
type firstTime struct {
	mu sync.Mutex
	at time.Time
}

// since is how long ago the first call was.
func (f *firstTime) since() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.IsZero() {
		f.at = time.Now()
	}
	return time.Since(f.at)
}

// powerChange is a change that is under way for taskDelay.
type powerChange struct {
	mu  sync.Mutex
	end time.Time
	as  string
}

func (u *powerChange) begin(word string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.end, u.as = time.Now().Add(taskDelay), word
}

func (u *powerChange) running() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Now().Before(u.end)
}

func (u *powerChange) word() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.as
}

// laterRequest is a request that is carried out when its sender has gone.
func laterRequest(r *http.Request, body []byte) *http.Request {
	later := r.Clone(context.WithoutCancel(r.Context()))
	later.Body = io.NopCloser(bytes.NewReader(body))
	return later
}

// connectionSet is a set of connections.
type connectionSet struct {
	mu   sync.Mutex
	seen map[string]bool
}

// first tells whether a connection was not there before.
func (s *connectionSet) first(connection string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	before := s.seen[connection]
	s.seen[connection] = true
	return !before
}

// sessionUsage counts requests by session.
type sessionUsage struct {
	mu sync.Mutex
	by map[string]int
}

func (u *sessionUsage) add(token string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.by = map[string]int{}
	}
	u.by[token]++
	return u.by[token]
}

// staleCache shows what resources read before an order.
type staleCache struct {
	mu    sync.Mutex
	until time.Time
	old   map[string]*httptest.ResponseRecorder
}

func (c *staleCache) freeze(long time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !time.Now().Before(c.until) {
		c.until = time.Now().Add(long)
	}
}

func (c *staleCache) read(w http.ResponseWriter, r *http.Request, next http.Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.old[r.URL.String()]
	if a == nil || !time.Now().Before(c.until) {
		a = askService(r, next)
		if c.old == nil {
			c.old = map[string]*httptest.ResponseRecorder{}
		}
		c.old[r.URL.String()] = a
	}
	sendBytes(w, a.Code, a.Header(), a.Body.Bytes())
}

func hashOf(text []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(text)
	return h.Sum64()
}
