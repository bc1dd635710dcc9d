package server

import (
	"context"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/storage"
)

// volumesOf are the disks of a server that are volumes.
func volumesOf(s *compute.Server) []compute.Disk {
	return slices.DeleteFunc(slices.Clone(s.Disks), func(d compute.Disk) bool { return d.VolumeID == "" })
}

// firstIQN is the first name by which a machine logs in over iSCSI; empty: it has none.
func firstIQN(all []hypervisor.Connector) string {
	for _, c := range all {
		if c.Type == "iqn" {
			return c.ID
		}
	}
	return ""
}

// countInitiators counts the initiator names with which a machine may log in over iSCSI.
func countInitiators(all []hypervisor.Connector) int {
	n := 0
	for _, c := range all {
		if c.Type == "iqn" {
			n++
		}
	}
	return n
}

// noteInitiator writes into the server's row whom storage is about to let in, so that a deletion revokes that name and no other.
func (c bareMetalOperations) noteInitiator(ctx context.Context, r *job.Run, g *bareMetalServer, iqn string) error {
	if slices.Contains(admittedInitiators(g.server), iqn) {
		return nil
	}
	note := func(s *compute.Server) {
		for i := range s.Disks {
			if s.Disks[i].VolumeID != "" {
				s.Disks[i].Initiators = append(slices.Clone(s.Disks[i].Initiators), iqn)
			}
		}
	}
	return r.Commit(ctx, c.editServer(ctx, g.server.ID, note))
}

// admittedInitiators are the initiators that storage was asked to let in for a server.
func admittedInitiators(s *compute.Server) []string {
	var out []string
	for _, d := range volumesOf(s) {
		out = append(out, d.Initiators...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// admittedOf are the initiators that storage was asked to let in for a server. Rows of former releases name none: then it is the
// first name that the machine has now.
func (c bareMetalOperations) admittedOf(ctx context.Context, g *bareMetalServer, machine string) ([]string, error) {
	if names := admittedInitiators(g.server); len(names) > 0 {
		return names, nil
	}
	names, err := g.api.Connectors(ctx, machine)
	if iqn := firstIQN(names); err == nil && iqn != "" {
		return []string{iqn}, nil
	}
	return nil, err
}

// giveVolumes has the server's volumes exported to its machine, and registers them as what it boots from.
func (c bareMetalOperations) giveVolumes(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	volumes := volumesOf(g.server)
	if len(volumes) == 0 {
		return job.Done()
	}
	if err := g.lost(); err != nil {
		return job.Fail(err)
	}
	names, err := g.api.Connectors(ctx, g.node.ID)
	if err != nil {
		return job.From(err)
	}
	iqn := firstIQN(names)
	if n := countInitiators(names); n > 1 {
		return job.Fail(problem.Conflictf("its node %s has %d volume connectors of type iqn: storage lets a machine in by one name, and nobody can tell whose the others are; delete all but one: salvor volume connector list --node %s", g.node.ID, n, g.node.ID))
	}
	if iqn == "" {
		return job.Fail(problem.Conflictf("its node %s has no volume connector of type iqn: storage would not know whom to let in; add one: salvor volume connector create --node %s --type iqn --connector-id IQN", g.node.ID, g.node.ID))
	}
	if err := c.noteInitiator(ctx, r, g, iqn); err != nil {
		return job.From(err)
	}
	var targets []hypervisor.Target
	for i, d := range volumes {
		t, err := c.target(ctx, d, iqn)
		if err != nil {
			return job.From(err)
		}
		if t.BootIndex = d.BootIndex; t.BootIndex < 0 {
			t.BootIndex = i // a further drive
		}
		targets = append(targets, t)
	}
	return c.fromNode(r, g, g.api.SetTargets(ctx, g.node.ID, targets))
}

// target is where the machine finds a volume: as its record says, or where it is exported to it.
func (c bareMetalOperations) target(ctx context.Context, d compute.Disk, iqn string) (hypervisor.Target, error) {
	v, err := c.Store.Volumes().Get(ctx, nil, d.VolumeID)
	if err != nil {
		return hypervisor.Target{}, err
	}
	t := hypervisor.Target{VolumeID: v.ID, Portal: v.Portal, IQN: v.IQN, LUN: v.LUN, User: v.CHAPUser, Password: v.CHAPPassword}
	if t.Portal != "" && t.IQN != "" {
		if c.Storage == nil {
			return t, nil
		}
		return t, c.storageAccess().allowInitiator(ctx, t.IQN, iqn)
	}
	exporter, ok := c.Storage.(storage.Exporter)
	if !ok {
		return t, problem.Conflictf("volume %s has no portal or no target, and no storage is configured that could export it", v.ID)
	}
	e, err := exporter.Export(ctx, v.ID, iqn)
	t.Portal, t.IQN, t.LUN = e.Portal, e.IQN, e.LUN
	return t, err
}

// barVolumes has storage let the machine in no more, as long as it is surely this server's: the next one may have it in a moment, and
// must find no door open to what this one had.
func (c bareMetalOperations) barVolumes(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	if g.node == nil || c.Storage == nil || len(volumesOf(g.server)) == 0 {
		return job.Done()
	}
	names, err := c.admittedOf(ctx, g, g.node.ID)
	if err != nil || len(names) == 0 {
		return job.From(err)
	}
	return job.From(c.Storage.Revoke(ctx, names...))
}

// takeVolumes ends what giveVolumes did. The machine is known by its name in the server's row: it may be nobody's by now.
func (c bareMetalOperations) takeVolumes(ctx context.Context, r *job.Run, g *bareMetalServer) job.Outcome {
	volumes := volumesOf(g.server)
	if len(volumes) == 0 || g.api == nil || strings.HasPrefix(g.server.GuestName, "salvor-") {
		return job.Done() // it never had a machine
	}
	id := g.server.GuestName
	var ids []string
	for _, d := range volumes {
		ids = append(ids, d.VolumeID)
	}
	err := g.api.ClearTargets(ctx, id, ids)
	if err != nil && (r.State != job.Undoing || problem.Is(err, problem.Unavailable)) {
		return c.fromNode(r, g, err) // an undo leaves to the deletion what a running machine still holds
	}
	exporter, ok := c.Storage.(storage.Exporter)
	if !ok {
		return job.Done()
	}
	names, err := c.admittedOf(ctx, g, id)
	if problem.Is(err, problem.NotFound) {
		return job.Done()
	}
	if err != nil {
		return job.From(err)
	}
	for _, d := range volumes {
		v, err := c.Store.Volumes().Get(ctx, nil, d.VolumeID)
		if problem.Is(err, problem.NotFound) || err == nil && v.Portal != "" && v.IQN != "" {
			continue
		}
		for _, name := range names {
			if err == nil {
				err = exporter.Unexport(ctx, d.VolumeID, name)
			}
		}
		if err != nil {
			return job.From(err)
		}
	}
	return job.Done()
}
