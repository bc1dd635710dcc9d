package service

import (
	"context"
	"maps"
	"slices"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// ServersOfCluster reads a cluster's servers, by id. Whoever compares them with the cluster reads them before it.
func (s *Reconciler) ServersOfCluster(ctx context.Context, clusterID string) (map[string]*compute.Server, error) {
	hosts, err := s.store.Hosts().List(ctx, nil, compute.HostFilter{ClusterID: clusterID}, record.Page{})
	if err != nil {
		return nil, err
	}
	out := map[string]*compute.Server{}
	for _, h := range hosts {
		here, err := s.store.Servers().List(ctx, nil, compute.ServerFilter{HostID: h.ID}, record.Page{})
		if err != nil {
			return nil, err
		}
		for _, srv := range here {
			out[srv.ID] = srv
		}
	}
	return out, nil
}

// Follow has a row for every node of a cluster, and tells their ids by name. The row of a node that is gone goes with its last
// server. What is as it should be is not written.
func (s *Hosts) Follow(ctx context.Context, clusterID string, nodes map[string]compute.Inventory) (map[string]string, error) {
	known, err := s.store.Hosts().List(ctx, nil, compute.HostFilter{ClusterID: clusterID}, record.Page{})
	if err != nil {
		return nil, err
	}
	ids := make(map[string]string, len(nodes))
	for _, h := range known {
		inv, there := nodes[h.Name]
		if !there {
			if err := s.forget(ctx, h); err != nil {
				return nil, err
			}
		} else if compute.SameInventory(h.Inventory, inv) {
			ids[h.Name] = h.ID
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if ids[name] != "" {
			continue
		}
		h, err := s.Ensure(ctx, clusterID, name, nodes[name])
		if err != nil {
			return nil, err
		}
		ids[name] = h.ID
	}
	return ids, nil
}

// forget removes the row of a node that is gone, unless a server is still on it.
func (s *Hosts) forget(ctx context.Context, h *compute.Host) error {
	here, err := s.store.Servers().List(ctx, nil, compute.ServerFilter{HostID: h.ID}, pageOf(1))
	if err != nil || len(here) > 0 {
		return err
	}
	err = s.Remove(ctx, h.ID, "", record.Asker{})
	if problem.Is(err, problem.Conflict) || problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// ObserveCluster takes in the power of a cluster's guests, wherever they are in it; sessions are SyncRescue's. seen are the servers
// from before the guests were read (see Seen): one that was changed since is left for the next look.
func (s *Reconciler) ObserveCluster(ctx context.Context, guests []compute.Guest, seen map[string]*compute.Server) error {
	for i := range guests {
		g := &guests[i]
		srv := seen[g.ID]
		if !g.Ours || srv == nil || srv.CompareGuest(g, compute.GanetiHost, false, s.now()) == (compute.GuestVerdict{}) {
			continue
		}
		if err := s.observer.mend(ctx, srv, g, compute.GanetiHost, false); err != nil {
			return err
		}
	}
	return nil
}
