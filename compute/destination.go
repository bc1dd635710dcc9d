package compute

import (
	"context"
	"fmt"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// destinationFilter is what a server asks of the host that it moves to.
type destinationFilter struct {
	needs Needs
	// markers of the disk stores that it must see; source: its disks are made anew, in a store that this host has not.
	markers []string
	source  *Host
	// except are hosts that are none: the one that it comes from, and those that refused it.
	except []string
	// forced: only what makes it impossible for a host to run the server counts.
	forced bool
}

// newDestinationFilter reads it from a server that moves away from a host; keep: its disks lie where they are.
func newDestinationFilter(srv *Server, source *Host, keep bool) destinationFilter {
	w := destinationFilter{needs: needsOf(srv, ""), except: []string{source.ID}}
	w.needs.Store = "" // stores are known by their markers
	if keep {
		w.markers = markersOf(srv, source)
	} else if w.needs.Disk > 0 {
		w.source = source
	}
	return w
}

// refusal tells why a host cannot take the server; empty: it can. Servers of agents go to hosts with agents.
func (w *destinationFilter) refusal(h *Host, up bool) string {
	if slices.Contains(w.except, h.ID) {
		return "it comes from there, or was refused there"
	}
	if h.Kind != AgentHost {
		return "it is none of salvor's own hosts"
	}
	judge := w.needs.Refusal
	if w.forced {
		judge = w.needs.impossible
	}
	if why := judge(h, up); why != "" {
		return why
	}
	for _, marker := range w.markers {
		if h.storeOf(marker) == nil {
			return "it does not see the disk store of its disks"
		}
	}
	if w.source != nil && h.storeFor("", w.source) == nil {
		return "it has no disk store of its own"
	}
	return ""
}

// storeOf finds the store of a marker.
func (h *Host) storeOf(marker string) *DiskStore {
	i := slices.IndexFunc(h.Inventory.Stores, func(d DiskStore) bool { return marker != "" && d.Marker == marker })
	if i < 0 {
		return nil
	}
	return &h.Inventory.Stores[i]
}

// storeNamed finds a store by its name, the first for none.
func (h *Host) storeNamed(name string) *DiskStore {
	i := slices.IndexFunc(h.Inventory.Stores, func(d DiskStore) bool { return name == "" || d.Name == name })
	if i < 0 {
		return nil
	}
	return &h.Inventory.Stores[i]
}

// markerOf is the marker of the store of a local disk; empty: nobody knows it.
func markerOf(d Disk, source *Host) string {
	if store := source.storeNamed(d.Store); store != nil {
		return store.Marker
	}
	return ""
}

// markersOf are those of all local disks of a server, each once; an unknown one is "".
func markersOf(srv *Server, source *Host) []string {
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

// stillLost refuses to make the disks of a server anew that have come in sight since that was planned: another host, whether it lives
// or not, has the stores of them all.
func (s *Servers) stillLost(ctx context.Context, tx job.Tx, srv *Server, m *Move) error {
	if m.Disposition != Reimage {
		return nil
	}
	source, err := s.store.Hosts().Get(ctx, tx, m.SourceID)
	if err != nil {
		return ignoreNotFound(err)
	}
	hosts, err := s.store.Hosts().List(ctx, tx, HostFilter{}, record.Page{})
	if err != nil {
		return err
	}
	var at *Host
	for _, marker := range markersOf(srv, source) {
		if at = hostWithStore(hosts, source, marker); at == nil {
			return nil
		}
	}
	if at == nil {
		return nil
	}
	return problem.Conflictf("server %s was to be made anew, but host %s sees the disk store of its disks now: make a new plan, which keeps them", srv.ID, orID(at))
}

// hostWithStore is a host other than source that has the store of a marker, whether it lives or not; nil: none.
func hostWithStore(hosts []*Host, source *Host, marker string) *Host {
	for _, h := range hosts {
		if h.ID != source.ID && h.storeOf(marker) != nil {
			return h
		}
	}
	return nil
}

// destination chooses the host of a move; problem.Conflict tells of each host why it is none.
func (s *Servers) destination(ctx context.Context, tx job.Tx, srv *Server, m *Move, a MoveArgs, except []string) (*Host, error) {
	source, err := s.store.Hosts().Get(ctx, tx, m.SourceID)
	if problem.Is(err, problem.NotFound) {
		source, err = &Host{}, nil
		source.ID = m.SourceID
	}
	if err != nil {
		return nil, err
	}
	w := newDestinationFilter(srv, source, m.Disposition == KeepDisk)
	w.except = append(w.except, except...)
	if a.DestID != "" && !slices.Contains(except, a.DestID) {
		h, why, err := s.requestedHost(ctx, tx, &w, a)
		if err != nil || why == "" {
			return h, err
		}
		if a.Force {
			return nil, problem.Conflictf("server %s cannot go to host %s: %s", srv.ID, orID(h), why)
		}
	}
	if a.Force {
		return nil, problem.Conflictf("server %s: host %s did not take it, and no other one is allowed", srv.ID, a.DestID)
	}
	return s.bestFor(ctx, tx, &w)
}

// requestedHost judges the host that is asked for. One that is forced is judged by its life alone.
func (s *Servers) requestedHost(ctx context.Context, tx job.Tx, w *destinationFilter, a MoveArgs) (*Host, string, error) {
	h, err := s.store.Hosts().Get(ctx, tx, a.DestID)
	if err != nil {
		return nil, "", err
	}
	live, err := s.hosts.livenessSnapshot(ctx, tx)
	if err != nil {
		return nil, "", err
	}
	if !a.Force {
		return h, w.refusal(h, live.isUp(h)), nil
	}
	if !live.isUp(h) {
		if err := s.hosts.unheard(h); err != nil {
			return nil, "", err
		}
	}
	if !live.isUp(h) || slices.Contains(w.except, h.ID) || h.Kind != AgentHost {
		return h, "it is down, or none of salvor's own hosts, or the server comes from there", nil
	}
	return h, "", nil
}

// bestFor chooses by the same measure as placement, and reads the host again.
func (s *Servers) bestFor(ctx context.Context, tx job.Tx, w *destinationFilter) (*Host, error) {
	for _, fresh := range []bool{false, true} {
		hosts, live, err := s.hosts.cachedHosts(ctx, tx, fresh)
		if err != nil {
			return nil, err
		}
		best, why := pickRoomiestHost(hosts, func(h *Host) string { return w.refusal(h, live.isUp(h)) })
		if best == nil && fresh {
			return nil, s.none(hosts, live, why)
		}
		if best == nil {
			continue
		}
		h, err := s.store.Hosts().Get(ctx, tx, best.ID)
		if err != nil && !problem.Is(err, problem.NotFound) {
			return nil, err
		}
		if err == nil && w.refusal(h, live.isUp(h)) == "" {
			return h, nil
		}
	}
	return nil, problem.Unavailablef("hosts keep changing; ask again")
}

// none is the error where no host can take a server: Unavailable if one may yet be heard, else problem.Conflict.
func (s *Servers) none(hosts []*Host, live *livenessView, why []string) error {
	for _, h := range hosts {
		if live.isUp(h) {
			continue
		}
		if err := s.hosts.unheard(h); err != nil {
			return err
		}
	}
	return noValidHost(why)
}

// pickRoomiestHost is the host with the most free RAM among those that nothing speaks against, of two alike the one with the lower number;
// nil: why tells of each why not.
func pickRoomiestHost(hosts []*Host, against func(*Host) string) (best *Host, why []string) {
	for _, h := range hosts {
		if reason := against(h); reason != "" {
			why = append(why, fmt.Sprintf("%s: %s", orID(h), reason))
			continue
		}
		if best == nil || freeRAM(h) > freeRAM(best) || freeRAM(h) == freeRAM(best) && h.Num < best.Num {
			best = h
		}
	}
	return best, why
}

// disksThere are the disks of a server as its destination names their stores: those that are kept lie where the marker is the same,
// those that are made anew in a store that its former host has not.
func (s *Servers) disksThere(ctx context.Context, tx job.Tx, srv *Server, m *Move) ([]Disk, error) {
	source, err := s.store.Hosts().Get(ctx, tx, m.SourceID)
	if problem.Is(err, problem.NotFound) {
		return srv.Disks, nil
	}
	if err != nil {
		return nil, err
	}
	dest, err := s.store.Hosts().Get(ctx, tx, m.DestID)
	if err != nil {
		return nil, err
	}
	return relocateDisks(srv.Disks, source, dest, m.Disposition == Reimage), nil
}

func relocateDisks(disks []Disk, source, dest *Host, anew bool) []Disk {
	out := slices.Clone(disks)
	for i, d := range out {
		if d.VolumeID != "" {
			continue
		}
		to := dest.storeOf(markerOf(d, source))
		if anew {
			to = dest.storeFor(d.Store, source)
		}
		if to != nil {
			out[i].Store = to.Name
		}
	}
	return out
}

// storeFor is where a disk is made anew: in the store of the same name, or any other, but in none that the source sees as well.
func (h *Host) storeFor(name string, source *Host) *DiskStore {
	var other *DiskStore
	for i := range h.Inventory.Stores {
		store := &h.Inventory.Stores[i]
		if source.storeOf(store.Marker) != nil {
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

// There is a server of a move as its destination is to have it, before its row says so.
func (s *Servers) There(ctx context.Context, srv *Server, m *Move) (*Server, error) {
	if m.State != MovePreparing {
		return srv, nil
	}
	disks, err := s.disksThere(ctx, nil, srv, m)
	if err != nil {
		return nil, err
	}
	out := *srv
	out.Disks = disks
	return &out, nil
}

// ProbesOf are the questions to the destination of a move; srv is as There gives it.
func (s *Servers) ProbesOf(ctx context.Context, srv *Server, m *Move) ([]DiskProbe, error) {
	row, err := s.store.Servers().Get(ctx, nil, m.ServerID)
	if err != nil {
		return nil, err
	}
	p, err := s.parts(ctx, srv)
	if err != nil {
		return nil, err
	}
	source, err := s.store.Hosts().Get(ctx, nil, m.SourceID)
	if problem.Is(err, problem.NotFound) {
		source, err = &Host{}, nil
	}
	if err != nil {
		return nil, err
	}
	dest, err := s.store.Hosts().Get(ctx, nil, m.DestID)
	if err != nil {
		return nil, err
	}
	return Probes(row, source, dest, m.Disposition, p.images), nil
}

// Up tells whether a host lives. Unavailable: who has just begun to listen cannot tell.
func (s *Hosts) Up(ctx context.Context, h *Host) (bool, error) {
	live, err := s.livenessSnapshot(ctx, nil)
	if err != nil || live.isUp(h) {
		return err == nil, err
	}
	return false, s.unheard(h)
}

// unheard is an error about a host that only seems to be down, for this process has not listened for long enough to have heard it.
func (s *Hosts) unheard(h *Host) error {
	if h.Fenced || h.ForcedDown || h.Revoked || s.Listening() >= Suspect {
		return nil
	}
	return problem.Unavailablef("host %s was not heard yet by a control plane that has just begun to listen", orID(h))
}
