package netboot

import (
	"sync"
	"time"

	"salvor/metal"
)

const (
	seenPause = 30 * time.Second // a BMC reads its virtual CD in thousands of requests
	maxSeen   = 4096
)

// contactLog tells of contacts, but not of each of many alike.
type contactLog struct {
	to    func(*metal.Node, string)
	now   func() time.Time
	pause time.Duration

	mu   sync.Mutex
	last map[seenKey]time.Time
}

type seenKey struct {
	node string
	boot int64
	what string
}

func newContactLog(to func(*metal.Node, string), pause time.Duration) *contactLog {
	return &contactLog{to: to, now: time.Now, pause: pause, last: map[seenKey]time.Time{}}
}

func (s *contactLog) record(n *metal.Node, what string) {
	if s.to == nil || !s.fresh(seenKey{n.ID, n.BootNumber, what}) {
		return
	}
	s.to(n, what)
}

func (s *contactLog) fresh(key seenKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if last, ok := s.last[key]; ok && now.Sub(last) < s.pause {
		return false
	}
	if len(s.last) >= maxSeen {
		// Telling something twice is better than remembering without a bound.
		clear(s.last)
	}
	s.last[key] = now
	return true
}
