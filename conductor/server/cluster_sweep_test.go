package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/test/must"
)

// TestSweepClusterWatch: whatever befalls a look at the cluster, all that it had to tell is told once. The watch has no end of its own; here
// it ends when it has told the last job.
func TestSweepClusterWatch(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		c := newCloud(t)
		id := c.adopted("web")
		jobs := func(slow bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.jobs = []hypervisor.ClusterJob{{ID: 1, Summary: "OLD", Ended: true}, {ID: 2, Summary: "SLOW", Ended: slow}, {ID: 3, Summary: "QUICK", Ended: true}}
			for i := range c.jobs {
				c.jobs[i].Guests = []string{"web"}
			}
		}
		c.jobs = []hypervisor.ClusterJob{{ID: 1, Summary: "OLD", Ended: true}}
		c.turn()
		c.image("a.iso")
		definitions := c.con.Definitions()
		watch := &definitions[slices.IndexFunc(definitions, func(d job.Definition) bool { return d.Kind == compute.JobWatch })].Actions[0]
		look := watch.Do
		watch.Do = func(ctx context.Context, r *job.Run) job.Outcome {
			if slices.Contains(c.clusterEvents(id), "info: Ganeti did SLOW") {
				return job.Done()
			}
			return look(ctx, r)
		}
		return &jobtest.World{
			Store: c.store, Definitions: definitions, Kind: compute.JobWatch, Subject: compute.ClusterSubject(c.row.ID),
			Conductor: job.Conductor{ID: "c", Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
			Start: func(*testing.T) {
				jobs(false)
				c.boots("web", "/srv/rescue/a.iso")
				c.change("web", func(g *hypervisor.ClusterGuest) { g.Host, g.Trouble = "n2", "Ganeti finds its disk degraded" })
			},
			Poke: func() {
				if slices.Contains(c.clusterEvents(id), "info: Ganeti did QUICK") {
					jobs(true)
				}
				c.wake()
			},
			Picture: func(t *testing.T) string {
				host := must.Get(c.store.Hosts().Get(t.Context(), nil, c.server(id).HostID))(t)
				return fmt.Sprintf("%s on %s: %q", c.is(id), host.Name, c.clusterEvents(id))
			},
			Broken: func(t *testing.T) {
				told := c.clusterEvents(id)
				if slices.Sort(told); len(slices.Compact(told)) != len(c.clusterEvents(id)) {
					t.Errorf("told twice: %q", c.clusterEvents(id))
				}
			},
		}
	})
}
