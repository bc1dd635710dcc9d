package server

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/hypervisor"
	"salvor/hypervisor/fake"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// evacuationCluster is a cluster of two nodes that moves guests by itself: one hypervisor that knows on which node each guest is.
type evacuationCluster struct {
	*fake.Hypervisor
	at      string // the guest's node
	offline []string
	did     []string
	mirrors bool
	rigid   bool                // nothing is moved live
	answers func(look int) bool // of its nodes; nil: they are silent
	looks   int
}

// clusterNode is the cluster as one host sees it.
type clusterNode struct {
	*evacuationCluster
	name string
}

func (h *evacuationCluster) Of(_ context.Context, host *compute.Host) (hypervisor.Hypervisor, error) {
	return clusterNode{h, host.Name}, nil
}

func (n clusterNode) SetOffline(_ context.Context, host string, offline bool) error {
	n.offline = slices.DeleteFunc(n.offline, func(o string) bool { return o == host })
	if offline {
		n.evacuationCluster.offline = append(n.offline, host)
	} else {
		n.evacuationCluster.offline = n.offline
	}
	return nil
}

func (n clusterNode) Reaches(_ context.Context, host string) (answers, offline bool, err error) {
	if slices.Contains(n.offline, host) {
		return false, true, nil
	}
	n.evacuationCluster.looks++
	return n.answers != nil && n.answers(n.looks), false, nil
}

func (n clusterNode) Failover(ctx context.Context, id, to string) (string, error) {
	if n.at == n.name {
		if !slices.Contains(n.offline, n.name) {
			return "", problem.Conflictf("node %s is not offline", n.name)
		}
		n.evacuationCluster.at, n.did = "west0", append(n.did, "failover")
	}
	return n.at, nil
}

func (n clusterNode) Migrate(ctx context.Context, id, to string, live bool) (string, error) {
	switch {
	case n.at != n.name:
	case live && n.rigid:
		return "", problem.Conflictf("its hypervisor moves nothing live")
	default:
		n.evacuationCluster.at = "west0"
	}
	return n.at, nil
}

func (n clusterNode) RenewMirrors(context.Context) (bool, error) { return n.mirrors, nil }

// newEvacuationCluster is a moveWorld whose source is a node of a cluster, as is the only other host.
func newEvacuationCluster(t *testing.T, state compute.VMState) (*moveWorld, *evacuationCluster) {
	t.Helper()
	s := newMoveWorld(t, moveOptions{hostOptions: hostOptions{kind: compute.GanetiHost, state: state}, others: 1})
	s.tx(t, func(tx job.Tx) error {
		cluster := &compute.Cluster{Record: record.Record{ID: uuid.NewString()}, Name: "cluster", URL: "https://cluster.example.test:5080"}
		if err := s.store.Clusters().Insert(tx, cluster); err != nil {
			return err
		}
		source, err := s.store.Hosts().Get(context.Background(), tx, s.host.ID)
		if err != nil {
			return err
		}
		source.ClusterID = cluster.ID
		if err := s.store.Hosts().Save(tx, source); err != nil {
			return err
		}
		other := *s.others[0].host
		other.ClusterID = cluster.ID
		other.Record, other.Num, other.Kind, other.Name = record.Record{ID: uuid.NewString()}, 0, compute.GanetiHost, "west0"
		was, err := s.store.Hosts().Get(context.Background(), tx, s.others[0].host.ID)
		if err != nil {
			return err
		}
		if err := s.store.Hosts().Delete(tx, was); err != nil {
			return err
		}
		s.others[0].host = &other
		return s.store.Hosts().Insert(tx, &other)
	})
	h := &evacuationCluster{Hypervisor: s.hv, at: s.host.Name}
	s.con.Hypervisors = h
	return s, h
}

