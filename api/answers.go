package api

import (
	"net/http"
	"sync"
	"time"
	"unsafe"
)

const (
	// answerPart is how many bytes of a large answer a client has to take within answerTime, or within busyTime while many wait.
	answerPart           = 64 << 10
	answerTime, busyTime = 20 * time.Second, 2 * time.Second
	// heldAnswers bounds the memory, in bytes, of all large answers that clients have not read to their end. Beyond it the answer is cut
	// off whose client has read nothing for the longest time.
	heldAnswers = 64 << 20
	// stalled is how long a client has taken nothing at least before its answer is cut off for others.
	stalled = 250 * time.Millisecond
)

// unreadAnswers are the large answers of the process that clients have not taken yet. Their clients are cut off by progress: a slow
// line is served for as long as it needs, a client that does not read holds no memory.
type unreadAnswers struct {
	mu   sync.Mutex
	held int
	open map[*largeAnswer]bool
}

type largeAnswer struct {
	held  int // bytes of memory; the parts that the client has read become free at the end only
	since time.Time
	cut   func()
}

var pendingAnswers = unreadAnswers{open: map[*largeAnswer]bool{}}

// WriteTexts writes texts one after the other, in parts of 64 KiB, so the answer needs no buffer of its whole size. held is the number of
// bytes of the texts that only this answer has in memory. An error means that the client read too slowly or went away.
func WriteTexts(w http.ResponseWriter, texts []string, held int) error {
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	if size <= answerPart {
		b := make([]byte, 0, size)
		for _, text := range texts {
			b = append(b, text...)
		}
		_, err := w.Write(b)
		return err
	}
	part, rest := make([]byte, 0, answerPart), ""
	_, err := pendingAnswers.send(w, held+cap(part)+len(texts)*int(unsafe.Sizeof("")), func() []byte {
		part = part[:0]
		for len(part) < answerPart && (rest != "" || len(texts) > 0) {
			if rest == "" {
				rest, texts = texts[0], texts[1:]
			}
			n := min(len(rest), answerPart-len(part))
			part, rest = append(part, rest[:n]...), rest[n:]
		}
		return part
	})
	return err
}

// write gives a large answer away part by part.
func (s *unreadAnswers) write(w http.ResponseWriter, b []byte) (written int, err error) {
	if len(b) <= answerPart {
		return w.Write(b)
	}
	return s.send(w, len(b), func() []byte {
		n := min(answerPart, len(b))
		part := b[:n]
		b = b[n:]
		return part
	})
}

// send writes the parts that next returns, until it returns an empty one. held is the memory of the whole answer, in bytes.
func (s *unreadAnswers) send(w http.ResponseWriter, held int, next func() []byte) (written int, err error) {
	until := http.NewResponseController(w)
	a := &largeAnswer{held: held, since: time.Now(), cut: func() { _ = until.SetWriteDeadline(time.Unix(1, 0)) }}
	s.add(a)
	defer s.drop(a)
	for {
		part := next()
		if len(part) == 0 {
			break
		}
		within, ok := s.next(a)
		if !ok {
			return written, http.ErrHandlerTimeout
		}
		_ = until.SetWriteDeadline(time.Now().Add(within)) // a wire without deadlines is a test's
		n, err := w.Write(part)
		written += n
		if err != nil {
			return written, err
		}
		s.took(a)
	}
	_ = until.SetWriteDeadline(time.Now().Add(writeTimeout))
	return written, nil
}

func (s *unreadAnswers) add(a *largeAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[a] = true
	for s.held += a.held; s.held > heldAnswers; {
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
func (s *unreadAnswers) next(a *largeAnswer) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held > heldAnswers/2 {
		return busyTime, s.open[a]
	}
	return answerTime, s.open[a]
}

func (s *unreadAnswers) took(a *largeAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.since = time.Now()
}

func (s *unreadAnswers) drop(a *largeAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(a)
}

func (s *unreadAnswers) dropLocked(a *largeAnswer) {
	if s.open[a] {
		delete(s.open, a)
		s.held -= a.held
	}
}
