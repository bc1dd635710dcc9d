package server

import (
	"context"
	"slices"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

// lookAtEndpoint takes in what an endpoint of the Bare Metal API tells: which machines may be taken, and how those of servers are.
func (c bareMetalOperations) lookAtEndpoint(ctx context.Context, row *compute.Cluster) error {
	if c.BareMetal == nil {
		return problem.Unsupportedf("endpoint %s: this conductor drives no machines of other endpoints", row.Name)
	}
	api, err := c.BareMetal.Endpoint(row)
	if err != nil {
		return err
	}
	servers, err := c.Compute.Reconciler.ServersOfCluster(ctx, row.ID)
	if err != nil {
		return err
	}
	all, err := api.Nodes(ctx)
	if err != nil {
		return err
	}
	if _, err := c.Compute.Hosts.Follow(ctx, row.ID, map[string]compute.Inventory{row.Name: sumInventory(all)}); err != nil {
		return err
	}
	machines := map[string]compute.MachineSight{}
	for i := range all {
		if id := all[i].ServerID; id != "" && servers[id] != nil {
			machines[id] = toMachineSight(&all[i])
		}
	}
	for id, srv := range servers {
		if _, there := machines[id]; there || srv.Task != compute.NoTask {
			continue
		}
		// A list is read in pages, and what moved between two of them is in none: the machine itself is asked for.
		m, err := api.Node(ctx, id)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return err
		}
		if err == nil {
			machines[id] = toMachineSight(m)
		}
	}
	return c.Compute.Observer.ObserveMetal(ctx, machines, servers)
}

func toMachineSight(m *hypervisor.Node) compute.MachineSight {
	settled := []hypervisor.Provision{hypervisor.InUse, hypervisor.InRescue}
	return compute.MachineSight{Power: m.Power, Settled: slices.Contains(settled, m.Provision) && !m.Switching, Rescued: m.Provision == hypervisor.InRescue}
}

// sumInventory sums what an endpoint has, and what of it may be taken.
func sumInventory(all []hypervisor.Node) compute.Inventory {
	inv := compute.Inventory{HypervisorType: "ironic", HypervisorVersion: 1}
	for i := range all {
		m := &all[i]
		inv.VCPUs += m.CPUs
		inv.RAM += m.RAM
		inv.Disk += m.Disk
		if m.Free() && m.Class != "" {
			if inv.Machines == nil {
				inv.Machines = map[string]int{}
			}
			inv.Machines[m.Class]++
		}
	}
	return inv
}
