package api

import (
	"net/http"
	"sync"
	"time"
)

const (
	// answerPart is how many bytes of a large answer a client has to take within answerTime, or within busyTime while many wait.
	answerPart           = 64 << 10
	answerTime, busyTime = 20 * time.Second, 2 * time.Second
	// heldAnswers are the large answers that clients have not taken yet, in bytes, all together. When they are more, the one is
	// cut off whose client has taken nothing for the longest time.
	heldAnswers = 64 << 20
	// stalled is how long a client has taken nothing at least before its answer is cut off for others.
	stalled = 250 * time.Millisecond
)

// answers are the large answers of the process that clients have not taken yet. Their clients are cut off by progress: a slow
// line is served for as long as it needs, a client that does not read holds no memory.
type answers struct {
	mu   sync.Mutex
	held int
	open map[*largeAnswer]bool
}

type largeAnswer struct {
	left  int
	since time.Time
	cut   func()
}

var pendingAnswers = answers{open: map[*largeAnswer]bool{}}

// write gives a large answer away part by part.
func (s *answers) write(w http.ResponseWriter, b []byte) (written int, err error) {
	if len(b) <= answerPart {
		return w.Write(b)
	}
	until := http.NewResponseController(w)
	a := &largeAnswer{left: len(b), since: time.Now(), cut: func() { _ = until.SetWriteDeadline(time.Unix(1, 0)) }}
	s.add(a)
	defer s.drop(a)
	for len(b) > 0 {
		within, ok := s.next(a)
		if !ok {
			return written, http.ErrHandlerTimeout
		}
		_ = until.SetWriteDeadline(time.Now().Add(within)) // a wire without deadlines is a test's
		n, err := w.Write(b[:min(answerPart, len(b))])
		written += n
		if err != nil {
			return written, err
		}
		b = b[n:]
		s.took(a, n)
	}
	_ = until.SetWriteDeadline(time.Now().Add(writeTimeout))
	return written, nil
}

func (s *answers) add(a *largeAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[a] = true
	for s.held += a.left; s.held > heldAnswers; {
		slowest := a
		for other := range s.open {
			if other.since.Before(slowest.since) {
				slowest = other
			}
		}
		if a.since.Sub(slowest.since) < stalled {
			return
		}
		s.dropLocked(slowest)
		slowest.cut()
	}
}

// next tells how long the next part may take; false: the answer was cut off.
func (s *answers) next(a *largeAnswer) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held > heldAnswers/2 {
		return busyTime, s.open[a]
	}
	return answerTime, s.open[a]
}

func (s *answers) took(a *largeAnswer, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.since = time.Now(); s.open[a] {
		a.left -= n
		s.held -= n
	}
}

func (s *answers) drop(a *largeAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(a)
}

func (s *answers) dropLocked(a *largeAnswer) {
	if s.open[a] {
		delete(s.open, a)
		s.held -= a.left
	}
}
