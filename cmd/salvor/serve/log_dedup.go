package serve

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Of one failing thing at most mostAlike lines are written in alikeFor: whatever asks for it, and however often, a disk
// that is full or a database that is away fills no log.
const (
	mostAlike = 3
	alikeFor  = 10 * time.Second
	// maxAlike is how many failing things are told apart.
	maxAlike = 1000
)

// logDeduplicator leaves out warnings and errors that were just written with the same words; the next one of them that is
// written says how many were left out. It is shared by all loggers that come from one.
type logDeduplicator struct {
	now func() time.Time

	mu    sync.Mutex
	alike map[string]*repeatedLine
}

// repeatedLine is what is known of lines with the same words.
type repeatedLine struct {
	since   time.Time
	written int
	left    int
}

// dedupHandler is a handler that spares.
type dedupHandler struct {
	slog.Handler
	*logDeduplicator
}

func newSparing(h slog.Handler, now func() time.Time) dedupHandler {
	return dedupHandler{h, &logDeduplicator{now: now, alike: map[string]*repeatedLine{}}}
}

// Handle is slog.Handler's.
func (h dedupHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	failure := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			failure = a.Value.String()
		}
		return failure == ""
	})
	if failure == "" {
		return h.Handler.Handle(ctx, r)
	}
	left, write := h.count(r.Message + "\x00" + failure)
	if !write {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", left))
	}
	return h.Handler.Handle(ctx, r)
}

// count tells whether a line is written, and how many like it were left out before it.
func (s *logDeduplicator) count(words string) (left int, write bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	a := s.alike[words]
	if a == nil {
		if len(s.alike) >= maxAlike {
			clear(s.alike) // writing something once more is better than remembering without a bound
		}
		a = &repeatedLine{since: now}
		s.alike[words] = a
	}
	if now.Sub(a.since) >= alikeFor {
		a.since, a.written = now, 0
	}
	if a.written >= mostAlike {
		a.left++
		return 0, false
	}
	left = a.left
	a.written, a.left = a.written+1, 0
	return left, true
}

// WithAttrs is slog.Handler's.
func (h dedupHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return dedupHandler{h.Handler.WithAttrs(attrs), h.logDeduplicator}
}

// WithGroup is slog.Handler's.
func (h dedupHandler) WithGroup(name string) slog.Handler {
	return dedupHandler{h.Handler.WithGroup(name), h.logDeduplicator}
}
