package service_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/test/must"
)

// TestAHostWithOpenCleanUpsIsNotRemoved: its record is what has it end its guests, should it speak again.
func TestAHostWithOpenCleanUpsIsNotRemoved(t *testing.T) {
	w := newWorld(t)
	s, other := w.server(alice, compute.Active), w.join("host-b")
	w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
	m := w.moved(s, w.host, other, compute.CleanGuest)
	w.pass(time.Minute)
	err := w.Hosts.Remove(w.ctx, w.host.ID, "", admin.Asker)
	w.refuses(err, "move "+m.ID+" of server "+s.ID, "guest "+s.ID, "--lost REASON")
	err = w.Hosts.Remove(w.ctx, w.host.ID, "burnt", admin.Asker)
	w.refuses(err, "not removed as lost", s.ID, "salvor fence "+w.host.ID)
	r, err := w.fence(w.host, compute.PowerCut)
	w.no(err)
	err = w.Hosts.Remove(w.ctx, w.host.ID, "", admin.Asker)
	w.refuses(err, "move "+m.ID, "fence 1", r.ID)
	w.want(w.Hosts.Remove(w.ctx, w.host.ID, "two\nlines", admin.Asker), problem.Invalid)
	w.no(w.Hosts.Remove(w.ctx, w.host.ID, "burnt", admin.Asker))
	there, err := w.Hosts.List(w.ctx, compute.HostFilter{}, record.Page{})
	w.no(err)
	row := w.hostRow(w.host)
	if len(there) != 1 || !row.Lost || row.LostReason != "burnt" || row.LostBy != "root" || row.LostAt.IsZero() || w.up(w.host) {
		t.Fatalf("%d hosts are shown; %+v", len(there), row)
	}
	if got := (&compute.Needs{}).Refusal(row, true); got != "removed as lost" {
		t.Errorf("placement says %q", got)
	}
	if _, err := w.Hosts.Host(w.ctx, row.Name); !problem.Is(err, problem.NotFound) {
		t.Errorf("its name is taken still: %v", err)
	}
}

// A removed host that speaks is told to start nothing and to clean up. It is not admitted, whatever it does, before an operator says
// that it was found.
func TestALostHostThatComesBackCleansUp(t *testing.T) {
	for name, boot := range map[string]string{"the same boot": "boot-1", "another boot": "boot-2"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, other := w.server(alice, compute.Active), w.join("host-b")
			w.pass(time.Minute)
			must.Get(w.fence(w.host, compute.Attested))(w.t)
			w.moved(s, w.host, other, compute.CleanGuest)
			w.no(w.Hosts.Remove(w.ctx, w.host.ID, "burnt", admin.Asker))
			w.no(w.Leases.Allow(w.ctx, w.host.ID, "01", w.now()))
			w.pass(10 * time.Second)
			out := w.renew(w.host, boot, guests(runs(s, s.Epoch)))
			if c := out.Clean[s.ID]; !out.Hold || c.Do != compute.CleanGuest || c.Epoch != s.Epoch+1 || out.Stop != (boot == "boot-1") {
				t.Fatalf("%+v", out)
			}
			if may, err := w.Leases.MayAct(w.ctx, w.host.ID); err != nil || may {
				t.Fatalf("it is given orders: %v", err)
			}
			out = w.renew(w.host, boot, guests(), stopped, func(r *compute.Renewal) { r.Cleaned = []compute.Cleaned{{ServerID: s.ID, Epoch: s.Epoch + 1}} })
			if out = w.renew(w.host, boot, stopped); !out.Hold || len(out.Clean) != 0 {
				t.Fatalf("%+v", out)
			}
			must.Get(w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{Found: true}, admin.Asker))(w.t)
			if out = w.renew(w.host, boot, stopped); out.Hold {
				t.Errorf("%+v", out)
			}
		})
	}
}

// A host that speaks is not lost.
func TestAHostThatSpeaksIsNotLost(t *testing.T) {
	w := newWorld(t)
	w.refuses(w.Hosts.Remove(w.ctx, w.host.ID, "burnt", admin.Asker), "it speaks")
}

// TestAClusterWithOpenMovesIsNotRemoved: its nodes are hosts like others.
func TestAClusterWithOpenMovesIsNotRemoved(t *testing.T) {
	w := newWorld(t)
	cl := &compute.Cluster{Name: "prod", URL: "https://gnt.example:5080", User: "u", Password: secret.New("p")}
	w.no(w.Clusters.Create(w.ctx, cl, admin.Asker))
	node := must.Get(w.Hosts.Ensure(w.ctx, cl.ID, "node1", compute.Inventory{VCPUs: 4}))(w.t)
	idle := must.Get(w.Hosts.Ensure(w.ctx, cl.ID, "node2", compute.Inventory{VCPUs: 4}))(w.t)
	m := &compute.Move{Record: record.Record{ID: newID()}, ServerID: newID(), SourceID: node.ID, State: compute.MovePreparing, Kind: compute.Evacuation}
	w.tx(func(tx job.Tx) error { return w.store.Moves().Insert(tx, m) })
	w.refuses(w.Hosts.RemoveCluster(w.ctx, w.Clusters, cl.ID, "", admin.Asker), "node1", "move "+m.ID, "salvor cluster remove prod --lost REASON")
	w.refuses(w.Hosts.Remove(w.ctx, node.ID, "", admin.Asker), m.ID)
	w.no(w.Hosts.RemoveCluster(w.ctx, w.Clusters, cl.ID, "burnt", admin.Asker))
	if row := w.hostRow(node); !row.Lost || row.LostReason != "burnt" {
		t.Errorf("%+v", row)
	}
	if _, err := w.store.Hosts().Get(w.ctx, nil, idle.ID); !problem.Is(err, problem.NotFound) {
		t.Errorf("%v", err)
	}
	if _, err := w.Clusters.Get(w.ctx, cl.ID); !problem.Is(err, problem.NotFound) || !strings.Contains(err.Error(), cl.ID) {
		t.Errorf("%v", err)
	}
}

// A lost host is held though it was never fenced: it starts nothing and takes no orders.
func TestALostHostWithoutAFenceIsHeld(t *testing.T) {
	w := newWorld(t)
	s, other := w.server(alice, compute.Active), w.join("host-b")
	w.moved(s, w.host, other, compute.CleanGuest)
	w.pass(time.Minute)
	w.no(w.Hosts.Remove(w.ctx, w.host.ID, "sold", admin.Asker))
	out := w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
	if may, err := w.Leases.MayAct(w.ctx, w.host.ID); err != nil || may || !out.Hold || out.Clean[s.ID].Do != compute.CleanGuest || w.up(w.host) {
		t.Fatalf("may act: %v, %v; %+v", may, err, out)
	}
}
