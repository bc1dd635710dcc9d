package host

import (
	"context"
	"time"
)

// begin returns the current run context, or makes one.
func (s *orderRunner) begin(ctx context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runCtx == nil || s.runCtx.Err() != nil {
		s.runCtx, s.stop = context.WithCancel(ctx)
	}
	return s.runCtx
}

// halt breaks off what is in hand.
func (s *orderRunner) halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
}

// admit lets something begin that may change guests; false: nothing may. leave is told whether the hypervisor has answered.
func (s *orderRunner) admit() (leave func(sure bool), ok bool) {
	s.mu.Lock()
	s.inProgress++
	s.mu.Unlock()
	leave = func(sure bool) {
		now, err := s.agent.Alive()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inProgress--
		if !sure && err == nil {
			s.lastUnconfirmed = now
		}
	}
	// After it was counted: whoever halts counts afterwards.
	if s.agent.halted() {
		leave(true)
		return nil, false
	}
	return leave, true
}

// unsureLasts is how long a hypervisor may take up what was given up.
const unsureLasts = 10 * time.Second

// isIdle tells whether nothing is in hand, nor may still come of what was.
func (s *orderRunner) isIdle() bool {
	now, err := s.agent.Alive()
	s.mu.Lock()
	defer s.mu.Unlock()
	return err == nil && s.inProgress == 0 && (s.lastUnconfirmed == 0 || now-s.lastUnconfirmed >= unsureLasts)
}

// cancelOlder ends what is in hand for a server, or waits for it, by an owner older than epoch.
func (s *orderRunner) cancelOlder(server string, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range append([]orderTask{s.running[server]}, s.queues[server]...) {
		if t.order != nil && t.order.Epoch < epoch {
			t.cancel()
		}
	}
}
