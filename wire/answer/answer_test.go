package answer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"salvor/problem"
	"salvor/test/must"
	"salvor/wire/loose"
)

// TestReadBounds: an answer is refused by its bytes and by its values, before any of them is decoded.
func TestReadBounds(t *testing.T) {
	t.Parallel()
	lists := `{"a":[` + strings.Repeat("[],", loose.MaxValues) + `[]]}`
	for name, c := range map[string]struct {
		text  string
		limit int64
		want  error // nil: none
		kind  problem.Kind
	}{
		"an answer":          {`{"a":1}`, 7, nil, 0},
		"nothing":            {``, 7, nil, 0},
		"a byte too many":    {`{"a":12}`, 7, ErrTooLarge, 0},
		"a page of text":     {strings.Repeat("no JSON, ", 300_000), 4 << 20, nil, 0},
		"too many lists":     {lists, 4 << 20, nil, problem.Unavailable},
		"a mark before them": {"\xef\xbb\xbf \n" + lists, 4 << 20, nil, problem.Unavailable},
	} {
		s := NewBudget(1 << 30).NewShare()
		got, err := Read(t.Context(), s, strings.NewReader(c.text), c.limit)
		switch {
		case c.kind != 0 && !problem.Is(err, c.kind), c.kind == 0 && !errors.Is(err, c.want):
			t.Errorf("%s: want the error %v of kind %v, got %v", name, c.want, c.kind, err)
		case err == nil && string(got) != c.text:
			t.Errorf("%s: want the text as it came, got %d bytes of %d", name, len(got), len(c.text))
		}
	}
	if _, err := Read(t.Context(), nil, io.MultiReader(strings.NewReader("{"), broken{}), 9); !errors.Is(err, errBroken) {
		t.Errorf("a reader that breaks off: want its error, got %v", err)
	}
}

// TestReadStopsAtTheFirstValueTooMany: the rest of a hostile answer is not received.
func TestReadStopsAtTheFirstValueTooMany(t *testing.T) {
	t.Parallel()
	const most = 1000
	for name, begin := range map[string]string{"lists": `{"a":[`, "a mark before them": "\xef\xbb\xbf \n[", "blanks before them": strings.Repeat(" ", 3*firstBuffer) + "["} {
		endless := &counted{from: io.MultiReader(strings.NewReader(begin), opening{})}
		_, err := ReadUpTo(t.Context(), nil, iotest.OneByteReader(endless), 24<<20, most)
		if got, want := endless.bytes, len(begin)+most+1; !problem.Is(err, problem.Unavailable) || got > want {
			t.Errorf("%s: want a refusal after at most %d bytes, got %v after %d", name, want, err, got)
		}
	}
}

// opening is a text that begins lists without an end.
type opening struct{}

func (opening) Read(b []byte) (int, error) { return copy(b, "["), nil }

