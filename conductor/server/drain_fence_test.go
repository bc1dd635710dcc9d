package server

import (
	"context"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/test/must"
)

// drained begins the drain of the first house, which dies when it is asked for the first thing.
func (l *lane) drained(t *testing.T) *compute.Plan {
	t.Helper()
	p := l.plan(t, compute.PlanRequest{Drain: true})
	l.runPlan(t, p)
	for end := time.Now().Add(30 * time.Second); !l.asked(t); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the source is not asked for anything")
		}
		l.pokeAll()
	}
	return p
}

// hostWork lists what goes on on the first house's host.
func (l *lane) hostWork(t *testing.T) (open []job.Job) {
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
	l := newLane(t, moveOptions{quarters: quarters{state: compute.Active}})
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
	l := newLane(t, moveOptions{quarters: quarters{state: compute.Active}})
	stop := l.conduct(t)
	p := l.drained(t)
	l.fence(t)
	for end := time.Now().Add(time.Minute); len(l.hostWork(t)) > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the drain goes on: %+v", l.hostWork(t))
		}
	}
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
	l := newLane(t, moveOptions{quarters: quarters{state: compute.Active}})
	l.mute(l.house, compute.MigrateBegin)
	l.requestMigration(t, compute.MigrationRequest{})
	stop := l.conduct(t)
	defer stop()
	for end := time.Now().Add(30 * time.Second); l.lastMove(t).State != compute.MoveAttached; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not handed over:\n%s", l.whereabouts(t))
		}
		l.pokeLane()
	}
	l.fence(t)
	for end := time.Now().Add(time.Minute); l.lastMove(t).Going(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not brought on:\n%s", l.whereabouts(t))
		}
		l.pokeAll() // the source answers nothing more
	}
	home := l.now(t)
	if home.State != compute.Active || home.Power != compute.PowerOn || home.HostID == l.host.ID {
		t.Errorf("left as\n%s", l.whereabouts(t))
	}
}
