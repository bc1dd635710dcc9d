package driver

import (
	"context"
	"sync"
)

// AddressLocks let one request at a time through to each address. Cheap BMCs drop or mix
// up parallel requests, and two jobs, a question and the power sync may all want the
// same one. The zero value is ready; it is safe for use by several goroutines.
type AddressLocks struct {
	mu    sync.Mutex
	lanes map[string]*addressLock
}

type addressLock struct {
	busy  chan struct{}
	users int // those inside and those waiting; a lane without users is dropped
}

// Enter waits for the lane of an address and returns what leaves it again, or ctx's
// error. The returned function must be called once. A nil AddressLocks never waits.
func (l *AddressLocks) Enter(ctx context.Context, address string) (leave func(), err error) {
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

func (l *AddressLocks) join(address string) *addressLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lanes == nil {
		l.lanes = map[string]*addressLock{}
	}
	mine := l.lanes[address]
	if mine == nil {
		mine = &addressLock{busy: make(chan struct{}, 1)}
		l.lanes[address] = mine
	}
	mine.users++
	return mine
}

func (l *AddressLocks) part(address string, mine *addressLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(l.lanes, address)
	}
}
