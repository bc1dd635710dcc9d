package redfish

import (
	"sync"
	"time"

	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/memory"
)

// sessionIdle is how long a session stays open after its last use: the verbs of an operation follow one another faster than that.
const sessionIdle = 15 * time.Second

// SessionPool keeps the sessions of BMCs open between the verbs of an operation, at most one for each node, and deletes those that were
// not used for a while. The zero value is ready.
type SessionPool struct {
	// Idle is how long a session stays open after its last use; 0: 15 s.
	Idle time.Duration

	mu     sync.Mutex
	idle   map[memory.Key]*idleSession
	closed bool
}

type idleSession struct {
	session *conversation.Conversation
	timer   *time.Timer
}

// take hands over the open conversation of a key; nil: there is none.
func (p *SessionPool) take(key memory.Key) *conversation.Conversation {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.idle[key]
	if one == nil {
		return nil
	}
	delete(p.idle, key)
	one.timer.Stop()
	return one.session
}

// put takes back a conversation that can serve another verb. It closes one that it does not keep.
func (p *SessionPool) put(s *conversation.Conversation) {
	if p == nil || !s.HasSession() || !p.add(s.Key(), s) {
		s.Close()
	}
}

func (p *SessionPool) add(key memory.Key, s *conversation.Conversation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.idle[key] != nil {
		return false
	}
	if p.idle == nil {
		p.idle = map[memory.Key]*idleSession{}
	}
	wait := p.Idle
	if wait == 0 {
		wait = sessionIdle
	}
	one := &idleSession{session: s}
	one.timer = time.AfterFunc(wait, func() {
		p.mu.Lock()
		mine := p.idle[key] == one
		if mine {
			delete(p.idle, key)
		}
		p.mu.Unlock()
		if mine {
			s.Close()
		}
	})
	p.idle[key] = one
	return true
}

// Close deletes all sessions that are not in use, and keeps none from then on.
func (p *SessionPool) Close() {
	p.mu.Lock()
	p.closed = true
	left := p.idle
	p.idle = nil
	p.mu.Unlock()
	var work sync.WaitGroup
	for _, one := range left {
		one.timer.Stop()
		work.Go(one.session.Close)
	}
	work.Wait()
}
