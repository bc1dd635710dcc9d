package server

import (
	"context"
	"fmt"
	"testing"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/record"
	"salvor/test/must"
)

// The tests of this file fail each read of the store once in operations that no sweep covers.

func TestReadsOfReadmit(t *testing.T) {
	t.Parallel()
	conductortest.SweepReads(t, func(t *testing.T) *jobtest.World {
		s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{state: compute.Active, volumes: true}, others: 1})
		g := &gate{}
		s.con.Config.Storage = excluding{g}
		s.con = New(s.con.Config)
		w := s.world(compute.JobReadmit, func(t *testing.T) {
			s.tx(t, func(tx job.Tx) error {
				return s.store.Insert(tx, &job.Job{Kind: compute.JobReadmit, Class: job.Background, Subject: compute.HostSubject(s.host.ID)})
			})
		}, nil)
		w.Subject, w.Poke = compute.HostSubject(s.host.ID), func() {}
		w.Picture = func(t *testing.T) string {
			g.mu.Lock()
			defer g.mu.Unlock()
			return fmt.Sprint(len(g.let), " let in")
		}
		return w
	})
}

// clusterReads is the world of a question about a cluster. The watch of the cluster, which has no end of its own, ends at once.
func (c *clusterWorld) clusterReads(kind job.Kind, start func(t *testing.T)) *jobtest.World {
	definitions := c.con.Definitions()
	for i := range definitions {
		if definitions[i].Kind == compute.JobWatch {
			definitions[i].Actions[0].Do = func(context.Context, *job.Run) job.Outcome { return job.Done() }
		}
	}
	return &jobtest.World{
		Store: c.store, Definitions: definitions, Kind: kind, Subject: compute.ClusterSubject(c.row.ID),
		Conductor: job.Conductor{ID: "c", Hostname: "c", Groups: []string{""}, Description: []byte(`{}`)},
		Start:     start, Poke: func() {},
		Picture: func(t *testing.T) string {
			var out string
			for _, s := range must.Get(c.services.Servers.List(t.Context(), compute.ServerFilter{}, record.Page{}))(t) {
				out += c.is(s.ID) + "\n"
			}
			return out
		},
	}
}

func TestReadsOfClusterAdoption(t *testing.T) {
	t.Parallel()
	conductortest.SweepReads(t, func(t *testing.T) *jobtest.World {
		c := newCloud(t)
		c.guests = append(c.guests, hypervisor.ClusterGuest{Host: "n1", System: "debian+default", Disks: []int{2048}, Guest: compute.Guest{
			ID: "0dd1e5c4-0000-4000-8000-000000000001", Name: "web", Power: compute.PowerOff, VCPUs: 1, RAM: 512}})
		return c.clusterReads(compute.JobClusterAdopt, func(t *testing.T) {
			must.Get(c.services.Reconciler.AskAdoption(t.Context(), "prod", compute.ClusterAdoptArgs{Instance: "web"}, operator))(t)
		})
	})
}

func TestReadsOfClusterReconcile(t *testing.T) {
	t.Parallel()
	conductortest.SweepReads(t, func(t *testing.T) *jobtest.World {
		c := newCloud(t)
		c.adopted("web")
		c.image("a.iso")
		c.turn()
		c.boots("web", "/srv/rescue/a.iso")
		return c.clusterReads(compute.JobClusterReconcile, func(t *testing.T) {
			must.Get(c.services.Reconciler.AskReconcile(t.Context(), "", true, operator))(t)
		})
	})
}
