package node

import (
	"context"
	"sync"
	"time"

	"salvor/metal"
)

const (
	// repairInterval is how often nodes without a turn are looked for: programs of an older release make such.
	repairInterval = 10 * time.Minute
	// calmEvery is how often readings that say nothing new are written, all in one transaction.
	calmEvery = 200 * time.Millisecond
	// calmMost bounds them.
	calmMost = 256
	// claimFor is how long the readers should have enough with one claim, claimMost bounds it: what is claimed and
	// not read, because the program ends, is read a turn later.
	claimFor  = 500 * time.Millisecond
	claimMost = 256
)

// RunPowerSync reads until ctx ends. Of several conductors each claims nodes of its own, as many as it reads in half a second and those that are due
// longest; a BMC that does not answer keeps one of the workers, not the others.
func (c *Conductor) RunPowerSync(ctx context.Context, p PowerSync) {
	if p.Interval <= 0 {
		return
	}
	// What falls due in a pause is read that much late; a look that finds nothing is no transaction.
	pause := min(max(p.Interval/100, 50*time.Millisecond), time.Second)
	turns, stop := c.powers().readers(ctx, p)
	defer stop()
	var tended time.Time
	size := 2 * p.Workers
	for ctx.Err() == nil {
		if time.Since(tended) >= repairInterval {
			tended = time.Now()
			if _, err := c.Store.TendPower(ctx); err != nil && ctx.Err() == nil {
				c.Log.Error("power sync", "error", err)
			}
		}
		due := c.powers().claimTurns(ctx, p, size)
		began := time.Now()
		for _, n := range due {
			select {
			case turns <- n:
			case <-ctx.Done():
			}
		}
		size = claimNext(size, 2*p.Workers, len(due), time.Since(began))
		if len(due) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// readers starts the workers; the returned function ends them after what they were given.
func (c powerOperations) readers(ctx context.Context, p PowerSync) (chan<- *metal.Node, func()) {
	turns := make(chan *metal.Node)
	quiet := &quietReadings{c: c.Conductor}
	over := make(chan struct{})
	var workers, writer sync.WaitGroup
	for range p.Workers {
		workers.Go(func() {
			for n := range turns {
				if err := c.syncNode(ctx, p, n, quiet); err != nil && ctx.Err() == nil {
					c.Log.Error("power sync", "node", n.ID, "error", err)
				}
			}
		})
	}
	writer.Go(func() {
		ticker := time.NewTicker(calmEvery)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
				quiet.flush(ctx)
			}
		}
	})
	return turns, func() {
		close(turns)
		workers.Wait()
		close(over)
		writer.Wait()
		quiet.flush(ctx)
	}
}

// claimNext is how many nodes are claimed at once after a claim of size gave got, which it took the readers so long to
// take: a claim is a commit, but where BMCs are slow nobody hoards what another conductor could read.
func claimNext(size, least, got int, took time.Duration) int {
	switch {
	case took > claimFor:
		size /= 2
	case got >= size:
		size = min(2*size, claimMost)
	}
	return max(size, least)
}

func (c powerOperations) claimTurns(ctx context.Context, p PowerSync, size int) []*metal.Node {
	now := c.Now()
	turn := metal.PowerTurn{Groups: p.Groups, Now: now, Soon: now.Add(min(p.Interval, max(p.Interval/8, time.Second))), Next: now.Add(p.Interval), Skip: notSynced}
	due, err := c.Store.ClaimPower(ctx, turn, size)
	if err != nil && ctx.Err() == nil {
		c.Log.Error("power sync", "error", err)
	}
	return due
}

// quietReadings gathers readings that say nothing new.
type quietReadings struct {
	c  *Conductor
	mu sync.Mutex
	// readings that are not written yet.
	readings []metal.PowerReading
}

func (q *quietReadings) add(ctx context.Context, r metal.PowerReading) {
	q.mu.Lock()
	q.readings = append(q.readings, r)
	full := len(q.readings) >= calmMost
	q.mu.Unlock()
	if full {
		q.flush(ctx)
	}
}

func (q *quietReadings) flush(ctx context.Context) {
	q.mu.Lock()
	readings := q.readings
	q.readings = nil
	q.mu.Unlock()
	if err := q.c.Store.SavePower(ctx, readings); err != nil && ctx.Err() == nil {
		q.c.Log.Error("power sync", "error", err) // the next reading says it again
	}
}

// unremarkable tells that a reading changes nothing that is known of the node.
func (r powerReading) unremarkable(n *metal.Node) bool {
	return r.err == nil && r.state != "" && r.state == n.PowerState && n.TargetPower == "" && r.health == n.Health && n.Fault != metal.PowerFailure
}
