package program

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"salvor/test/must"
)

// given are the addresses that FreeAddress has given.
var given sync.Map

// FreeAddress is one of this machine that a server may listen on, also after a restart. It is given once.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for {
		l := must.Get(net.Listen("tcp", net.JoinHostPort(ownAddress().String(), "0")))(t)
		must.OK(t, l.Close())
		if _, known := given.LoadOrStore(l.Addr().String(), true); !known {
			return l.Addr().String()
		}
	}
}

// lookEvery is how often a condition is looked at.
const lookEvery = 20 * time.Millisecond

// Await looks until a condition holds; its error is what the condition said last.
func Await(within time.Duration, holds func() error) error {
	for end := time.Now().Add(within); ; time.Sleep(lookEvery) {
		if err := holds(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Until is Await for tests.
func Until(t testing.TB, what string, within time.Duration, holds func() error) {
	t.Helper()
	if err := Await(within, holds); err != nil {
		t.Fatalf("%s: not within %s: %v", what, within, err)
	}
}

var errNot = errors.New("it is not so")

// If is a condition that can say no more than yes or no.
func If(so func() bool) func() error {
	return func() error {
		if so() {
			return nil
		}
		return errNot
	}
}
