package server

import (
	"context"
	"sync"
	"time"

	"salvor/compute"
	"salvor/metal"
	"salvor/storage"
)

const (
	// senseLasts is how long what was perceived counts, senseAgain after how long it is looked at anew, senseWithin how long a look may take.
	senseLasts  = 5 * time.Second
	senseAgain  = 1500 * time.Millisecond
	senseWithin = 10 * time.Second
)

// hostSignals perceive hosts by the BMCs of their nodes and by the storage. Who asks is told what was seen last, and is never kept waiting.
type hostSignals struct {
	c        *Conductor
	ctx      context.Context
	mu       sync.Mutex
	power    map[string]*cachedSignal[metal.Power]
	sessions cachedSignal[[]storage.Session]
}

// cachedSignal is what was seen last, and whether it is being looked at just now.
type cachedSignal[T any] struct {
	value   T
	at      time.Time
	began   time.Time
	looking bool
}

// HealthSources are the ways beside its lease by which a host is perceived, until ctx ends.
func (c *Conductor) HealthSources(ctx context.Context) compute.HealthSources {
	return &hostSignals{c: c, ctx: ctx, power: map[string]*cachedSignal[metal.Power]{}}
}

// readCachedSignal gives what is known, and has it looked at anew if that is due. l is guarded by s.mu, which is not held here.
func readCachedSignal[T any](s *hostSignals, l *cachedSignal[T], read func(context.Context) (T, error)) (seen T, known bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.looking && now.Sub(l.began) >= senseAgain && s.ctx.Err() == nil {
		l.looking, l.began = true, now
		go func() {
			ctx, cancel := context.WithTimeout(s.ctx, senseWithin)
			defer cancel()
			began := time.Now()
			got, err := read(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			if l.looking = false; err == nil {
				l.value, l.at = got, began
			}
		}()
	}
	return l.value, !l.at.IsZero() && now.Sub(l.at) < senseLasts
}

// Power is compute.HealthSources's.
func (s *hostSignals) Power(nodeID string) compute.Signal {
	if s.c.PowerState == nil {
		return compute.Unknown
	}
	s.mu.Lock()
	l := s.power[nodeID]
	if l == nil {
		l = &cachedSignal[metal.Power]{}
		s.power[nodeID] = l
	}
	s.mu.Unlock()
	state, known := readCachedSignal(s, l, func(ctx context.Context) (metal.Power, error) { return s.c.PowerState(ctx, nodeID) })
	switch {
	case known && state == metal.PowerOff:
		return compute.Dead
	case known && state == metal.PowerOn:
		return compute.Lives
	}
	return compute.Unknown
}

// Connected is compute.HealthSources's.
func (s *hostSignals) Connected(initiators []string) (some, known bool) {
	if s.c.Storage == nil {
		return false, false
	}
	all, known := readCachedSignal(s, &s.sessions, s.c.Storage.Sessions)
	for _, session := range all {
		for _, name := range initiators {
			some = some || session.Initiator == name
		}
	}
	return some, known
}
