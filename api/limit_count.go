package api

import (
	"net/netip"
	"time"
)

// maxSources bounds the sources that are told apart. More of them share what all together may.
const maxSources = 1 << 16

// bucket fills by a rate and is emptied by refusals; below zero its owner waits.
type bucket struct {
	left float64
	at   time.Time
}

// counters are the buckets of one kind of refusal.
type counters struct {
	rate, allRate float64 // per second; 0: no bound
	patience      float64 // seconds' worth that a bucket holds
	all           bucket
	sources       map[netip.Addr]bucket
}

func newCounters(each, all int, patience time.Duration) counters {
	c := counters{rate: float64(each), allRate: float64(all), patience: patience.Seconds(), sources: map[netip.Addr]bucket{}}
	c.all.left = c.allRate * c.patience
	return c
}

// fill gives a bucket as it is now. A clock that was set back fills nothing.
func (b bucket) fill(rate, patience float64, now time.Time) bucket {
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.left = min(b.left+rate*passed, rate*patience)
	}
	b.at = now
	return b
}

// wait is how long the source has to; 0: not at all.
func (c *counters) wait(source netip.Addr, now time.Time) time.Duration {
	longest := 0.0
	if c.allRate > 0 {
		longest = lacking(c.all.fill(c.allRate, c.patience, now), c.allRate)
	}
	if b, ok := c.sources[source]; ok && c.rate > 0 {
		longest = max(longest, lacking(b.fill(c.rate, c.patience, now), c.rate))
	}
	return time.Duration(longest * float64(time.Second))
}

func lacking(b bucket, rate float64) float64 { return max(0, (1-b.left)/rate) }

// charge takes from the source and from all. A proxy on this machine, and the operator's own
// programs, have no bucket of their own: they would be one source for everybody.
func (c *counters) charge(source netip.Addr, cost float64, now time.Time) {
	if c.allRate > 0 {
		c.all = c.all.fill(c.allRate, c.patience, now).less(cost, c.allRate)
	}
	if c.rate <= 0 || source.IsLoopback() || source == loopbackNet {
		return
	}
	b, ok := c.sources[source]
	if !ok {
		c.makeRoom(now)
		b = bucket{c.rate * c.patience, now}
	}
	c.sources[source] = b.fill(c.rate, c.patience, now).less(cost, c.rate)
}

// loopbackNet is the network of ::1.
var loopbackNet = netip.IPv6Unspecified()

// less never goes so far below zero that who stops has to wait for long.
func (b bucket) less(cost, rate float64) bucket {
	b.left = max(b.left-cost, -rate)
	return b
}

// lookedAt bounds the search for one to forget.
const lookedAt = 16

// makeRoom forgets, of a few sources, the one that has the most left: a full bucket says nothing.
func (c *counters) makeRoom(now time.Time) {
	if len(c.sources) < maxSources {
		return
	}
	var fullest netip.Addr
	most, seen := -1e18, 0
	for a, b := range c.sources { // in an order that nobody can choose
		if b = b.fill(c.rate, c.patience, now); b.left > most {
			fullest, most = a, b.left
		}
		if seen++; seen == lookedAt {
			break
		}
	}
	delete(c.sources, fullest)
}

// maxProven bounds each of the two generations of proofs; it has room for the heartbeats of 100,000 machines.
const (
	maxProven  = 1 << 17
	generation = 10 * time.Minute
)

// memory keeps what was proved lately, for one to two generations.
type memory struct {
	now, before map[uint64]struct{}
	began       time.Time
}

func (m *memory) has(proof uint64) bool {
	_, ok := m.now[proof]
	if !ok {
		_, ok = m.before[proof]
	}
	return ok
}

func (m *memory) put(proof uint64, now time.Time) {
	if m.now == nil || len(m.now) >= maxProven || now.Sub(m.began) > generation {
		m.before, m.now, m.began = m.now, map[uint64]struct{}{}, now
	}
	m.now[proof] = struct{}{}
}
