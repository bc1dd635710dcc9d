package fleet

import (
	"sync/atomic"
	"time"
)

// fleetCounters is what happened so far. Times are kept in classes, so that their number does not matter.
type fleetCounters struct {
	enrolled, rescued, held, agents, lookups, heartbeats, opened, bmc, errors atomic.Int64
	late                                                                      atomic.Int64 // the most, in nanoseconds
	classes                                                                   [40]atomic.Int64
}

// countHeartbeat counts a heartbeat that was taken, in a class whose border is a half more than the last one's.
func (c *fleetCounters) countHeartbeat(took time.Duration) {
	c.heartbeats.Add(1)
	at := 0
	for border := 100 * time.Microsecond; took > border && at < len(c.classes)-1; border = border * 3 / 2 {
		at++
	}
	c.classes[at].Add(1)
}

// quantile is the upper border of the class in which that share of the heartbeats lies.
func (c *fleetCounters) quantile(share float64) time.Duration {
	left := int64(share * float64(c.heartbeats.Load()))
	border := 100 * time.Microsecond
	for i := range c.classes {
		if left -= c.classes[i].Load(); left < 0 {
			break
		}
		border = border * 3 / 2
	}
	return border
}

func (c *fleetCounters) lateness(d time.Duration) {
	for {
		now := c.late.Load()
		if int64(d) <= now || c.late.CompareAndSwap(now, int64(d)) {
			return
		}
	}
}

// Summary is what a fleet has done and has seen.
type Summary struct {
	Nodes    int    `json:"nodes"`
	Seed     uint64 `json:"seed"`
	Enrolled int64  `json:"enrolled"`
	Rescued  int64  `json:"rescued"`
	Held     int64  `json:"held"`
	// Agents is how many live now, Opened how many rescues they have ended.
	Agents     int64 `json:"agents"`
	Lookups    int64 `json:"lookups"`
	Opened     int64 `json:"opened"`
	Heartbeats int64 `json:"heartbeats"`
	// Median and Slowest are of the answers to heartbeats: half, and 99 of 100, came within that many ms.
	Median  float64 `json:"heartbeat_p50_ms"`
	Slowest float64 `json:"heartbeat_p99_ms"`
	// Late is by how many seconds heartbeats were sent late at the worst, because earlier ones had not been answered.
	Late float64 `json:"late_s"`
	BMC  int64   `json:"bmc_requests"`
	// Faulty is how many BMCs misbehave once all nodes are enrolled.
	Faulty int   `json:"faulty_bmcs"`
	Errors int64 `json:"errors"`
}

// Summary is how things stand.
func (f *Fleet) Summary() Summary {
	c := &f.counts
	s := Summary{
		Nodes: len(f.machines), Seed: f.config.Seed, Enrolled: c.enrolled.Load(), Rescued: c.rescued.Load(), Held: c.held.Load(), Agents: c.agents.Load(), Lookups: c.lookups.Load(), Opened: c.opened.Load(),
		Heartbeats: c.heartbeats.Load(), Late: time.Duration(c.late.Load()).Round(100 * time.Millisecond).Seconds(), BMC: c.bmc.Load(), Errors: c.errors.Load(),
	}
	if s.Heartbeats > 0 {
		s.Median, s.Slowest = toMilliseconds(c.quantile(0.5)), toMilliseconds(c.quantile(0.99))
	}
	for i := range f.machines {
		if f.machines[i].fault != none {
			s.Faulty++
		}
	}
	return s
}

func toMilliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}
