package api

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"salvor/problem"
)

// Verdict is what was found out about a credential: until Fresh it is believed without a question, until Stale while nobody can be asked.
type Verdict[V any] struct {
	Value        V
	Fresh, Stale time.Time
}

// Memory remembers for a while what was found out about credentials, good and bad, and has one question asked about each at a
// time: a hundred requests with a token that nobody remembers are one question. Credentials themselves do not lie in it. It is
// safe for use by several goroutines.
type Memory[V any] struct {
	limits MemoryLimits
	now    func() time.Time
	key    []byte // of the names of credentials; new in each process

	mu      sync.Mutex
	known   map[credentialHash]Verdict[V]
	refused map[credentialHash]Verdict[error] // on its own: bad credentials must not drive good ones out
	asked   map[credentialHash]*pendingVerdict[V]
	sources map[netip.Addr]int // how many of asked each source began
}

// sourceShare divides the questions: one source may have 1/sourceShare of them under way. Made-up credentials of one client must not keep all others out.
const sourceShare = 8

// MemoryLimits bound a Memory.
type MemoryLimits struct {
	// Most is how many good credentials are remembered, how many bad ones, and about how many is asked at a time. An eighth of those may come from
	// one source.
	Most int
	// Refuse is how long a bad credential is refused without a new question.
	Refuse time.Duration
	// Question is how long one may take.
	Question time.Duration
	// Wait is how long a request waits for the answer to a question, which goes on without it; 0: as long as the question takes.
	// StaleWait is the same for a request whose credential was known and is not Stale yet.
	Wait, StaleWait time.Duration
}

type credentialHash [sha256.Size]byte

type pendingVerdict[V any] struct {
	over    chan struct{}
	verdict Verdict[V]
	err     error
}

// NewMemory makes an empty one.
func NewMemory[V any](l MemoryLimits, now func() time.Time) *Memory[V] {
	m := &Memory[V]{
		limits: l, now: now, key: make([]byte, 32), known: map[credentialHash]Verdict[V]{}, refused: map[credentialHash]Verdict[error]{}, asked: map[credentialHash]*pendingVerdict[V]{},
		sources: map[netip.Addr]int{},
	}
	_, _ = rand.Read(m.key) // never fails: it ends the program instead
	return m
}

func (m *Memory[V]) name(text string) (name credentialHash) {
	h := hmac.New(sha256.New, m.key)
	h.Write([]byte(text))
	h.Sum(name[:0])
	return name
}

// Find gives what is known of a credential, and asks where nothing is. ask goes on though the one who came first goes away: others
// may wait for the same answer. An error of ask with the status 401 is remembered; one that nobody could be asked gives way to what
// was known before, as long as that is good for it. ctx is that of the request: a source with more than its share of questions gets a 503.
func (m *Memory[V]) Find(ctx context.Context, text string, ask func(context.Context) (Verdict[V], error)) (V, error) {
	name, source := m.name(text), contextSource(ctx)
	m.mu.Lock()
	now := m.now()
	old, known := m.known[name]
	bad, refused := m.refused[name]
	q := m.asked[name]
	usable := known && now.Before(old.Stale)
	full := q == nil && len(m.asked) >= m.limits.Most
	overShare := q == nil && source.IsValid() && m.sources[source] >= max(m.limits.Most/sourceShare, 1)
	switch {
	case known && now.Before(old.Fresh):
		m.mu.Unlock()
		return old.Value, nil
	case refused && now.Before(bad.Fresh):
		m.mu.Unlock()
		return *new(V), bad.Value
	case (full || overShare) && usable:
		m.mu.Unlock()
		return old.Value, nil
	case full:
		m.mu.Unlock()
		return *new(V), Later(time.Second, "too many credentials to look into at once; ask again")
	case overShare:
		m.mu.Unlock()
		return *new(V), Later(time.Second, "too many credentials of your address to look into at once; ask again")
	case q == nil:
		m.sources[source]++
		q = &pendingVerdict[V]{over: make(chan struct{})}
		m.asked[name] = q
		go m.answer(context.WithoutCancel(ctx), name, source, q, ask)
	}
	m.mu.Unlock()
	wait := m.limits.Wait
	if usable {
		wait = m.limits.StaleWait
	}
	ctx, cancel := contextWithin(ctx, wait)
	defer cancel()
	select {
	case <-q.over:
	case <-ctx.Done():
		if usable && context.Cause(ctx) == errSlowAnswer {
			return old.Value, nil
		}
		return *new(V), Later(time.Second, "it cannot be told in time who asks; ask again")
	}
	if q.err != nil && usable && Status(q.err) == http.StatusServiceUnavailable {
		return old.Value, nil
	}
	return q.verdict.Value, q.err
}

// errSlowAnswer is why a request stopped waiting whose client still waits.
var errSlowAnswer = errors.New("no answer in time about a credential")

// contextWithin ends with errSlowAnswer after wait; 0: it ends with ctx.
func contextWithin(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, wait, errSlowAnswer)
}

func (m *Memory[V]) answer(ctx context.Context, name credentialHash, source netip.Addr, q *pendingVerdict[V], ask func(context.Context) (Verdict[V], error)) {
	ctx, cancel := context.WithTimeout(ctx, m.limits.Question)
	defer cancel()
	q.err = errPanic // unless ask comes to an end
	defer func() {
		m.mu.Lock()
		delete(m.asked, name)
		if m.sources[source]--; m.sources[source] == 0 {
			delete(m.sources, source)
		}
		m.mu.Unlock()
		close(q.over)
	}()
	verdict, err := ask(ctx)
	q.verdict, q.err = verdict, err
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	switch {
	case err == nil:
		delete(m.refused, name)
		cacheVerdict(m.known, name, verdict, m.limits.Most, now)
	case Status(err) == http.StatusUnauthorized:
		delete(m.known, name)
		until := now.Add(m.limits.Refuse)
		cacheVerdict(m.refused, name, Verdict[error]{err, until, until}, m.limits.Most, now)
	}
}

// cacheVerdict puts a verdict in and holds the bound: those that are of no use go first, then whichever come.
func cacheVerdict[V any](in map[credentialHash]Verdict[V], name credentialHash, v Verdict[V], most int, now time.Time) {
	if len(in) >= most {
		for other, old := range in {
			if !now.Before(old.Fresh) && !now.Before(old.Stale) {
				delete(in, other)
			}
		}
	}
	for other := range in {
		if len(in) < most {
			break
		}
		delete(in, other)
	}
	in[name] = v
}

// Forget drops what is known of a credential that this process ended itself.
func (m *Memory[V]) Forget(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, m.name(text))
}

// Later is a 503 that says when to ask again; it is of the kind problem.Unavailable.
func Later(after time.Duration, format string, args ...any) error {
	err := problem.Unavailablef(format, args...)
	return &Error{
		Status: http.StatusServiceUnavailable, Text: err.Error(), Cause: err, Header: http.Header{"Retry-After": {retryAfterSeconds(after)}},
	}
}