// A server of a fenced node is failed over by its cluster, followed, and started if it should run. However it is disturbed, the node is
// offline before anything is moved.
func TestSweepClusterEvacuation(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]compute.VMState{"running": compute.Active, "off": compute.Stopped} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				s, h := newEvacuationCluster(t, state)
				s.fenceBy(t, compute.PowerCut)
				w := s.world(compute.JobMove, func(t *testing.T) { s.evacuate(t) }, func(t *testing.T) {
					if row := s.now(t); row.Task != compute.NoTask || s.lastMove(t).Going() {
						t.Errorf("task %q:\n%s", row.Task, s.whereabouts(t))
					}
				})
				w.Poke = func() {}
				w.Picture = func(t *testing.T) string {
					row, m := s.now(t), s.lastMove(t)
					g, _ := h.State(s.server)
					if row.HostID != s.others[0].host.ID || m.State != compute.MoveCompleted || !slices.Contains(h.offline, s.host.Name) || len(h.did) > 1 {
						t.Errorf("moved by %v with %v offline:\n%s", h.did, h.offline, s.whereabouts(t))
					}
					if (g.Power == compute.PowerOn) != (state == compute.Active) || row.State != state {
						t.Errorf("guest %s, server %s", g.Power, row.State)
					}
					return string(row.State) + " " + string(row.Task) + " " + string(m.State) + " " + string(g.Power)
				}
				return w
			})
		})
	}
}

func (s *moveWorld) fenceBy(t *testing.T, e compute.Evidence) (receipt *compute.Receipt) {
	t.Helper()
	s.tx(t, func(tx job.Tx) (err error) {
		receipt, err = s.services.Fences.Give(context.Background(), tx, s.host.ID, []compute.Proof{{Evidence: e, Text: "said so", At: time.Now()}}, "ops", "")
		return err
	})
	return receipt
}

// Ganeti shuts nothing down on a node that is called offline: one that it reaches lives, whatever somebody attested or a BMC says, and
// nothing of it is started elsewhere.
func TestTheClusterReachesAFencedNode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by      compute.Evidence
		answers func(look int) bool
		closed  string // how the receipt is
		says    string // why nothing is moved; empty: it is
	}{
		"attested":               {by: compute.Attested, answers: func(int) bool { return true }, closed: "contradicted", says: "salvor fence"},
		"attested, hardly heard": {by: compute.Attested, answers: func(look int) bool { return look == 3 }, closed: "contradicted", says: "salvor fence"},
		"attested, silent":       {by: compute.Attested},
		"its BMC lies":           {by: compute.PowerCut, answers: func(int) bool { return true }, closed: "contradicted", says: "another machine's"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, h := newEvacuationCluster(t, compute.Active)
			h.answers = c.answers
			receipt := s.fenceBy(t, c.by)
			s.evacuate(t)
			s.workAll(t)
			row, m, moved := s.now(t), s.lastMove(t), c.says == ""
			if (len(h.did) > 0) != moved || slices.Contains(h.offline, s.host.Name) != moved || (row.HostID == s.host.ID) == moved || row.Task != compute.NoTask || row.State != compute.Active {
				t.Errorf("moved by %v with %v offline:\n%s", h.did, h.offline, s.whereabouts(t))
			}
			if !strings.Contains(m.Problem, c.says) || moved && m.Problem != "" {
				t.Errorf("the move says %q, want %q", m.Problem, c.says)
			}
			if now, err := s.store.Receipts().Get(context.Background(), nil, receipt.ID); err != nil || now.Closed != c.closed {
				t.Errorf("receipt %+v: %v", now, err)
			}
		})
	}
}

// A cluster moves a server of a living node live where it can, else off; restored, a node is no longer offline.
func TestClusterMigrates(t *testing.T) {
	t.Parallel()
	for name, rigid := range map[string]bool{"live": false, "off": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, h := newEvacuationCluster(t, compute.Active)
			h.rigid = rigid
			ctx, admin := context.Background(), compute.Who{Admin: true}
			must.Get(s.services.Moves.Migrate(ctx, s.server, compute.MigrationRequest{}, admin))(t)
			s.workAll(t)
			row, m := s.now(t), s.lastMove(t)
			if row.HostID != s.others[0].host.ID || row.Task != compute.NoTask || row.State != compute.Active || m.State != compute.MoveCompleted || (m.Kind == compute.LiveMigration) == rigid {
				t.Errorf("%+v:\n%s", m, s.whereabouts(t))
			}
			h.offline = []string{s.host.Name}
			must.Get(s.services.Plans.Restore(ctx, s.host.ID, admin))(t)
			s.workAll(t)
			if len(h.offline) > 0 {
				t.Errorf("offline after the restore: %v", h.offline)
			}
		})
	}
}