type counted struct {
	from  io.Reader
	bytes int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.bytes += n
	return n, err
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// TestBudgetBoundsMemory: many large answers at once need no more memory than the budget and one answer, and all of them are read in the end.
func TestBudgetBoundsMemory(t *testing.T) {
	t.Parallel()
	const answers, size, total = 24, 1 << 20, 4 << 20
	b := NewBudget(total)
	text := bytes.Repeat([]byte{'x'}, size)
	var live, most atomic.Int64
	var all sync.WaitGroup
	for range answers {
		all.Go(func() {
			s := b.NewShare()
			defer s.End()
			if _, err := Read(t.Context(), s, bytes.NewReader(text), size); err != nil {
				t.Errorf("read an answer: %v", err)
				return
			}
			now := live.Add(1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			runtime.Gosched()
			live.Add(-1)
		})
	}
	all.Wait()
	if got, bound := most.Load(), int64(total/size+1); got > bound {
		t.Errorf("%d answers of %d bytes with a budget of %d: want at most %d in work at one time, got %d", answers, size, total, bound, got)
	}
	if b.used != 0 || len(b.holders) != 0 || len(b.waiting) != 0 {
		t.Errorf("after all: want an empty budget, got %d bytes of %d holders, and %d waiting", b.used, len(b.holders), len(b.waiting))
	}
}

// TestGrowCollectsGarbage: answers that are read one after another leave no more garbage than the budget, even if Go itself never collects any.
// The test is not parallel, because the collector is the whole program's.
func TestGrowCollectsGarbage(t *testing.T) {
	const answers, size, total = 40, 1 << 20, 4 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b := NewBudget(total)
	text := bytes.Repeat([]byte{'x'}, size)
	runtime.GC()
	before, most := heap(), uint64(0)
	for i := range answers {
		s := b.NewShare()
		if _, err := Read(t.Context(), s, bytes.NewReader(text), size); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		s.End()
		most = max(most, heap())
	}
	if grown, bound := int64(most-before), int64(2*total); grown > bound {
		t.Errorf("%d answers of %d bytes with a budget of %d: want the heap to grow by at most %d bytes, got %d", answers, size, total, bound, grown)
	}
}

// heap gives the bytes of all objects, garbage included.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestBudgetLetsTheOldestOn: two shares that both want more than is left do not wait for each other, and those who wait are served in order.
func TestBudgetLetsTheOldestOn(t *testing.T) {
	t.Parallel()
	b := NewBudget(1000)
	first, second := b.NewShare(), b.NewShare()
	must.OK(t, first.Grow(t.Context(), freeBytes+500))
	must.OK(t, second.Grow(t.Context(), freeBytes+500))
	done := make(chan error, 1)
	go func() { done <- second.Grow(t.Context(), 700) }()
	awaitWaiting(t, b, 1)
	must.OK(t, first.Grow(t.Context(), 700)) // at once, although the budget is used up
	first.End()
	must.OK(t, <-done)

	third, fourth := b.NewShare(), b.NewShare()
	order := make(chan string, 2)
	for i, s := range []*Share{third, fourth} {
		go func() {
			if err := s.Grow(t.Context(), freeBytes+400); err == nil {
				order <- []string{"third", "fourth"}[i]
			}
		}()
		awaitWaiting(t, b, i+1)
	}
	second.End()
	for range 2 {
		<-order
	}
	third.End()
	fourth.End()
	if b.used != 0 {
		t.Errorf("after all: want 0 bytes used, got %d", b.used)
	}
}

// TestGrowEndsWithItsContext: who waits gives up with the context, and leaves the others in their place.
func TestGrowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := NewBudget(1000)
	holder, waiter, next := b.NewShare(), b.NewShare(), b.NewShare()
	must.OK(t, holder.Grow(t.Context(), freeBytes+900))
	ctx, cancel := context.WithCancel(t.Context())
	gone, served := make(chan error, 1), make(chan error, 1)
	go func() { gone <- waiter.Grow(ctx, freeBytes+800) }()
	awaitWaiting(t, b, 1)
	go func() { served <- next.Grow(t.Context(), freeBytes+100) }()
	awaitWaiting(t, b, 2)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("a wait whose context ends: want %v, got %v", context.Canceled, err)
	}
	if err := <-served; err != nil {
		t.Errorf("the next, which has room: want no error, got %v", err)
	}
}

// TestShareOfContext: a second answer under the same context counts to the same share.
func TestShareOfContext(t *testing.T) {
	t.Parallel()
	outer, end := Begin(t.Context())
	defer end()
	inner, endInner := Begin(outer)
	defer endInner()
	if Of(outer) == nil || Of(inner) != Of(outer) {
		t.Errorf("a share within a share: want the outer one, got %p and %p", Of(outer), Of(inner))
	}
	if Of(t.Context()) != nil {
		t.Errorf("a context without a share: want none")
	}
	var none *Share
	if err := none.Grow(t.Context(), 1<<40); err != nil {
		t.Errorf("no share: want no bound, got %v", err)
	}
	none.End()
}

// awaitWaiting waits until so many shares wait.
func awaitWaiting(t *testing.T, b *Budget, want int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		b.mu.Lock()
		got := len(b.waiting)
		b.mu.Unlock()
		if got == want {
			return
		}
	}
	t.Fatalf("want %d shares that wait for memory, and there are not", want)
}
