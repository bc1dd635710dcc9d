package driver

import (
	"context"
	"sync"
)

// Lanes let one request at a time through to each address. Cheap BMCs drop or mix
// up parallel requests, and two jobs, a question and the power sync may all want the
// same one. The zero value is ready; it is safe for use by several goroutines.
type Lanes struct {
	mu    sync.Mutex
	lanes map[string]*lane
}

type lane struct {
	busy  chan struct{}
	users int // those inside and those waiting; a lane without users is dropped
}

// Enter waits for the lane of an address and returns what leaves it again, or ctx's
// error. The returned function must be called once. A nil Lanes never waits.
func (l *Lanes) Enter(ctx context.Context, address string) (leave func(), err error) {
	if l == nil {
		return func() {}, ctx.Err()
	}
	mine := l.join(address)
	select {
	case mine.busy <- struct{}{}:
		return func() { <-mine.busy; l.part(address, mine) }, nil
	case <-ctx.Done():
		l.part(address, mine)
		return nil, ctx.Err()
	}
}

func (l *Lanes) join(address string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lanes == nil {
		l.lanes = map[string]*lane{}
	}
	mine := l.lanes[address]
	if mine == nil {
		mine = &lane{busy: make(chan struct{}, 1)}
		l.lanes[address] = mine
	}
	mine.users++
	return mine
}

func (l *Lanes) part(address string, mine *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(l.lanes, address)
	}
}
