package api

import (
	"net/netip"
	"time"
)

// maxSources bounds the sources that are told apart. More of them share what all together may.
const maxSources = 1 << 16

// tokenBucket fills by a rate and is emptied by refusals; below zero its owner waits.
type tokenBucket struct {
	left  float64
	at    time.Time
	taken int // by requests that have no answer yet, each of which may be a refusal
}

// refusalCounters are the buckets of one kind of refusal.
type refusalCounters struct {
	rate, allRate float64 // per second; 0: no bound
	burst         float64 // seconds' worth that a bucket holds
	// all is what those share who were refused lately, first what the others do: they shall not wait for what they did not do.
	all, first tokenBucket
	sources    map[netip.Prefix]tokenBucket
}

func newCounters(each, all int, burst time.Duration) refusalCounters {
	c := refusalCounters{rate: float64(each), allRate: float64(all), burst: burst.Seconds(), sources: map[netip.Prefix]tokenBucket{}}
	c.all.left = c.allRate * c.burst
	c.first.left = c.all.left
	return c
}

// sourceNetwork is one that a source is of, and how many times the rate of one source it has.
type sourceNetwork struct {
	netip.Prefix
	times float64
}

// listSourceNetworks are those of a source, the narrowest first. Of version 6 customers have 256 networks of 64 bits, or 65,536.
// A proxy on this machine, and the operator's own programs, have none: they would be one source for everybody.
func listSourceNetworks(source netip.Addr) []sourceNetwork {
	switch {
	case source.IsLoopback() || source == loopbackNet:
		return nil
	case source.Is4():
		return []sourceNetwork{{netip.PrefixFrom(source, 32), 1}}
	}
	out := make([]sourceNetwork, 0, 3)
	for _, n := range []struct {
		bits  int
		times float64
	}{{64, 1}, {56, 4}, {48, 8}} {
		p, _ := source.Prefix(n.bits)
		out = append(out, sourceNetwork{p, n.times})
	}
	return out
}

// fill gives a bucket as it is now. A clock that was set back fills nothing.
func (b tokenBucket) fill(rate, burst float64, now time.Time) tokenBucket {
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.left = min(b.left+rate*passed, rate*burst)
	}
	b.at = now
	return b
}

// take lets a request of the source in and counts it until release; no shared bucket: the source has to wait so long.
func (c *refusalCounters) take(source netip.Addr, now time.Time) (shared *tokenBucket, wait time.Duration) {
	longest := 0.0
	if shared = c.shared(source, now); c.allRate > 0 {
		longest = untilOne(shared.fill(c.allRate, c.burst, now), c.allRate)
	}
	c.each(source, now, func(b tokenBucket, rate float64) tokenBucket {
		longest = max(longest, untilOne(b, rate))
		return b
	})
	if longest > 0 {
		return nil, time.Duration(longest * float64(time.Second))
	}
	shared.taken++
	c.each(source, now, func(b tokenBucket, _ float64) tokenBucket { b.taken++; return b })
	return shared, 0
}

// release ends what take began.
func (c *refusalCounters) release(source netip.Addr, shared *tokenBucket, now time.Time) {
	shared.taken = max(0, shared.taken-1)
	c.each(source, now, func(b tokenBucket, _ float64) tokenBucket { b.taken = max(0, b.taken-1); return b })
}

// untilOne is how many seconds a bucket needs to have room for one more.
func untilOne(b tokenBucket, rate float64) float64 { return max(0, (1+float64(b.taken)-b.left)/rate) }

// shared is what the source has together with others.
func (c *refusalCounters) shared(source netip.Addr, now time.Time) *tokenBucket {
	known := listSourceNetworks(source) == nil
	c.each(source, now, func(b tokenBucket, rate float64) tokenBucket {
		known = known || b.left < rate*c.burst
		return b
	})
	if known {
		return &c.all
	}
	return &c.first
}

// each changes the buckets of a source's networks. A full one that counts nothing says nothing, and is not kept.
func (c *refusalCounters) each(source netip.Addr, now time.Time, change func(b tokenBucket, rate float64) tokenBucket) {
	if c.rate <= 0 {
		return
	}
	for _, n := range listSourceNetworks(source) {
		rate := c.rate * n.times
		b, ok := c.sources[n.Prefix]
		if !ok {
			b = tokenBucket{left: rate * c.burst, at: now}
		}
		switch b = change(b.fill(rate, c.burst, now), rate); {
		case b.taken == 0 && b.left >= rate*c.burst:
			delete(c.sources, n.Prefix)
		default:
			if !ok {
				c.makeRoom(now)
			}
			c.sources[n.Prefix] = b
		}
	}
}

// charge takes from the source and from what it shares.
func (c *refusalCounters) charge(source netip.Addr, cost float64, now time.Time) {
	if c.allRate > 0 {
		shared := c.shared(source, now)
		*shared = shared.fill(c.allRate, c.burst, now).less(cost, c.allRate)
	}
	c.each(source, now, func(b tokenBucket, rate float64) tokenBucket { return b.less(cost, rate) })
}

// loopbackNet is the network of ::1.
var loopbackNet = netip.IPv6Unspecified()

// less never goes so far below zero that who stops has to wait for long.
func (b tokenBucket) less(cost, rate float64) tokenBucket {
	b.left = max(b.left-cost, -rate)
	return b
}

// lookedAt bounds the search for one to forget.
const lookedAt = 16

// makeRoom forgets, of a few sources, the one that has the most left: a full bucket says nothing.
func (c *refusalCounters) makeRoom(now time.Time) {
	if len(c.sources) < maxSources {
		return
	}
	var fullest netip.Prefix
	most, seen := -1e18, 0
	for a, b := range c.sources { // in an order that nobody can choose
		if b = b.fill(c.rate, c.burst, now); b.left > most {
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

// trustedClients keep what was proved lately, for one to two generations.
type trustedClients struct {
	now, before map[uint64]struct{}
	began       time.Time
}

func (p *trustedClients) has(proof uint64) bool {
	_, ok := p.now[proof]
	if !ok {
		_, ok = p.before[proof]
	}
	return ok
}

func (p *trustedClients) put(proof uint64, now time.Time) {
	if p.now == nil || len(p.now) >= maxProven || now.Sub(p.began) > generation {
		p.before, p.now, p.began = p.now, map[uint64]struct{}{}, now
	}
	p.now[proof] = struct{}{}
}
