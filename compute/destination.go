package compute

import (
	"fmt"
	"slices"
)

// DestinationFilter is what a server asks of the host that it moves to.
type DestinationFilter struct {
	needs Needs
	// markers are of the disk stores that the destination must see. source: the disks are made anew, in a store that this host does not have.
	markers []string
	source  *Host
	// anew are the disks that are made anew.
	anew []LocalDisk
	// Except are the host that the server leaves, and the hosts that refused the server.
	Except []string
	// forced: only what makes it impossible for a host to run the server counts.
	Forced bool
}

// NewDestinationFilter makes the filter for a server that moves away from a host. keep: the disks of the server stay where they lie.
func NewDestinationFilter(srv *Server, source *Host, keep bool) DestinationFilter {
	w := DestinationFilter{needs: NeedsOf(srv, ""), Except: []string{source.ID}}
	if keep {
		w.markers = MarkersOf(srv, source)
	} else if w.needs.Disk > 0 {
		w.source, w.anew = source, w.needs.Disks
	}
	w.needs.Disks = nil // stores are known by their markers
	return w
}

// Refusal tells why a host cannot take the server; empty: it can. Servers of agents go to hosts with agents.
func (w *DestinationFilter) Refusal(h *Host, up bool) string {
	if slices.Contains(w.Except, h.ID) {
		return "it comes from there, or was refused there"
	}
	if h.Kind != AgentHost {
		return "it is none of salvor's own hosts"
	}
	judge := w.needs.Refusal
	if w.Forced {
		judge = w.needs.impossible
	}
	if why := judge(h, up); why != "" {
		return why
	}
	for _, marker := range w.markers {
		if h.StoreOf(marker) == nil {
			return "it does not see the disk store of its disks"
		}
	}
	if w.source == nil {
		return ""
	}
	if h.storeFor("", w.source, 0) == nil {
		return "it has no disk store of its own"
	}
	for _, d := range w.anew {
		if !w.Forced && h.storeFor(d.Store, w.source, d.GiB) == nil {
			return fmt.Sprintf("it has no disk store of its own for %d GiB", d.GiB)
		}
	}
	return ""
}

// StoreOf finds the store of a marker.
func (h *Host) StoreOf(marker string) *DiskStore {
	i := slices.IndexFunc(h.Inventory.Stores, func(d DiskStore) bool { return marker != "" && d.Marker == marker })
	if i < 0 {
		return nil
	}
	return &h.Inventory.Stores[i]
}

// StoreNamed finds a store by its name, the first for none.
func (h *Host) StoreNamed(name string) *DiskStore {
	i := slices.IndexFunc(h.Inventory.Stores, func(d DiskStore) bool { return name == "" || d.Name == name })
	if i < 0 {
		return nil
	}
	return &h.Inventory.Stores[i]
}

// markerOf is the marker of the store of a local disk; empty: nobody knows it.
func markerOf(d Disk, source *Host) string {
	if store := source.StoreNamed(d.Store); store != nil {
		return store.Marker
	}
	return ""
}

// MarkersOf are those of all local disks of a server, each once; an unknown one is "".
func MarkersOf(srv *Server, source *Host) []string {
	var out []string
	for _, d := range srv.Disks {
		if d.VolumeID != "" {
			continue
		}
		if m := markerOf(d, source); !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// HostWithStore is a host other than source that has the store of a marker, whether it lives or not; nil: none.
func HostWithStore(hosts []*Host, source *Host, marker string) *Host {
	for _, h := range hosts {
		if h.ID != source.ID && h.StoreOf(marker) != nil {
			return h
		}
	}
	return nil
}

// PickRoomiestHost is the host with the most free RAM among those that nothing speaks against, of two alike the one with the lower number;
// nil: why tells of each why not.
func PickRoomiestHost(hosts []*Host, against func(*Host) string) (best *Host, why []string) {
	for _, h := range hosts {
		if reason := against(h); reason != "" {
			why = append(why, fmt.Sprintf("%s: %s", OrID(h), reason))
			continue
		}
		if best == nil || freeRAM(h) > freeRAM(best) || freeRAM(h) == freeRAM(best) && h.Num < best.Num {
			best = h
		}
	}
	return best, why
}

func RelocateDisks(disks []Disk, source, dest *Host, anew bool) []Disk {
	out := slices.Clone(disks)
	for i, d := range out {
		if d.VolumeID != "" {
			continue
		}
		to := dest.StoreOf(markerOf(d, source))
		if anew {
			if to = dest.storeFor(d.Store, source, d.SizeGiB); to == nil { // a destination that was forced
				to = dest.storeFor(d.Store, source, 0)
			}
		}
		if to != nil {
			out[i].Store = to.Name
		}
	}
	return out
}

// storeFor is where a disk is made anew: in the store of the same name, or any other, but in none that the source sees as well, and in none
// that is too small even if it is empty. What servers use does not count, because each look must find the same store until the disk is made.
func (h *Host) storeFor(name string, source *Host, size int) *DiskStore {
	var other *DiskStore
	for i := range h.Inventory.Stores {
		store := &h.Inventory.Stores[i]
		if source.StoreOf(store.Marker) != nil || h.judgesStores() && store.SizeGiB < size {
			continue
		}
		if store.Name == name {
			return store
		}
		if other == nil {
			other = store
		}
	}
	return other
}
