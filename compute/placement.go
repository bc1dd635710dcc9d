package compute

import (
	"fmt"
	"slices"
	"strings"

	"salvor/problem"
)

// Needs are what a server asks of its host.
type Needs struct {
	VCPUs, RAM, Disk int // Disk in GiB, of local disks
	// Disks are the local disks that need a disk store of the host.
	Disks []LocalDisk
	// Full are hosts that were found to have no disk store with room, by id, each with the reason.
	Full     map[string]string
	Firmware Firmware
	Bridges  []string
	Zone     string
	Host     string // UUID or name; empty: any
	// Class of the machine that it is to be; empty: it is a guest.
	Class string
}

// NeedsOf reads them from a server.
func NeedsOf(s *Server, host string) Needs {
	if m, metal := s.Flavor.Metal(); metal {
		return Needs{Zone: s.Zone, Host: host, Class: m.Class} // a machine claims itself, at its endpoint
	}
	n := Needs{VCPUs: s.Flavor.VCPUs, RAM: s.Flavor.RAM, Firmware: s.Firmware, Zone: s.Zone, Host: host}
	for _, d := range s.Disks {
		if d.VolumeID == "" {
			n.Disk += d.SizeGiB
			n.Disks = append(n.Disks, LocalDisk{d.Store, d.SizeGiB})
		}
	}
	for _, nic := range s.NICs {
		if nic.Bridge != "" && !slices.Contains(n.Bridges, nic.Bridge) {
			n.Bridges = append(n.Bridges, nic.Bridge)
		}
	}
	return n
}

// vcpuRatio is how many virtual processors share a real one.
const vcpuRatio = 16

// Refusal tells why a host cannot take a server; empty: it can. up tells whether it lives.
func (n *Needs) Refusal(h *Host, up bool) string {
	i := &h.Inventory
	switch {
	case n.Host != "" && n.Host != h.ID && n.Host != h.Name:
		return "another host is asked for"
	case h.Revoked:
		return "its certificate is revoked"
	case h.Disabled:
		return withReason("disabled", h.DisabledReason)
	case h.Lost:
		return "removed as lost"
	case h.Fenced:
		return "fenced"
	case h.ForcedDown:
		return "forced down"
	case !up:
		return "down"
	case n.Class == "" && h.Kind == IronicHost:
		return "it has whole machines, and the flavor asks for none"
	case n.Class != "" && h.Kind != IronicHost:
		return "it has no machines of class " + n.Class
	case n.Class != "" && i.Machines[n.Class] == 0:
		return "no machine of class " + n.Class + " is available"
	case n.Zone != "" && h.Zone != n.Zone && !(h.Zone == "" && n.Zone == DefaultZone):
		return "not in zone " + n.Zone
	case h.Kind == GanetiHost && n.Host == "" && (n.Zone == "" || n.Zone == DefaultZone):
		return "a host of a cluster takes servers only if it, or its zone, is asked for"
	case i.VCPUs*vcpuRatio-h.UsedVCPUs < n.VCPUs:
		return fmt.Sprintf("%d virtual processors free, %d needed", max(0, i.VCPUs*vcpuRatio-h.UsedVCPUs), n.VCPUs)
	case i.RAM-h.UsedRAM < n.RAM:
		return fmt.Sprintf("%d MiB of RAM free, %d needed", max(0, i.RAM-h.UsedRAM), n.RAM)
	case n.Disk > 0 && h.FreeDisk() < n.Disk:
		return fmt.Sprintf("%d GiB of disk free, %d needed", max(0, h.FreeDisk()), n.Disk)
	case n.Full[h.ID] != "":
		return n.Full[h.ID]
	}
	if why := n.lacksStore(h); why != "" {
		return why
	}
	return n.lacks(h)
}

// Exclude keeps a host from being picked, because of why.
func (n *Needs) Exclude(h *Host, why string) {
	if n.Full == nil {
		n.Full = map[string]string{}
	}
	n.Full[h.ID] = why
}

// impossible is Refusal of a host that an administrator forces: that it is disabled, full or in another zone is his affair.
func (n *Needs) impossible(h *Host, up bool) string {
	switch {
	case h.Revoked:
		return "its certificate is revoked"
	case h.Fenced:
		return "fenced"
	case h.ForcedDown:
		return "forced down"
	case !up:
		return "down"
	}
	return n.lacks(h)
}

// lacks tells which of the things that a host either has or has not is missing.
func (n *Needs) lacks(h *Host) string {
	i := &h.Inventory
	if h.Kind == IronicHost {
		return ""
	}
	if len(i.Firmware) > 0 && n.Firmware != "" && !slices.Contains(i.Firmware, n.Firmware) {
		return "no " + string(n.Firmware) + " firmware"
	}
	if h.Kind == GanetiHost {
		return "" // the cluster knows its links and its storage
	}
	for _, d := range n.Disks {
		if d.Store != "" && h.StoreNamed(d.Store) == nil {
			return "no disk store " + d.Store
		}
	}
	if n.Disk > 0 && len(i.Stores) == 0 {
		return "no disk store"
	}
	for _, b := range n.Bridges {
		if !slices.Contains(i.Bridges, b) {
			return "no bridge " + b
		}
	}
	return ""
}

func withReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}

// DefaultZone is the availability zone of hosts that name none.
const DefaultZone = "nova"

// Pick chooses the host with the most free RAM among those that can take a server; of two alike the one with the lower
// number. If there is none, the error (problem.Conflict) tells of each host why.
func Pick(hosts []*Host, up func(*Host) bool, n Needs) (*Host, error) {
	var best *Host
	var why []string
	for _, h := range hosts {
		if reason := n.Refusal(h, up(h)); reason != "" {
			why = append(why, OrID(h)+": "+reason)
			continue
		}
		if best == nil || freeRAM(h) > freeRAM(best) || freeRAM(h) == freeRAM(best) && h.Num < best.Num {
			best = h
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, NoValidHost(why)
}

// shownReasons bounds how many hosts an error tells of.
const shownReasons = 10

func NoValidHost(why []string) error {
	if len(why) == 0 {
		return problem.Conflictf("No valid host was found: there are no hosts; let one join first")
	}
	text, more := strings.Join(why[:min(len(why), shownReasons)], "; "), ""
	if len(why) > shownReasons {
		more = fmt.Sprintf("; and %d more", len(why)-shownReasons)
	}
	return problem.Conflictf("No valid host was found: %s%s", text, more)
}

func OrID(h *Host) string {
	if h.Name != "" {
		return h.Name
	}
	return h.ID
}

// FreeDisk is what is free of the host's disk stores, in GiB: what is in quarantine is used.
func (h *Host) FreeDisk() int { return h.Inventory.Disk - h.UsedDisk - h.Inventory.QuarantinedGiB() }

func freeRAM(h *Host) int { return h.Inventory.RAM - h.UsedRAM }

// Reserve claims a server's place.
func (h *Host) Reserve(n Needs) {
	h.UsedVCPUs += n.VCPUs
	h.UsedRAM += n.RAM
	h.UsedDisk += n.Disk
}
