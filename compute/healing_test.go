package compute_test

import (
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
)

// TestTheGateIsOneForAllControlPlanes: whoever heals, and after whatever restart, no more hosts of a group than may be are healed in a
// cycle; that a fence was blocked, or that its receipt was closed, opens the gate for nobody.
func TestTheGateIsOneForAllControlPlanes(t *testing.T) {
	w := newWorld(t)
	g := compute.DefaultHostGroup()
	g.Name, g.Healing, g.MaxShare = "racks", true, 100
	w.no(w.HostGroups.Create(w.ctx, g, admin.Asker))
	hosts := []*compute.Host{w.host, w.join("host-b"), w.join("host-c"), w.join("host-d")}
	for _, h := range hosts {
		node := newID()
		_, err := w.Hosts.SetService(w.ctx, h.ID, compute.Service{Group: &g.Name, NodeID: &node}, admin.Asker)
		w.no(err)
		w.tx(func(tx job.Tx) error {
			return w.store.Servers().Insert(tx, &compute.Server{Record: record.Record{ID: newID(), CreatedAt: w.now()}, Name: h.Name, State: compute.Active, HostID: h.ID, Epoch: 1})
		})
	}
	begun := 0
	end := func() {
		for _, h := range hosts {
			for _, j := range w.hostJobs(h) {
				begun++
				w.run(j, job.Ended)
			}
		}
	}
	for range 4 { // each is a process that has just begun, and has listened
		w.no(w.Hosts.FlushLeases(w.ctx))
		there, _ := w.other(0)
		there.Hosts.SetSenses(offSense{})
		for range 6 {
			w.no(there.Hosts.ListenOnce(w.ctx))
			w.pass(2 * time.Second)
			for _, h := range hosts[2:] {
				_, err := there.Hosts.Renew(w.ctx, h.ID, "01", compute.Renewal{BootID: "boot-1"})
				w.no(err)
			}
		}
		w.no(there.Hosts.ListenOnce(w.ctx))
		w.no(there.Hosts.TendSuspects(w.ctx))
		end()
	}
	if begun != 1 {
		t.Errorf("%d hosts were healed in one cycle, of 1", begun)
	}
}
