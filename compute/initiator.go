package compute

import (
	"context"
	"slices"

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

// qemuInitiator is what QEMU takes for a guest that was defined without a name.
func qemuInitiator(serverID string) string { return "iqn.2008-11.org.linux-kvm:" + serverID }

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

// Targets reads the targets of a server's volumes.
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
		out = append(out, v.IQN)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// On lists the servers of a host, deleted ones left out.
func (s *Servers) On(ctx context.Context, hostID string) ([]*Server, error) {
	return s.store.Servers().List(ctx, nil, ServerFilter{HostID: hostID}, record.Page{})
}
