package service

import (
	"context"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// Targets reads the targets of a server's volumes. Conflict, with ErrNotItsVolume: a record says that a volume is not this server's any more.
func (s *Servers) Targets(ctx context.Context, srv *compute.Server) ([]string, error) {
	var out []string
	for _, d := range srv.Disks {
		if d.VolumeID == "" {
			continue
		}
		v, err := s.store.Volumes().Get(ctx, nil, d.VolumeID)
		if err != nil {
			return nil, err
		}
		if v.ServerID != srv.ID {
			return nil, problem.Conflictf("%w: volume %s, server %s; the record says %s%s; %s", compute.ErrNotItsVolume, v.ID, srv.ID, v.Status, record.Because(v.ServerID), srv.CommandsToResolve(d, v))
		}
		out = append(out, v.IQN)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// StaleInitiators gives what tells whether an initiator is to be taken off a target: it is the name of a guest or a host of ours, and no server
// has a volume of the target there by the records. While a planned move goes on, a server is at both of its ends. Names that are not ours stay.
// What it gives is for one goroutine.
func (s *Servers) StaleInitiators(ctx context.Context, target string) (func(initiator string) (bool, error), error) {
	volumes, err := s.store.Volumes().List(ctx, nil, compute.VolumeFilter{IQN: target}, record.Page{})
	if err != nil {
		return nil, err
	}
	stays := map[string]bool{}
	for _, v := range volumes {
		if v.ServerID == "" {
			continue
		}
		if err := s.addCurrentInitiators(ctx, v, stays); err != nil {
			return nil, err
		}
	}
	hosts, _, err := s.placement.cachedHosts(ctx, nil, false)
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, h := range hosts {
		ours[h.Inventory.InitiatorIQN] = h.Inventory.InitiatorIQN != ""
	}
	return func(name string) (bool, error) {
		if stays[name] {
			return false, nil
		}
		known, read := ours[name]
		if !read {
			var err error
			if known, err = s.isGuestInitiator(ctx, hosts, name); err != nil {
				return false, err
			}
			ours[name] = known
		}
		return known, nil
	}, nil
}

// isGuestInitiator tells whether a name is that of a guest whose server or host this database knows. Guests of another salvor, and QEMU's own
// guests, have names of the same form.
func (s *Servers) isGuestInitiator(ctx context.Context, hosts []*compute.Host, name string) (bool, error) {
	serverID, ok := strings.CutPrefix(name, compute.QemuInitiators)
	if !ok {
		var hostID string
		if hostID, serverID, ok = strings.Cut(strings.TrimPrefix(name, compute.GuestInitiators), ":"); !ok || !strings.HasPrefix(name, compute.GuestInitiators) {
			return false, nil
		}
		if slices.ContainsFunc(hosts, func(h *compute.Host) bool { return h.ID == hostID }) {
			return true, nil
		}
	}
	if !record.IsUUID(serverID) {
		return false, nil
	}
	_, err := s.store.Servers().Get(ctx, nil, serverID)
	return err == nil, ignoreNotFound(err)
}

// addCurrentInitiators adds the names by which the server of a volume may be logged in to it.
func (s *Servers) addCurrentInitiators(ctx context.Context, v *compute.Volume, to map[string]bool) error {
	srv, err := s.store.Servers().Get(ctx, nil, v.ServerID)
	if err != nil {
		return ignoreNotFound(err)
	}
	for _, d := range srv.Disks {
		for _, name := range d.Initiators {
			to[name] = to[name] || d.VolumeID == v.ID
		}
	}
	ends, err := s.moveEnds(ctx, nil, compute.MoveFilter{ServerID: srv.ID}, srv.HostID)
	if err != nil {
		return err
	}
	if len(ends[srv.ID]) > 0 {
		to[compute.QemuInitiator(srv.ID)] = true
	}
	for _, id := range append(ends[srv.ID], srv.HostID) {
		h, err := s.store.Hosts().Get(ctx, nil, id)
		if problem.Is(err, problem.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		to[compute.Initiator(h, srv.ID)] = true
		to[compute.GuestInitiator(h.ID, srv.ID)] = true // a guest that was started before its host had a name of its own keeps this one
	}
	return nil
}

// On lists the servers of a host, deleted ones left out.
func (s *serviceCore) On(ctx context.Context, hostID string) ([]*compute.Server, error) {
	return s.store.Servers().List(ctx, nil, compute.ServerFilter{HostID: hostID}, record.Page{})
}
