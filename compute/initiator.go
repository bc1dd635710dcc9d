package compute

import (
	"context"
	"errors"
	"slices"
	"strings"

	"salvor/problem"
	"salvor/record"
)

// GuestInitiator is the name by which a guest on a host logs in to its volumes, where the host has no name of its own for all of
// its guests. It differs from host to host: what is taken from a guest that may still run on a dead host is not taken from
// the one that goes on elsewhere. It stays the same while the server is on that host, whatever its epoch.
func GuestInitiator(hostID, serverID string) string {
	if hostID == "" {
		return ""
	}
	return guestInitiators + hostID + ":" + serverID
}

const guestInitiators = "iqn.2026-11.org.salvor:"

// qemuInitiators begins the names that QEMU gives to guests by itself.
const qemuInitiators = "iqn.2008-11.org.linux-kvm:"

// qemuInitiator is what QEMU takes for a guest that was defined without a name.
func qemuInitiator(serverID string) string { return qemuInitiators + serverID }

// Initiator is the name by which a server on a host logs in to its volumes.
func Initiator(h *Host, serverID string) string {
	if h.Inventory.InitiatorIQN != "" {
		return h.Inventory.InitiatorIQN
	}
	return GuestInitiator(h.ID, serverID)
}

// Initiators are all names by which guests of these servers may be logged in from a host: its own, which it may have had no longer
// than since their last start, and each guest's.
func Initiators(h *Host, servers []*Server) []string {
	var out []string
	if h.Inventory.InitiatorIQN != "" {
		out = append(out, h.Inventory.InitiatorIQN)
	}
	for _, s := range servers {
		out = append(out, GuestInitiator(h.ID, s.ID), qemuInitiator(s.ID))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// HasVolumes tells whether a server has a disk that a storage serves; only tells whether it has no other.
func (s *Server) HasVolumes() (some, only bool) {
	only = true
	for _, d := range s.Disks {
		some, only = some || d.VolumeID != "", only && d.VolumeID != ""
	}
	return some, only && some
}

// ErrNotItsVolume: a server has a disk whose volume is not attached to it by the volume's record.
var ErrNotItsVolume = errors.New("the volume is not attached to the server by its record")

// Targets reads the targets of a server's volumes. Conflict, with ErrNotItsVolume: a record says that a volume is not this server's any more.
func (s *Servers) Targets(ctx context.Context, srv *Server) ([]string, error) {
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
			return nil, problem.Conflictf("%w: volume %s, server %s; the record says %s%s; %s", ErrNotItsVolume, v.ID, srv.ID, v.Status, record.Because(v.ServerID), srv.commandsToResolve(d, v))
		}
		out = append(out, v.IQN)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// commandsToResolve names what ends the difference between a server's disk and its volume's record: the volume is taken off, or its record is set back.
func (s *Server) commandsToResolve(d Disk, v *Volume) string {
	back := "an administrator gives it back, if no other server has written to it: openstack volume set --state in-use " + v.ID
	if v.ServerID != "" {
		back = "take it off server " + v.ServerID + " first; then " + back
	}
	if off := s.commandToDetach(d); off != "" {
		return off + "; or " + back
	}
	return back
}

// commandToDetach names the command that the server accepts for taking a volume off it; it is empty for the volume that the server boots from.
func (s *Server) commandToDetach(d Disk) string {
	detach := "openstack server remove volume " + s.ID + " " + d.VolumeID
	_, err := Allow(s, DetachVolume, NovaSemantics, true)
	switch {
	case d.BootIndex == 0:
		return ""
	case err == nil:
		return "take it off the server: " + detach
	case s.Task == NoTask && s.InSession():
		return "end the server's rescue and take the volume off: salvor server unrescue " + s.ID + "; " + detach
	}
	return "take it off the server when that is active or stopped: " + detach
}

// StaleInitiators gives what tells whether an initiator is to be taken off a target: it is the name of a guest or a host of ours, and no server
// has a volume of the target there by the records. While a planned move goes on, a server is at both of its ends. Names that are not ours stay.
// What it gives is for one goroutine.
func (s *Servers) StaleInitiators(ctx context.Context, target string) (func(initiator string) (bool, error), error) {
	volumes, err := s.store.Volumes().List(ctx, nil, VolumeFilter{IQN: target}, record.Page{})
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
	hosts, _, err := s.hosts.cachedHosts(ctx, nil, false)
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
func (s *Servers) isGuestInitiator(ctx context.Context, hosts []*Host, name string) (bool, error) {
	serverID, ok := strings.CutPrefix(name, qemuInitiators)
	if !ok {
		var hostID string
		if hostID, serverID, ok = strings.Cut(strings.TrimPrefix(name, guestInitiators), ":"); !ok || !strings.HasPrefix(name, guestInitiators) {
			return false, nil
		}
		if slices.ContainsFunc(hosts, func(h *Host) bool { return h.ID == hostID }) {
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
func (s *Servers) addCurrentInitiators(ctx context.Context, v *Volume, to map[string]bool) error {
	srv, err := s.store.Servers().Get(ctx, nil, v.ServerID)
	if err != nil {
		return ignoreNotFound(err)
	}
	for _, d := range srv.Disks {
		for _, name := range d.Initiators {
			to[name] = to[name] || d.VolumeID == v.ID
		}
	}
	ends, err := s.moveEnds(ctx, nil, MoveFilter{ServerID: srv.ID}, srv.HostID)
	if err != nil {
		return err
	}
	if len(ends[srv.ID]) > 0 {
		to[qemuInitiator(srv.ID)] = true
	}
	for _, id := range append(ends[srv.ID], srv.HostID) {
		h, err := s.store.Hosts().Get(ctx, nil, id)
		if problem.Is(err, problem.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		to[Initiator(h, srv.ID)] = true
		to[GuestInitiator(h.ID, srv.ID)] = true // a guest that was started before its host had a name of its own keeps this one
	}
	return nil
}

// On lists the servers of a host, deleted ones left out.
func (s *Servers) On(ctx context.Context, hostID string) ([]*Server, error) {
	return s.store.Servers().List(ctx, nil, ServerFilter{HostID: hostID}, record.Page{})
}
