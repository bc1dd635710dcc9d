package host

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	wire "salvor/wire/host"
)

const (
	// maxLooks bounds how many neighbours are looked at, lookWithin how long one may take to answer.
	maxLooks   = 16
	lookWithin = time.Second
)

// lookPorts are where a host is asked for life, of ssh and of libvirt: a refusal is an answer, too.
var lookPorts = []string{"22", "16509"}

// lookAt sees which neighbours answer, for the next renewal.
func (a *Agent) lookAt(ctx context.Context, list []wire.Neighbour) {
	if len(list) == 0 || !a.looking.CompareAndSwap(false, true) {
		return
	}
	seen := append([]wire.Neighbour(nil), list[:min(len(list), maxLooks)]...)
	go func() {
		defer a.looking.Store(false)
		var all sync.WaitGroup
		for i := range seen {
			all.Go(func() { seen[i].Reached = isAddressReachable(ctx, seen[i].Address, lookPorts) })
		}
		all.Wait()
		a.lease.mu.Lock()
		a.lease.looked = seen
		a.lease.mu.Unlock()
	}()
}

// isAddressReachable tells whether a machine answers at an address, on any of the ports, in whatever way.
func isAddressReachable(ctx context.Context, address string, ports []string) bool {
	if _, err := netip.ParseAddr(address); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	answers := make(chan bool, len(ports))
	for _, port := range ports {
		go func() {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(address, port))
			if err == nil {
				_ = c.Close()
			}
			answers <- err == nil || errors.Is(err, syscall.ECONNREFUSED)
		}()
	}
	for range ports {
		if <-answers {
			return true
		}
	}
	return false
}
