package serve

import (
	"context"
	"sync"
	"time"

	"salvor/job"
)

// janitorInterval is how often ended jobs are dropped: asks pile up by the second.
const janitorInterval = 10 * time.Minute

// runJanitor drops ended jobs, the rows of deleted servers, and old timeline rows as often as the configuration says.
func (p *ControlPlane) runJanitor(ctx context.Context) error {
	var turns sync.WaitGroup
	turns.Go(func() { everyTurn(ctx, janitorInterval, janitorInterval, p.unlessHeld(p.dropJobs)) })
	turns.Go(func() { everyTurn(ctx, janitorInterval, 24*time.Hour, p.unlessHeld(p.dropServers)) })
	if every := p.cfg.Conductor.NodeHistoryCleanupInterval; every > 0 {
		turns.Go(func() { everyTurn(ctx, min(every, janitorInterval), every, p.unlessHeld(p.dropHistory)) })
	}
	turns.Wait()
	return nil
}

// unlessHeld skips a turn while the database is held, because an operator may need the rows that it would delete.
func (p *ControlPlane) unlessHeld(fn func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		if p.Store.Held() == nil {
			fn(ctx)
		}
	}
}

// everyTurn runs fn after first, and then once per period, until ctx ends.
func everyTurn(ctx context.Context, first, period time.Duration, fn func(context.Context)) {
	turn := time.NewTimer(first)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
		fn(ctx)
		turn.Reset(period)
	}
}

// eventDays is how long events are kept that are within the bound of their number.
const eventDays = 30

// dropHistory keeps the newest entries of each node, all that are younger than the minimum, and nothing else beyond eventDays.
func (p *ControlPlane) dropHistory(ctx context.Context) {
	c, now := p.cfg.Conductor, p.Store.Now()
	oldest := now.AddDate(0, 0, -max(c.NodeHistoryMinimumDays, eventDays))
	if _, err := p.Store.Prune(ctx, oldest, now.AddDate(0, 0, -c.NodeHistoryMinimumDays), c.NodeHistoryMaxEntries); err != nil && ctx.Err() == nil {
		p.log.Error("drop old timeline rows", "error", err)
	}
}

func (p *ControlPlane) dropServers(ctx context.Context) {
	oldest := p.Store.Now().AddDate(0, 0, -max(p.cfg.Conductor.NodeHistoryMinimumDays, eventDays))
	if _, err := p.Store.PruneServers(ctx, oldest); err != nil && ctx.Err() == nil {
		p.log.Error("drop the rows of deleted servers", "error", err)
	}
}

// dropJobs drops ended jobs: their story is in the timeline; asks and commands are of no use once answered.
func (p *ControlPlane) dropJobs(ctx context.Context) {
	for class, keep := range map[job.Class]time.Duration{job.Background: 10 * time.Minute, job.Command: 24 * time.Hour, job.Operation: 7 * 24 * time.Hour} {
		if _, err := p.Store.PruneJobs(ctx, p.Store.Now().Add(-keep), class); err != nil && ctx.Err() == nil {
			p.log.Error("drop ended jobs", "class", class, "error", err)
		}
	}
	// Longer than any operation: one that runs an action again looks for the order of its first run.
	if _, err := p.Store.PruneOrders(ctx, p.Store.Now().Add(-7*24*time.Hour)); err != nil && ctx.Err() == nil {
		p.log.Error("drop finished orders", "error", err)
	}
}

// reapDeadConductors frees what the conductors of another database hold in a SQLite file that was made of it: the lock proves that they
// do not serve this one. On PostgreSQL their silence tells.
func (p *ControlPlane) reapDeadConductors(ctx context.Context) error {
	if !isSQLite(p.cfg.Database.Connection.Reveal()) {
		return nil
	}
	all, err := p.Store.Conductors(ctx)
	for _, c := range all {
		if err == nil && c.ID != p.state.id {
			p.log.Info("a conductor of the database that this one was made of: its jobs are free", "conductor", c.Hostname)
			err = p.Store.Retire(ctx, c)
		}
	}
	return err
}
