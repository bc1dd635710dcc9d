package server

import (
	"context"
	"fmt"
	"testing"

	"salvor/compute"
	"salvor/job"
	"salvor/test/fixture"
	"salvor/test/must"
)

// drained begins the drain of the first testHost, which dies when it is asked for the first thing.
func (l *migrationWorld) drained(t *testing.T) *compute.Plan {
	t.Helper()
	p := l.plan(t, compute.PlanRequest{Drain: true})
	l.runPlan(t, p)
	fixture.PollActing(t, "the source is asked for something", l.pokeAll, func() bool { return l.asked(t) })
	return p
}

// hostWork lists what goes on on the first host.
func (l *migrationWorld) hostWork(t *testing.T) (open []job.Job) {
	t.Helper()
	l.tx(t, func(tx job.Tx) (err error) {
		open, err = l.store.Unended(tx, compute.HostSubject(l.host.ID))
		return err
	})
	return open
}

// TestADrainGivesWayToAFence: a host that dies while it is drained is fenced at once, and its drain ends.
func TestADrainGivesWayToAFence(t *testing.T) {
	t.Parallel()
	l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	stop := l.conduct(t)
	defer stop()
	p := l.drained(t)
	id := must.Get(l.services.Fences.Fence(context.Background(), l.host.ID, compute.FenceArgs{Words: "it burns"}, ops))(t)
	if now, err := l.services.Plans.Get(context.Background(), p.ID); err != nil || now.State != compute.PlanCancelled {
		t.Errorf("plan %+v: %v", now, err)
	}
	for _, j := range l.hostWork(t) {
		if j.ID != id || j.Kind != compute.JobFence {
			t.Errorf("%s goes on", j.Kind)
		}
	}
}

// TestADrainEndsWithItsHost: of a host that was fenced by other means nothing is in the way of its evacuation.
func TestADrainEndsWithItsHost(t *testing.T) {
	t.Parallel()
	l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	stop := l.conduct(t)
	p := l.drained(t)
	l.fence(t)
	fixture.Poll(t, "the drain ends", func() bool { return len(l.hostWork(t)) == 0 }, func(t *testing.T) string { return fmt.Sprintf("%+v", l.hostWork(t)) })
	stop()
	if now, err := l.services.Plans.Get(context.Background(), p.ID); err != nil || now.State == compute.PlanRunning {
		t.Errorf("plan %+v: %v", now, err)
	}
	l.renew(t)
	l.evacuate(t)
	l.workAll(t)
	l.livesElsewhere(t, true)
}

// TestTheSourceDiesAfterTheHandOver: a server that was moved off, and is its destination's, starts there once its source is fenced.
func TestTheSourceDiesAfterTheHandOver(t *testing.T) {
	t.Parallel()
	l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
	l.mute(l.testHost, compute.MigrateBegin)
	l.requestMigration(t, compute.MigrationRequest{})
	stop := l.conduct(t)
	defer stop()
	fixture.PollActing(t, "it is handed over", l.pokeEveryHost, func() bool { return l.lastMove(t).State == compute.MoveAttached }, l.whereabouts)
	l.fence(t)
	fixture.PollActing(t, "it is brought on", l.pokeAll, func() bool { return !l.lastMove(t).Going() }, l.whereabouts) // the source answers nothing more
	home := l.now(t)
	if home.State != compute.Active || home.Power != compute.PowerOn || home.HostID == l.host.ID {
		t.Errorf("left as\n%s", l.whereabouts(t))
	}
}
