package service_test

import (
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
)

// offSense is a BMC that says of each node that it is off.
type offSense struct{}

func (offSense) Power(string) compute.Signal           { return compute.Dead }
func (offSense) Connected([]string) (some, known bool) { return false, false }

// TestHealingComesRound: of two hosts of a group that die at once the second is healed when its turn comes, and again if that was blocked.
func TestHealingComesRound(t *testing.T) {
	w := newWorld(t)
	w.Liveness.SetSenses(offSense{})
	hosts := w.healing(compute.DefaultHostGroup().MaxShare, "host-b", "host-c", "host-d", "host-e")
	type attempt struct {
		host *compute.Host
		at   time.Duration
	}
	var tried []attempt
	for began := w.now(); w.now().Sub(began) < 2*compute.HealCycle+time.Minute; {
		w.pass(7 * time.Second)
		for _, h := range hosts[2:] {
			must.Get(w.Leases.Renew(w.ctx, h.ID, "01", compute.Renewal{BootID: "boot-1"}))(w.t)
		}
		w.no(w.Leases.TendSuspects(w.ctx))
		for i, h := range hosts {
			for _, j := range w.hostJobs(h) {
				if tried = append(tried, attempt{h, w.now().Sub(began)}); i > 1 {
					t.Fatalf("%s lives, and is healed", h.Name)
				}
				w.run(j, job.Ended) // blocked, but for the first
				if len(tried) == 1 {
					w.tx(func(tx job.Tx) error {
						_, err := w.Fences.Give(w.ctx, tx, h.ID, []compute.Proof{{Evidence: compute.PowerCut, Text: "it is off"}}, "", "")
						return err
					})
				}
			}
		}
	}
	if len(tried) != 3 || tried[0].host == tried[1].host || tried[1].host != tried[2].host {
		t.Fatalf("healed: %+v", tried)
	}
	for i, a := range tried[1:] {
		if after := a.at - tried[i].at; after < compute.HealCycle || after > compute.HealCycle+30*time.Second {
			t.Errorf("heal %d came %s after the one before", i+1, after)
		}
	}
}

// healing has a group heal its hosts, the world's and others of these names. Each has a node and a server.
func (w *world) healing(maxShare int, others ...string) []*compute.Host {
	w.t.Helper()
	g := compute.DefaultHostGroup()
	g.Name, g.Healing, g.MaxShare = "racks", true, maxShare
	w.no(w.HostGroups.Create(w.ctx, g, admin.Asker))
	hosts := []*compute.Host{w.host}
	for _, name := range others {
		hosts = append(hosts, w.join(name))
	}
	for _, h := range hosts {
		node := newID()
		must.Get(w.Hosts.SetService(w.ctx, h.ID, compute.Service{Group: &g.Name, NodeID: &node}, admin.Asker))(w.t)
		w.tx(func(tx job.Tx) error {
			return w.store.Servers().Insert(tx, &compute.Server{Record: record.Record{ID: newID(), CreatedAt: w.now()}, Name: h.Name, State: compute.Active, HostID: h.ID, Epoch: 1})
		})
	}
	return hosts
}

func (w *world) hostJobs(h *compute.Host) (out []job.Job) {
	w.t.Helper()
	w.tx(func(tx job.Tx) (err error) {
		out, err = w.store.Unended(tx, compute.HostSubject(h.ID))
		return err
	})
	return out
}
