package nova

import (
	"context"
	"maps"
	"sync"
	"time"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/record"
)

// namesAge is for how long the names of hosts and networks are believed.
const namesAge = time.Second

// nameLookupCache remembers what answers tell of the hosts and networks of servers, so that a list
// reads neither. It is safe for use by several goroutines.
type nameLookupCache struct {
	services *service.Services
	now      func() time.Time

	mu   sync.Mutex
	read time.Time
	last *nameSnapshot
}

// nameSnapshot is one state of the names. It is never changed.
type nameSnapshot struct {
	generation int64
	hosts      map[string]hostName
	networks   map[string]string
}

// hostName is what answers about servers tell of a host.
type hostName struct{ name, zone, status, address string }

// get gives the names, at most namesAge old.
func (n *nameLookupCache) get(ctx context.Context) (*nameSnapshot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last != nil && n.now().Sub(n.read) < namesAge {
		return n.last, nil
	}
	read := n.now()
	hosts, err := n.services.Hosts.List(ctx, compute.HostFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	lives, err := n.services.Liveness.All(ctx)
	if err != nil {
		return nil, err
	}
	networks, err := n.services.Networks.List(ctx, compute.NetworkFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	fresh := &nameSnapshot{hosts: make(map[string]hostName, len(hosts)), networks: make(map[string]string, len(networks))}
	for _, h := range hosts {
		fresh.hosts[h.ID] = hostName{h.Name, zoneOf(h.Zone), hostStatus(h, lives[h.ID]), h.Inventory.Address}
	}
	for _, net := range networks {
		fresh.networks[net.ID] = net.Name
	}
	n.read = read
	if n.last != nil {
		if maps.Equal(n.last.hosts, fresh.hosts) && maps.Equal(n.last.networks, fresh.networks) {
			return n.last, nil
		}
		fresh.generation = n.last.generation + 1
	}
	n.last = fresh
	return fresh, nil
}

// hostStatus is host_status of servers.
func hostStatus(h *compute.Host, l compute.HostLiveness) string {
	switch {
	case h.ForcedDown || !l.Up:
		return "DOWN"
	case h.Disabled:
		return "MAINTENANCE"
	}
	return "UP"
}
