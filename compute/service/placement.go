package service

import (
	"context"
	"slices"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Place gives a server without a host the best one, and reserves its place there. One that has a host keeps it.
func (s *Servers) Place(ctx context.Context, tx job.Tx, id string, args compute.CreateArgs) (*compute.Server, *compute.Host, error) {
	srv, err := s.store.Servers().Get(ctx, tx, id)
	if err != nil {
		return nil, nil, err
	}
	if srv.HostID != "" {
		h, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
		return srv, h, err
	}
	needs := compute.NeedsOf(srv, args.Host)
	h, disks, err := s.placement.pickWithStores(ctx, tx, needs, srv.Disks)
	if err != nil {
		return nil, nil, err
	}
	h.Reserve(needs)
	srv, err = s.edit(ctx, tx, id, func(srv *compute.Server) {
		srv.HostID = h.ID
		srv.Epoch++
		srv.Disks = disks
		if srv.Task == compute.Scheduling {
			srv.Task = compute.Spawning
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if err := s.store.Hosts().Save(tx, h); err != nil {
		return nil, nil, err
	}
	kept := *h
	s.placement.put(&kept)
	return srv, h, nil
}

// placementHosts is what was read of all hosts a moment ago: a choice among thousands must not read them all each time.
type placementHosts struct {
	hosts []*compute.Host // none is changed, they are replaced
	live  *livenessView
}

// placementTTL is how old it may be. What is chosen from it is looked at again.
const placementTTL = time.Second

// putPlacement takes in what was reserved on a host.
func (c *hostCache) putPlacement(h *compute.Host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.placement
	i := slices.IndexFunc(r.hosts, func(o *compute.Host) bool { return o.ID == h.ID })
	if i >= 0 {
		r.hosts = slices.Clone(r.hosts)
		r.hosts[i] = h
	}
}

// hostPlacement chooses hosts for servers.
type hostPlacement struct {
	*serviceCore
	cache    *hostCache
	liveness *Liveness
}

// put takes in what was reserved on a host.
func (s *hostPlacement) put(h *compute.Host) { s.cache.putPlacement(h) }

// cachedHosts gives the host cache. It reads the cache again if it is too old or fresh is set.
func (s *hostPlacement) cachedHosts(ctx context.Context, tx job.Tx, fresh bool) ([]*compute.Host, *livenessView, error) {
	hosts, live := s.cache.placementHosts()
	if !fresh && live != nil {
		if age := s.now().Sub(live.at); age >= 0 && age < placementTTL {
			return hosts, live, nil
		}
	}
	hosts, err := s.store.Hosts().List(ctx, tx, compute.HostFilter{}, record.Page{})
	if err != nil {
		return nil, nil, err
	}
	if live, err = s.liveness.snapshot(ctx, tx); err != nil {
		return nil, nil, err
	}
	s.cache.setPlacementHosts(hosts, live)
	return hosts, live, nil
}

func (c *hostCache) placementHosts() ([]*compute.Host, *livenessView) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.placement.hosts, c.placement.live
}

func (c *hostCache) setPlacementHosts(hosts []*compute.Host, live *livenessView) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.placement = placementHosts{hosts, live}
}

// pick chooses a host from the cache and reads it again; one that cannot take the server any more, or no choice at all, is reason
// enough to read them all.
func (s *hostPlacement) pick(ctx context.Context, tx job.Tx, n compute.Needs) (*compute.Host, error) {
	for _, fresh := range []bool{false, true} {
		hosts, live, err := s.cachedHosts(ctx, tx, fresh)
		if err != nil {
			return nil, err
		}
		best, err := compute.Pick(hosts, live.isUp, n)
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

// pickWithStores is pick, with a disk store of the host for each local disk. What servers use of the stores is read of hosts alone that have
// several, and that were picked: their records are many.
func (s *hostPlacement) pickWithStores(ctx context.Context, tx job.Tx, n compute.Needs, disks []compute.Disk) (*compute.Host, []compute.Disk, error) {
	for {
		h, err := s.pick(ctx, tx, n)
		if err != nil {
			return nil, nil, err
		}
		var used map[string]int
		if n.NeedsStoreUse(h) {
			if used, err = s.storeUse(ctx, tx, h); err != nil {
				return nil, nil, err
			}
		}
		placed, why := h.AssignStores(disks, used)
		if why == "" {
			return h, placed, nil
		}
		n.Exclude(h, why)
	}
}

// storeUse is what servers claim of each disk store of a host, in GiB by the store's name: the servers of the host, and in stores that it shares those of
// all hosts that share them. Whoever reserves a place saves its host, so a transaction that read an older use of that host comes to nothing. Two
// transactions that reserve at two hosts at the same moment do not see each other.
func (s *serviceCore) storeUse(ctx context.Context, tx job.Tx, h *compute.Host) (map[string]int, error) {
	used, err := s.ownStoreUse(ctx, tx, h)
	if err != nil || !h.SharesStores() {
		return used, err
	}
	hosts, err := s.store.Hosts().List(ctx, tx, compute.HostFilter{WithLost: true}, record.Page{})
	if err != nil {
		return nil, err
	}
	sharers := map[string]*compute.Host{h.ID: h}
	for _, o := range hosts {
		if o.ID == h.ID || !o.SharesStores() || compute.SharedBy(h, o) == nil {
			continue
		}
		theirs := map[string]int{}
		if stores := o.Inventory.Stores; len(stores) == 1 {
			theirs[stores[0].Name] = o.UsedDisk // the records of its servers need not be read
		} else if theirs, err = s.ownStoreUse(ctx, tx, o); err != nil {
			return nil, err
		}
		h.AddShared(used, o, theirs)
		sharers[o.ID] = o
	}
	return used, s.subtractMoves(ctx, tx, h, sharers, used)
}

// subtractMoves takes the disks of servers off that are on their way between two hosts which share the disks' store: both hosts have counted them.
func (s *serviceCore) subtractMoves(ctx context.Context, tx job.Tx, h *compute.Host, sharers map[string]*compute.Host, used map[string]int) error {
	moves, err := s.store.Moves().List(ctx, tx, compute.MoveFilter{Open: true}, record.Page{})
	if err != nil {
		return err
	}
	for _, m := range moves {
		source, dest := sharers[m.SourceID], sharers[m.DestID]
		if m.State != compute.MovePreparing || m.Disposition == compute.Reimage || source == nil || dest == nil {
			continue
		}
		srv, err := s.store.Servers().Get(ctx, tx, m.ServerID)
		if err != nil {
			return err
		}
		twice := map[string]int{}
		source.UseStores(twice, srv.Disks)
		for i := range source.Inventory.Stores {
			store := &source.Inventory.Stores[i]
			mine := h.StoreOf(store.Marker)
			if dest.StoreOf(store.Marker) != nil && mine != nil && mine.Shared {
				used[mine.Name] = max(0, used[mine.Name]-twice[store.Name])
			}
		}
	}
	return nil
}

// ownStoreUse is what the servers of a host claim of each of its disk stores: the servers on the host, and the servers that a move brings to the host.
func (s *serviceCore) ownStoreUse(ctx context.Context, tx job.Tx, h *compute.Host) (map[string]int, error) {
	moves, err := s.store.Moves().List(ctx, tx, compute.MoveFilter{DestID: h.ID, Open: true}, record.Page{})
	if err != nil {
		return nil, err
	}
	servers, err := s.store.Servers().List(ctx, tx, compute.ServerFilter{HostID: h.ID}, record.Page{})
	if err != nil {
		return nil, err
	}
	used := map[string]int{}
	arriving := map[string]bool{} // their records name the stores of the hosts that they leave
	for _, m := range moves {
		if m.State != compute.MovePreparing {
			continue
		}
		srv, err := s.store.Servers().Get(ctx, tx, m.ServerID)
		if err != nil {
			return nil, err
		}
		disks, err := s.disksThere(ctx, tx, srv, m)
		if err != nil {
			return nil, err
		}
		h.UseStores(used, disks)
		arriving[srv.ID] = true
	}
	for _, srv := range servers {
		if !srv.Foreign && !arriving[srv.ID] {
			h.UseStores(used, srv.Disks)
		}
	}
	return used, nil
}

// unreserve gives a server's place back.
func (s *serviceCore) unreserve(ctx context.Context, tx job.Tx, srv *compute.Server) error {
	if srv.HostID == "" || srv.Foreign {
		return nil
	}
	h, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil {
		return ignoreNotFound(err)
	}
	n := compute.NeedsOf(srv, "")
	h.UsedVCPUs = max(0, h.UsedVCPUs-n.VCPUs)
	h.UsedRAM = max(0, h.UsedRAM-n.RAM)
	h.UsedDisk = max(0, h.UsedDisk-n.Disk)
	return s.store.Hosts().Save(tx, h)
}
