package service

import (
	"context"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Adopt makes a server of a guest that exists: it is Foreign, and no job works on it.
func (s *Reconciler) Adopt(ctx context.Context, a compute.Adoption, who compute.Who) (*compute.Server, error) {
	srv := &compute.Server{
		Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()}, Name: a.Name, Project: a.Project, User: a.User,
		HostID: a.HostID, Epoch: 1, GuestName: a.Guest.Name, Foreign: true, LaunchedAt: s.now(),
		OS: a.OS, OSFamily: a.OSFamily, Firmware: compute.BIOS, NICs: a.Guest.NICs,
		Flavor: compute.Flavor{Name: "adopted", VCPUs: a.Guest.VCPUs, RAM: a.Guest.RAM},
	}
	for i, size := range a.DisksMiB {
		srv.Disks = append(srv.Disks, compute.Disk{Name: compute.FreeName(srv.Disks, "vd"), BootIndex: bootIndex(i), SizeGiB: (size + 1023) / 1024})
		srv.Flavor.Disk += (size + 1023) / 1024
	}
	if record.IsUUID(a.Guest.ID) {
		srv.ID = a.Guest.ID
	}
	if srv.Name == "" {
		srv.Name = a.Guest.Name
	}
	srv.Settle(a.Guest.Power)
	if srv.State == "" {
		srv.State, srv.Power = compute.Stopped, compute.PowerOff
	}
	srv.Wanted = srv.Power
	if srv.Wanted == compute.PowerCrashed {
		srv.Wanted = compute.PowerOff
	}
	if err := checkWords(srv); err != nil {
		return nil, err
	}
	err := s.jobs.Do(ctx, func(tx job.Tx) error {
		if _, err := s.store.Hosts().Get(ctx, tx, a.HostID); err != nil {
			return invalidReferenceError(err, "host", a.HostID)
		}
		if err := s.store.Servers().Insert(tx, srv); err != nil {
			if problem.Is(err, problem.Conflict) {
				return problem.Conflictf("guest %s was adopted before: %w", a.Guest.Name, err)
			}
			return err
		}
		return s.note(tx, srv.ID, who.Asker, "request", "adopted "+a.Guest.Name)
	})
	return srv, err
}

// bootIndex is that of the disk at a place: the first is booted from.
func bootIndex(place int) int {
	if place == 0 {
		return 0
	}
	return -1
}

// RecordClusterMove notes that a cluster runs a server on another of its hosts. seen are the servers from before the cluster was asked (see
// Seen): one that was changed since, or on which somebody works, is left for the next look.
func (s *Reconciler) RecordClusterMove(ctx context.Context, id, hostID string, seen map[string]*compute.Server) error {
	old := seen[id]
	if old == nil || old.HostID == hostID || old.Task != compute.NoTask {
		return nil
	}
	err := s.change(ctx, func(tx job.Tx) error {
		srv, err := s.store.Servers().Get(ctx, tx, id)
		if err != nil || srv.State == compute.Deleted || srv.Version != old.Version {
			return ignoreNotFound(err)
		}
		if !srv.Foreign {
			if err := s.unreserve(ctx, tx, srv); err != nil {
				return err
			}
			h, err := s.store.Hosts().Get(ctx, tx, hostID)
			if err != nil {
				return err
			}
			h.Reserve(compute.NeedsOf(srv, ""))
			if err := s.saveHost(tx, h); err != nil {
				return err
			}
		}
		srv.HostID = hostID
		srv.Epoch++
		if err := s.save(tx, srv); err != nil {
			return err
		}
		return s.note(tx, id, record.Asker{}, "contact", "its cluster moved it to another host")
	})
	return ignoreNotFound(err)
}
