package compute

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// LocalDisk is a disk that a server needs in a disk store of its host.
type LocalDisk struct {
	// Store names the disk store; empty: any.
	Store string
	GiB   int
}

// isStoreOf tells whether the disk may lie in the store.
func (d LocalDisk) isStoreOf(s *DiskStore) bool { return d.Store == "" || d.Store == s.Name }

// judgesStores tells whether room is judged for each disk store of the host. A single store of its own has the room that the host has, a store that
// others share holds their disks too, and a cluster knows its own storage.
func (h *Host) judgesStores() bool {
	return h.Kind != GanetiHost && (len(h.Inventory.Stores) > 1 || h.SharesStores())
}

// SharesStores tells whether the host has a disk store that other hosts may see too, and whose size is known.
func (h *Host) SharesStores() bool {
	return slices.ContainsFunc(h.Inventory.Stores, func(s DiskStore) bool { return s.isShared() && s.SizeGiB > 0 })
}

func (s *DiskStore) isShared() bool { return s.Shared && s.Marker != "" }

// SharedBy is a disk store of the first host that the second one shares; nil: there is none.
func SharedBy(h, other *Host) *DiskStore {
	for i := range h.Inventory.Stores {
		mine := &h.Inventory.Stores[i]
		if theirs := other.StoreOf(mine.Marker); mine.isShared() && theirs != nil && theirs.isShared() {
			return mine
		}
	}
	return nil
}

// AddShared adds to used, by the names of the host's stores, what another host's servers use of the stores that both share.
func (h *Host) AddShared(used map[string]int, other *Host, theirs map[string]int) {
	for i := range other.Inventory.Stores {
		s := &other.Inventory.Stores[i]
		if mine := h.StoreOf(s.Marker); s.isShared() && mine != nil && mine.isShared() {
			used[mine.Name] += theirs[s.Name]
		}
	}
}

// NeedsStoreUse tells whether Assign must know what servers use of the disk stores of the host.
func (n *Needs) NeedsStoreUse(h *Host) bool { return len(n.Disks) > 0 && h.judgesStores() }

// lacksStore tells of a disk that no disk store of the host has or is large enough for; empty: there is a store for each disk. It does
// not know what servers use.
func (n *Needs) lacksStore(h *Host) string {
	if !h.judgesStores() {
		return ""
	}
	for _, d := range n.Disks {
		most := 0
		for i := range h.Inventory.Stores {
			if s := &h.Inventory.Stores[i]; d.isStoreOf(s) {
				most = max(most, s.SizeGiB-s.QuarantinedGiB)
			}
		}
		if most < d.GiB {
			return fmt.Sprintf("%s has %d GiB of disk free, %d needed", describeStore(d.Store), most, d.GiB)
		}
	}
	return ""
}

func describeStore(name string) string {
	if name == "" {
		return "its largest disk store"
	}
	return "disk store " + name
}

// UseStores adds to used, by the name of a store, the GiB that the local disks of a server of this host claim.
func (h *Host) UseStores(used map[string]int, disks []Disk) {
	for _, d := range disks {
		if d.VolumeID != "" {
			continue
		}
		if store := h.StoreNamed(d.Store); store != nil {
			used[store.Name] += d.SizeGiB
		}
	}
}

// RoomIn is the GiB that are free in a disk store, of which servers use so much: what is in quarantine is used.
func (s *DiskStore) RoomIn(used map[string]int) int {
	return max(0, s.SizeGiB-s.QuarantinedGiB-used[s.Name])
}

// AssignStores gives each local disk without a store the first one of the host that has room for it; used is what servers claim of each store.
// If a disk fits nowhere, it tells why.
func (h *Host) AssignStores(disks []Disk, used map[string]int) (out []Disk, why string) {
	out = slices.Clone(disks)
	taken := map[string]int{}
	maps.Copy(taken, used)
	for i, d := range out {
		if d.VolumeID != "" {
			continue
		}
		need := LocalDisk{d.Store, d.SizeGiB}
		at := slices.IndexFunc(h.Inventory.Stores, func(s DiskStore) bool {
			return need.isStoreOf(&s) && (!h.judgesStores() || s.RoomIn(taken) >= d.SizeGiB)
		})
		switch {
		case at >= 0:
			out[i].Store = h.Inventory.Stores[at].Name
			taken[out[i].Store] += d.SizeGiB
		case h.judgesStores():
			return nil, fmt.Sprintf("no disk store has the room: %s GiB of disk free, %d needed for disk %s", h.roomOfStores(taken), d.SizeGiB, d.Name)
		}
	}
	return out, ""
}

// roomOfStores says what is free in each disk store.
func (h *Host) roomOfStores(used map[string]int) string {
	var parts []string
	for i := range h.Inventory.Stores {
		s := &h.Inventory.Stores[i]
		parts = append(parts, fmt.Sprintf("%s has %d", s.Name, s.RoomIn(used)))
	}
	return strings.Join(parts, ", ")
}
