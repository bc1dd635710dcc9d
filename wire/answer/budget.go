package answer

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"salvor/problem"
)

const (
	// processBytes is the memory of all answers that a process has in work.
	processBytes = 32 << 20
	// freeBytes of each share are not counted: the answers of ordinary peers never wait.
	freeBytes = 128 << 10
	// growTime bounds how long a share waits for memory.
	growTime = 20 * time.Second
)

// Budget is the memory of all answers that are in work at one time. It is safe for use by several goroutines.
//
// The oldest of the shares that hold memory never waits, even if the budget is used up. So somebody always gets on, and two shares that both want
// more cannot wait for each other. The others are served in the order in which they asked.
//
// Memory that a share gave back stays garbage until the next collection, which Go delays until the heap has doubled. So a budget collects garbage
// itself before it gives more memory away, each time that its shares have given back half of its bytes. Answers of ordinary peers fit into the free bytes
// of their shares, and never lead to a collection.
type Budget struct {
	mu      sync.Mutex
	total   int64
	used    int64
	garbage int64    // what shares gave back since the last collection of this budget
	holders []*Share // that hold more than what is free, the oldest first
	waiting []*growth
}

// growth is memory that a share waits for.
type growth struct {
	share   *Share
	bytes   int64
	granted chan struct{} // closed when the share has it
}

// NewBudget makes a budget of so many bytes.
func NewBudget(total int64) *Budget { return &Budget{total: total} }

// process is the budget of all answers of this process.
var process = NewBudget(processBytes)

// Share is the memory of one answer, or of several that one goroutine works on. A nil Share counts nothing. It is not safe for use by several
// goroutines.
type Share struct {
	of   *Budget
	held int64 // beyond what is free
	free int64 // what is left of the free bytes
}

// NewShare makes a share that holds nothing, of the process's budget. End gives its memory back.
func NewShare() *Share { return process.NewShare() }

// NewShare makes a share that holds nothing.
func (b *Budget) NewShare() *Share { return &Share{of: b, free: freeBytes} }

type shareKey struct{}

// Begin opens a share for all answers that are read under the returned context, until end is called: the caller decodes and uses them meanwhile.
// Within another share the answers count to that share, so that a holder which reads a second answer does not wait for itself.
func Begin(ctx context.Context) (_ context.Context, end func()) {
	if Of(ctx) != nil {
		return ctx, func() {}
	}
	s := NewShare()
	return With(ctx, s), s.End
}

// With has the answers that are read under the returned context count to the share.
func With(ctx context.Context, s *Share) context.Context {
	return context.WithValue(ctx, shareKey{}, s)
}

// Of gives the share of a context; nil: it has none.
func Of(ctx context.Context) *Share {
	s, _ := ctx.Value(shareKey{}).(*Share)
	return s
}

// Grow takes more memory for the share, and waits until there is some. The error is that of the context, or Unavailable after 20 seconds.
func (s *Share) Grow(ctx context.Context, bytes int64) error {
	if s == nil || bytes <= 0 {
		return nil
	}
	free := min(s.free, bytes)
	s.free -= free
	if bytes -= free; bytes == 0 {
		return nil
	}
	if s.of.mustCollect() {
		runtime.GC()
	}
	wait := s.of.take(s, bytes)
	if wait == nil {
		return nil
	}
	timer := time.NewTimer(growTime)
	defer timer.Stop()
	var err error
	select {
	case <-wait.granted:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = problem.Unavailablef("other large answers are in work, and this one found no room for %s", growTime)
	}
	if s.of.abandon(wait) {
		return nil // it was granted meanwhile
	}
	return err
}

// End gives the memory of the share back. The share may be used again.
func (s *Share) End() {
	if s == nil {
		return
	}
	s.free = freeBytes
	b := s.of
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= s.held
	b.garbage += s.held
	s.held = 0
	b.holders = slices.DeleteFunc(b.holders, func(h *Share) bool { return h == s })
	b.grantLocked()
}

// mustCollect tells whether the caller has to collect garbage before the budget gives more memory away.
func (b *Budget) mustCollect() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.garbage <= b.total/2 {
		return false
	}
	b.garbage = 0
	return true
}

// take grants memory at once where it can; otherwise the share has to wait for the returned growth.
func (b *Budget) take(s *Share, bytes int64) *growth {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := &growth{s, bytes, make(chan struct{})}
	b.waiting = append(b.waiting, wait)
	b.grantLocked()
	if !slices.Contains(b.waiting, wait) {
		return nil
	}
	return wait
}

// abandon ends a wait. It tells whether the memory was granted meanwhile.
func (b *Budget) abandon(wait *growth) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.waiting, wait)
	if at < 0 {
		return true
	}
	b.waiting = slices.Delete(b.waiting, at, at+1)
	b.grantLocked() // those behind it may want less
	return false
}

// grantLocked serves the first of those who wait, as long as there is room, and the oldest holder in any case.
func (b *Budget) grantLocked() {
	for len(b.waiting) > 0 && (len(b.holders) == 0 || b.used+b.waiting[0].bytes <= b.total) {
		b.grantAt(0)
	}
	if len(b.holders) == 0 {
		return
	}
	for i := 0; i < len(b.waiting); i++ {
		if b.waiting[i].share == b.holders[0] {
			b.grantAt(i)
			i--
		}
	}
}

func (b *Budget) grantAt(i int) {
	wait := b.waiting[i]
	b.waiting = slices.Delete(b.waiting, i, i+1)
	if wait.share.held == 0 {
		b.holders = append(b.holders, wait.share)
	}
	wait.share.held += wait.bytes
	b.used += wait.bytes
	close(wait.granted)
}
