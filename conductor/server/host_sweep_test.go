package server

import (
	"context"
	"fmt"
	"testing"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/test/fixture"
	"salvor/test/must"
)

// drain asks for the host to be emptied.
func (l *migrationWorld) drain(t *testing.T) *compute.Plan {
	t.Helper()
	return planned(t, l.pokeAll, func() (*compute.Plan, error) { return l.services.Plans.Drain(context.Background(), l.host.ID, ops) })
}

// TestSweepDrain: a host that lives is emptied, whatever befalls its conductor; the guest is at one place, which is the server's.
func TestSweepDrain(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		l := newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active}})
		var p *compute.Plan
		ended := func(t *testing.T) *compute.Plan {
			l.finish(t) // what the job left to the moves
			now := must.Get(l.services.Plans.Get(context.Background(), p.ID))(t)
			return now
		}
		w := l.sweepWorld(compute.JobDrain, func(t *testing.T) { p = l.drain(t) }, func(t *testing.T) {
			if now := ended(t); now.State == compute.PlanRunning || now.EndedAt.IsZero() {
				t.Errorf("plan %+v", now)
			}
			l.at(t)
		})
		w.Subject, w.Poke = compute.HostSubject(l.host.ID), l.pokeEveryHost
		w.Picture = func(t *testing.T) string {
			now := ended(t)
			l.at(t)
			h := must.Get(l.services.Hosts.Host(context.Background(), l.host.ID))(t)
			return fmt.Sprintln(now.State, len(now.Items), now.Items[0].Problem, now.Items[0].MoveID != "", h.Disabled, h.DisabledReason) + l.whereabouts(t)
		}
		return w
	})
}

// TestSweepRestore: a host comes back, whatever befalls its conductor: a node is let go and on, and its cluster has it again.
func TestSweepRestore(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
			s, h := newEvacuationCluster(t, compute.Active)
			h.offline = []string{s.host.Name}
			w := s.sweepWorld(compute.JobRestore, func(t *testing.T) {
				must.Get(s.services.Plans.Restore(context.Background(), s.host.ID, ops))(t)
			}, func(t *testing.T) {})
			w.Subject = compute.HostSubject(s.host.ID)
			w.Picture = func(t *testing.T) string { return fmt.Sprintln("offline", h.offline) + s.whereabouts(t) }
			return w
		})
	})
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
			y := newLot(t, site{node: true})
			must.OK(t, y.store.Do(context.Background(), func(tx job.Tx) error { return y.nodes.LockPower(context.Background(), tx, y.node, "fenced") }))
			y.power = metal.PowerOff
			w := y.world(func(t *testing.T) {
				must.Get(y.services.Plans.Restore(context.Background(), y.host.ID, ops))(t)
			}, y.quiet)
			w.Kind = compute.JobRestore
			w.Picture = func(t *testing.T) string {
				y.quiet(t)
				return y.picture(t)
			}
			return w
		})
	})
}

// quiet has a conductor work until nothing is left to be done on the node.
func (y *fenceWorld) quiet(t *testing.T) {
	t.Helper()
	stop := y.testHost().conduct(t)
	defer stop()
	fixture.Poll(t, "nobody works on the node", func() bool { return len(y.open(t)) == 0 }, y.picture)
}
