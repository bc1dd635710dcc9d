package compute

import (
	"errors"
	"slices"
)

// GuestInitiator is the name by which a guest on a host logs in to its volumes, where the host has no name of its own for all of
// its guests. It differs from host to host: what is taken from a guest that may still run on a dead host is not taken from
// the one that goes on elsewhere. It stays the same while the server is on that host, whatever its epoch.
func GuestInitiator(hostID, serverID string) string {
	if hostID == "" {
		return ""
	}
	return GuestInitiators + hostID + ":" + serverID
}

const GuestInitiators = "iqn.2026-11.org.salvor:"

// QemuInitiators begins the names that QEMU gives to guests by itself.
const QemuInitiators = "iqn.2008-11.org.linux-kvm:"

// QemuInitiator is what QEMU takes for a guest that was defined without a name.
func QemuInitiator(serverID string) string { return QemuInitiators + serverID }

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
		out = append(out, GuestInitiator(h.ID, s.ID), QemuInitiator(s.ID))
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

// CommandsToResolve names what ends the difference between a server's disk and its volume's record: the volume is taken off, or its record is set back.
func (s *Server) CommandsToResolve(d Disk, v *Volume) string {
	back := "an administrator gives it back, if no other server has written to it: openstack volume set --state in-use " + v.ID
	if v.ServerID != "" {
		back = "take it off server " + v.ServerID + " first; then " + back
	}
	if off := s.CommandToDetach(d); off != "" {
		return off + "; or " + back
	}
	return back
}

// CommandToDetach names the command that the server accepts for taking a volume off it; it is empty for the volume that the server boots from.
func (s *Server) CommandToDetach(d Disk) string {
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
