package api

import (
	"net/netip"
	"time"
)

// maxSources bounds the sources that are told apart. More of them share what all together may.
const maxSources = 1 << 16

// bucket fills by a rate and is emptied by refusals; below zero its owner waits.
type bucket struct {
	left  float64
	at    time.Time
	taken int // by requests that have no answer yet, each of which may be a refusal
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

// take lets a request of the source in and counts it until release, or tells how long the source has to wait.
func (c *counters) take(source netip.Addr, now time.Time) time.Duration {
	longest := 0.0
	if c.allRate > 0 {
		longest = lacking(c.all.fill(c.allRate, c.patience, now), c.allRate)
	}
	b, own := c.source(source, now)
	if own {
		longest = max(longest, lacking(b, c.rate))
	}
	if longest > 0 {
		return time.Duration(longest * float64(time.Second))
	}
	c.all.taken++
	if own {
		b.taken++
		c.put(source, b, now)
	}
	return 0
}

// release ends what take began.
func (c *counters) release(source netip.Addr, now time.Time) {
	c.all.taken = max(0, c.all.taken-1)
	b, own := c.source(source, now)
	if !own {
		return
	}
	if b.taken = max(0, b.taken-1); b.taken == 0 && b.left >= c.rate*c.patience {
		delete(c.sources, source) // a full bucket says nothing
		return
	}
	c.put(source, b, now)
}

func lacking(b bucket, rate float64) float64 { return max(0, (1+float64(b.taken)-b.left)/rate) }

// source gives the bucket of a source as it is now. A proxy on this machine, and the operator's own
// programs, have none of their own: they would be one source for everybody.
func (c *counters) source(source netip.Addr, now time.Time) (b bucket, own bool) {
	if c.rate <= 0 || source.IsLoopback() || source == loopbackNet {
		return b, false
	}
	b, ok := c.sources[source]
	if !ok {
		b = bucket{left: c.rate * c.patience, at: now}
	}
	return b.fill(c.rate, c.patience, now), true
}

func (c *counters) put(source netip.Addr, b bucket, now time.Time) {
	if _, ok := c.sources[source]; !ok {
		c.makeRoom(now)
	}
	c.sources[source] = b
}

// charge takes from the source and from all.
func (c *counters) charge(source netip.Addr, cost float64, now time.Time) {
	if c.allRate > 0 {
		c.all = c.all.fill(c.allRate, c.patience, now).less(cost, c.allRate)
	}
	if b, own := c.source(source, now); own {
		c.put(source, b.less(cost, c.rate), now)
	}
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
