package host

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"salvor/compute"
)

// orderWaiters is where polls wait for orders: one query finds out for all of them who has any.
type orderWaiters struct {
	orders compute.OrderStore
	log    *slog.Logger

	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool // by host
	asked   chan struct{}                     // somebody has come since the last query
	open    bool                              // serve runs
}

const (
	// coalesceWindow gathers those who come at once into one query.
	coalesceWindow = 3 * time.Millisecond
	// pollFallback bounds how long an order of which no word came is overlooked.
	pollFallback = 2 * time.Second
)

func newOrderWaiters(orders compute.OrderStore, log *slog.Logger) *orderWaiters {
	return &orderWaiters{orders: orders, log: log, waiting: map[string]map[chan struct{}]bool{}, asked: make(chan struct{}, 1)}
}

// wait gives a channel that is closed when the host has orders that nobody has been sent; leave must be called.
func (d *orderWaiters) wait(hostID string) (come <-chan struct{}, leave func()) {
	c := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting[hostID] == nil {
		d.waiting[hostID] = map[chan struct{}]bool{}
	}
	d.waiting[hostID][c] = true
	select {
	case d.asked <- struct{}{}:
	default:
	}
	if !d.open {
		d.open = true
		go d.serve()
	}
	return c, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.drop(hostID, c)
	}
}

func (d *orderWaiters) drop(hostID string, c chan struct{}) {
	delete(d.waiting[hostID], c)
	if len(d.waiting[hostID]) == 0 {
		delete(d.waiting, hostID)
	}
}

// serve asks the store each time that an order may be there, as long as somebody waits.
func (d *orderWaiters) serve() {
	for {
		// The word comes before the look, so that none is lost between them.
		woken := d.orders.OrdersWoken()
		if !d.notifyWaiting() {
			return
		}
		t := time.NewTimer(pollFallback)
		select {
		case <-woken:
		case <-d.asked:
		case <-t.C:
		}
		t.Stop()
		time.Sleep(coalesceWindow)
	}
}

// notifyWaiting tells those who wait and have orders; false: nobody waits any more.
func (d *orderWaiters) notifyWaiting() bool {
	d.mu.Lock()
	if len(d.waiting) == 0 {
		d.open = false
		d.mu.Unlock()
		return false
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	hosts, err := d.orders.HostsWithOrders(ctx)
	if err != nil {
		d.log.Warn("look for orders of hosts", "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range hosts {
		for c := range d.waiting[id] {
			close(c)
			d.drop(id, c)
		}
	}
	return true
}
