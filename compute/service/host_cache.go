package service

import (
	"sync"
	"time"

	"salvor/compute"
)

// hostCache is what this process remembers of hosts. One lock guards all of it. Nobody asks the store or a BMC with that lock held.
type hostCache struct {
	mu    sync.Mutex
	hosts map[string]*cachedHost

	// listeningSince is from when on hosts could be heard without a gap; stale: just now they cannot be. looked is when the loop asked the
	// store last. These times are this process's own, with the reading of the monotonic clock.
	listeningSince, looked time.Time
	stale                  bool

	placement placementHosts
	flags     hostFlags
	// reading is held while the flags are read again: renewals that need them wait for the one that reads.
	reading sync.Mutex
	probes  probeResults
}

// cachedHost is what this process knows of one host. Its lease is kept until it is written with those of other hosts, so that a host that
// only says it lives does not cost a commit.
type cachedHost struct {
	lease   compute.Lease
	fresh   bool // not written yet
	revoked bool
	// serial and revokedAt are the row's.
	serial    string
	revokedAt time.Time
	name      string
	readAt    time.Time
	// group, fenced, forcedDown, unseen and strays are the row's.
	group                      string
	fenced, forcedDown, unseen bool
	lost                       bool // see Host.Lost
	strays                     []string
	unlooked                   []string // see Host.Unlooked
	// stopTold: its newest answer told it to stop its guests. stopped is when it told that none runs; zero: it has not.
	stopTold bool
	stopped  time.Time
	// ours are the guests with our mark that it told last while it was held, in its boot oursBoot; nil: they are not known.
	ours     map[string]bool
	oursBoot string
	// ending are the guests of which noteOnce told, with the epoch that was noted.
	ending map[string]int64
	// endedAt is when its guests may have been ended last, by us or by its own silence; zero: they were not.
	endedAt time.Time
	// inventory and guests of this boot have been taken in.
	inventory, guests bool
	// started: the host has started, and has not told its guests since.
	started bool
	toldAt  time.Time // when it told its guests
	heard   lastSeen
}

// lastSeen is the newest renewal of a host that was answered here, or that another process stored.
type lastSeen struct {
	known    bool // there was one
	at       time.Time
	watchdog string
	// first is set until this process sees a renewal newer than the one that it found when it looked first. It is the time of that renewal
	// by the clock of the process that answered it. Until then at is no later than that look.
	first time.Time
	// count is the stored count of renewals that was seen last. With another count, another process answered a renewal.
	count int64
	// storedAt is the time of the newest renewal that this process has written to the store, and storedWatchdog the watchdog that it named.
	storedAt       time.Time
	storedWatchdog string
}

// hear records a renewal that this process answers now.
func (h *cachedHost) hear(now time.Time, watchdog string) {
	h.heard.known, h.heard.at, h.heard.watchdog, h.heard.first = true, now, watchdog, time.Time{}
}

func newHostCache(now time.Time) *hostCache {
	return &hostCache{hosts: map[string]*cachedHost{}, listeningSince: now}
}

// get gives a copy of what is known of a host; nothing is known of a zero one.
func (c *hostCache) get(id string) cachedHost {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hosts[id]; h != nil {
		return *h
	}
	return cachedHost{}
}

// change changes what is known of a host.
func (c *hostCache) change(id string, do func(*cachedHost)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(c.host(id))
}

// host is the entry of a host. The caller holds the lock.
func (c *hostCache) host(id string) *cachedHost {
	h := c.hosts[id]
	if h == nil {
		h = &cachedHost{}
		c.hosts[id] = h
	}
	return h
}

// expireRow makes the host's row be read again.
func (c *hostCache) expireRow(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hosts[id]; h != nil {
		h.readAt = time.Time{}
	}
}

func (c *hostCache) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hosts, id)
}

// newest is the newer of a stored lease and the one held here.
func (c *hostCache) newest(stored compute.Lease, id string) compute.Lease {
	if h := c.get(id); h.lease.RenewedAt.After(stored.RenewedAt) {
		return h.lease
	}
	return stored
}

// takeDueLeases lists what has to be written.
func (c *hostCache) takeDueLeases() []compute.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []compute.Lease
	for _, h := range c.hosts {
		if h.fresh {
			h.fresh = false
			out = append(out, h.lease)
		}
	}
	return out
}

// requeueLeases takes back leases that could not be written.
func (c *hostCache) requeueLeases(all []compute.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
	for _, lease := range all {
		if h := c.hosts[lease.HostID]; h != nil {
			h.fresh = true
		}
	}
}

// markStored notes which leases others see, and that their counts are no news here.
func (c *hostCache) markStored(leases []compute.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range leases {
		w := &c.host(l.HostID).heard
		w.known, w.count = true, max(w.count, l.Renewals)
		if l.RenewedAt.After(w.storedAt) {
			w.storedAt, w.storedWatchdog = l.RenewedAt, l.Watchdog
		}
	}
}

// hearing gives what was heard of a host and from when on its silence counts; known is false where nothing can be said.
func (c *hostCache) hearing(id string) (w lastSeen, from time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hosts[id]; h != nil {
		w = h.heard
	}
	if from = w.at; from.Before(c.listeningSince) {
		from = c.listeningSince
	}
	return w, from, w.known && !c.stale
}

// markStale notes that no host can be heard just now.
func (c *hostCache) markStale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
}

// hearStored compares what is stored with what was seen of it before. A lease that this process wrote is no news.
func (c *hostCache) hearStored(stored map[string]compute.Lease, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stale {
		c.stale, c.listeningSince = false, now
	}
	for id, l := range stored {
		h := c.host(id)
		w := &h.heard
		if w.known && w.count == l.Renewals {
			continue
		}
		seen := w.known
		w.known, w.count, w.watchdog = true, l.Renewals, l.Watchdog
		if own := h.lease; own.Renewals == l.Renewals && own.RenewedAt.UnixMicro() == l.RenewedAt.UnixMicro() {
			continue
		}
		if w.at, w.first = now, (time.Time{}); !seen {
			w.first = l.RenewedAt
		}
	}
}

// resume has silence count anew if the store was not asked for too long; turn: the loop asks it now.
func (c *hostCache) resume(now time.Time, turn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gap := !c.looked.IsZero() && now.Sub(c.looked) > deafAfter
	if gap {
		c.listeningSince = now
	}
	if gap || turn {
		c.looked = now
	}
}

// listening tells for how long hosts could be heard without a gap, and whether they can be just now. With looked, the loop has asked the store.
func (c *hostCache) listening(now time.Time) (length time.Duration, stale, looked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Sub(c.listeningSince), c.stale, !c.looked.IsZero()
}
