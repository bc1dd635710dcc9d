package host

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wire "salvor/wire/host"
)

// answer has the agent take an answer to a renewal that was sent just now.
func answer(t testing.TB, a *Agent, terms wire.Renewed) {
	t.Helper()
	now, err := a.Alive()
	if err != nil {
		t.Fatal(err)
	}
	a.renewed(now, a.renewal(now), terms)
	a.obey(t.Context(), terms)
}

// clock is the machine's alive time, as the test says.
type clock struct{ now atomic.Int64 }

func (c *clock) alive() (time.Duration, error) { return time.Duration(c.now.Load()), nil }
func (c *clock) add(d time.Duration)           { c.now.Add(int64(d)) }

// dog is a watchdog in memory, on the test's clock.
type dog struct {
	clock         *clock
	mu            sync.Mutex
	fires         time.Duration // 0: it is not armed
	arms          int
	before, after func() // of a pet
	refuse        error
}

func (d *dog) Arm(timeout time.Duration) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return softWatchdog, d.refuse
	}
	d.arms++
	d.fires = time.Duration(d.clock.now.Load()) + timeout + watchdogDrift
	return "dog", nil
}

func (d *dog) Pet() error {
	if d.before != nil {
		d.before()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fires == 0 {
		return errors.New("not armed")
	}
	d.fires = time.Duration(d.clock.now.Load()) + watchdogTimeout + watchdogDrift
	return nil
}

func (d *dog) Expire() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fires = time.Duration(d.clock.now.Load()) + time.Second
	return nil
}

func (d *dog) Disarm() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fires = 0
	return nil
}

func (d *dog) at() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fires
}
