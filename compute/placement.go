package compute

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Needs are what a server asks of its host.
type Needs struct {
	VCPUs, RAM, Disk int // Disk in GiB, of local disks
	Store            string
	Firmware         Firmware
	Bridges          []string
	Zone             string
	Host             string // UUID or name; empty: any
	// Class of the machine that it is to be; empty: it is a guest.
	Class string
}

// needsOf reads them from a server.
func needsOf(s *Server, host string) Needs {
	if m, metal := s.Flavor.Metal(); metal {
		return Needs{Zone: s.Zone, Host: host, Class: m.Class} // a machine claims itself, at its endpoint
	}
	n := Needs{VCPUs: s.Flavor.VCPUs, RAM: s.Flavor.RAM, Firmware: s.Firmware, Zone: s.Zone, Host: host}
	for _, d := range s.Disks {
		if d.VolumeID == "" {
			n.Disk += d.SizeGiB
			n.Store = d.Store
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
	case n.Disk > 0 && h.freeDisk() < n.Disk:
		return fmt.Sprintf("%d GiB of disk free, %d needed", max(0, h.freeDisk()), n.Disk)
	}
	return n.lacks(h)
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
	if n.Disk > 0 && n.Store != "" && !slices.ContainsFunc(i.Stores, func(s DiskStore) bool { return s.Name == n.Store }) {
		return "no disk store " + n.Store
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
			why = append(why, orID(h)+": "+reason)
			continue
		}
		if best == nil || freeRAM(h) > freeRAM(best) || freeRAM(h) == freeRAM(best) && h.Num < best.Num {
			best = h
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, noValidHost(why)
}

// shownReasons bounds how many hosts an error tells of.
const shownReasons = 10

func noValidHost(why []string) error {
	if len(why) == 0 {
		return problem.Conflictf("No valid host was found: there are no hosts; let one join first")
	}
	text, more := strings.Join(why[:min(len(why), shownReasons)], "; "), ""
	if len(why) > shownReasons {
		more = fmt.Sprintf("; and %d more", len(why)-shownReasons)
	}
	return problem.Conflictf("No valid host was found: %s%s", text, more)
}

func orID(h *Host) string {
	if h.Name != "" {
		return h.Name
	}
	return h.ID
}

// freeDisk is what is free of the host's disk stores, in GiB: what is in quarantine is used.
func (h *Host) freeDisk() int { return h.Inventory.Disk - h.UsedDisk - h.Inventory.QuarantinedGiB() }

func freeRAM(h *Host) int { return h.Inventory.RAM - h.UsedRAM }

// Place gives a server without a host the best one, and reserves its place there. One that has a host keeps it.
func (s *Servers) Place(ctx context.Context, tx job.Tx, id string, args CreateArgs) (*Server, *Host, error) {
	srv, err := s.store.Servers().Get(ctx, tx, id)
	if err != nil {
		return nil, nil, err
	}
	if srv.HostID != "" {
		h, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
		return srv, h, err
	}
	needs := needsOf(srv, args.Host)
	h, err := s.hosts.pick(ctx, tx, needs)
	if err != nil {
		return nil, nil, err
	}
	h.reserve(needs)
	srv, err = s.edit(ctx, tx, id, func(srv *Server) {
		srv.HostID = h.ID
		srv.Epoch++
		for i, d := range srv.Disks {
			if d.VolumeID == "" && d.Store == "" && len(h.Inventory.Stores) > 0 {
				srv.Disks[i].Store = h.Inventory.Stores[0].Name
			}
		}
		if srv.Task == Scheduling {
			srv.Task = Spawning
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if err := s.store.Hosts().Save(tx, h); err != nil {
		return nil, nil, err
	}
	kept := *h
	s.hosts.roster.put(&kept)
	return srv, h, nil
}

// hostCache is what was read of all hosts a moment ago: a choice among thousands must not read them all each time.
type hostCache struct {
	mu    sync.Mutex
	hosts []*Host // none is changed, they are replaced
	live  *livenessView
}

// rosterLasts is how old it may be. What is chosen from it is looked at again.
const rosterLasts = time.Second

// put takes in what was reserved on a host.
func (r *hostCache) put(h *Host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.hosts, func(o *Host) bool { return o.ID == h.ID })
	if i >= 0 {
		r.hosts = slices.Clone(r.hosts)
		r.hosts[i] = h
	}
}

// cachedHosts gives the host cache. It reads the cache again if it is too old or fresh is set.
func (s *Hosts) cachedHosts(ctx context.Context, tx job.Tx, fresh bool) ([]*Host, *livenessView, error) {
	r := &s.roster
	r.mu.Lock()
	hosts, live := r.hosts, r.live
	r.mu.Unlock()
	if !fresh && live != nil {
		if age := s.now().Sub(live.at); age >= 0 && age < rosterLasts {
			return hosts, live, nil
		}
	}
	hosts, err := s.store.Hosts().List(ctx, tx, HostFilter{}, record.Page{})
	if err != nil {
		return nil, nil, err
	}
	if live, err = s.livenessSnapshot(ctx, tx); err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts, r.live = hosts, live
	return hosts, live, nil
}

// pick chooses a host from the cache and reads it again; one that cannot take the server any more, or no choice at all, is reason
// enough to read them all.
func (s *Hosts) pick(ctx context.Context, tx job.Tx, n Needs) (*Host, error) {
	for _, fresh := range []bool{false, true} {
		hosts, live, err := s.cachedHosts(ctx, tx, fresh)
		if err != nil {
			return nil, err
		}
		best, err := Pick(hosts, live.isUp, n)
		if err != nil && fresh {
			return nil, err
		}
		if err != nil {
			continue
		}
		h, err := s.store.Hosts().Get(ctx, tx, best.ID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
		if err == nil && n.Refusal(h, live.isUp(h)) == "" {
			return h, nil
		}
	}
	return nil, problem.Unavailablef("hosts keep changing; ask again")
}

// reserve claims a server's place.
func (h *Host) reserve(n Needs) {
	h.UsedVCPUs += n.VCPUs
	h.UsedRAM += n.RAM
	h.UsedDisk += n.Disk
}

// unreserve gives a server's place back.
func (s *Servers) unreserve(ctx context.Context, tx job.Tx, srv *Server) error {
	if srv.HostID == "" || srv.Foreign {
		return nil
	}
	h, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil {
		return ignoreNotFound(err)
	}
	n := needsOf(srv, "")
	h.UsedVCPUs = max(0, h.UsedVCPUs-n.VCPUs)
	h.UsedRAM = max(0, h.UsedRAM-n.RAM)
	h.UsedDisk = max(0, h.UsedDisk-n.Disk)
	return s.store.Hosts().Save(tx, h)
}
