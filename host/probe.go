package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"salvor/compute"
	"salvor/problem"
)

const (
	maxProbes = 10000
	// guestsWithin bounds the question for guests, probeWithin the look at one disk.
	guestsWithin = 4 * time.Second
	probeWithin  = 2 * time.Second
)

// probe tells what this host sees of disks that are elsewhere in use, and of guests. A store counts by the marker that is in it at this
// moment, not by its name. What cannot be read in time is unknown; it keeps nobody waiting.
func (w *orderExecution) probe(ctx context.Context) (compute.Result, error) {
	probes := w.args.Probes
	if len(probes) > maxProbes {
		return compute.Result{}, problem.Invalidf("at most %d probes in an order", maxProbes)
	}
	sights := make([]compute.DiskSight, len(probes))
	w.sightGuests(ctx, probes, sights)
	found := w.stores.find(ctx)
	byStore := map[*diskStore][]int{}
	for i, p := range probes {
		if sights[i].Sight != "" {
			continue
		}
		if p.Disk == nil {
			sights[i] = compute.DiskSight{Sight: compute.SightAbsent, Text: "no such guest is here"}
			continue
		}
		s, sight := found.with(p.Marker)
		if sights[i] = sight; s != nil {
			byStore[s] = append(byStore[s], i)
		}
	}
	done := make(chan struct{}, len(byStore))
	for s, list := range byStore { // each store has its own elements of sights
		go func() { s.sightDisks(ctx, probes, list, sights); done <- struct{}{} }()
	}
	for range byStore {
		<-done
	}
	return compute.Result{Sights: sights}, nil
}

// sightGuests sees which of the servers are here as guests, of whatever epoch and whoever made them.
func (w *orderExecution) sightGuests(ctx context.Context, probes []compute.DiskProbe, sights []compute.DiskSight) {
	bounded, cancel := context.WithTimeout(ctx, guestsWithin)
	defer cancel()
	guests, err := runWithContext(bounded, func() ([]compute.Guest, error) { return w.Hypervisor.Guests(bounded) })
	ids, names := map[string]compute.Guest{}, map[string]compute.Guest{}
	for _, g := range guests {
		ids[g.ID], names[g.Name] = g, g
	}
	for i, p := range probes {
		g, there := ids[p.ServerID]
		if !there && p.GuestName != "" {
			g, there = names[p.GuestName]
		}
		switch {
		case err != nil:
			sights[i] = compute.DiskSight{Sight: compute.SightUnknown, Text: newFailedResult(fmt.Errorf("the hypervisor does not tell its guests: %w", err)).Error}
		case there:
			sights[i] = compute.DiskSight{Sight: compute.SightGuest, Text: fmt.Sprintf("guest %s with UUID %s is here, %s", g.Name, g.ID, g.Power)}
		}
	}
}

// storeMarkers are the stores as they are found at one moment.
type storeMarkers struct {
	here map[string]*diskStore
	// unknown is why a store could not be read, by the marker that it had; all is why, if it might have any.
	unknown map[string]error
	all     error
}

func (all diskStores) find(ctx context.Context) storeMarkers {
	type look struct {
		s      *diskStore
		marker string
		err    error
	}
	looks := make(chan look, len(all))
	for _, s := range all {
		go func() {
			marker, err := s.marker(ctx)
			looks <- look{s, marker, err}
		}()
	}
	out := storeMarkers{here: map[string]*diskStore{}, unknown: map[string]error{}}
	for range all {
		switch l := <-looks; {
		case l.err == nil:
			out.here[l.marker] = l.s
		case problem.Is(l.err, problem.Conflict): // it is known what was here, and that it is not now
			out.unknown[l.s.knownMarker] = l.err
		default:
			out.unknown[l.s.knownMarker], out.all = l.err, l.err
		}
	}
	return out
}

// with is the store of a marker, or what is to be said where there is none. One that was here and is not mounted, or that might be the
// one that hangs, is unknown: its disks may be as they were.
func (m storeMarkers) with(marker string) (*diskStore, compute.DiskSight) {
	if s := m.here[marker]; s != nil && marker != "" {
		return s, compute.DiskSight{}
	}
	if err := cmp.Or(m.unknown[marker], m.all); err != nil || marker == "" {
		if err == nil {
			err = errors.New("it is not told in which store the disk lies")
		}
		return nil, compute.DiskSight{Sight: compute.SightUnknown, Text: newFailedResult(err).Error}
	}
	return nil, compute.DiskSight{Sight: compute.SightAbsent, Text: "no disk store of this host has the marker " + marker}
}

// sightDisks looks at disks in one store, one after the other. After the first that is not answered in time the others are not asked for.
func (s *diskStore) sightDisks(ctx context.Context, probes []compute.DiskProbe, list []int, sights []compute.DiskSight) {
	folders := folderNames{}
	for at, i := range list {
		p := probes[i]
		bound, cancel := context.WithTimeout(ctx, probeWithin)
		there, err := withStoreTimeout(bound, s, func() (bool, error) { return s.has(p.ServerID, *p.Disk, folders) })
		cancel()
		switch {
		case err == nil && there:
			sights[i] = compute.DiskSight{Sight: compute.SightSame}
		case err == nil:
			sights[i] = compute.DiskSight{Sight: compute.SightMissing, Text: fmt.Sprintf("store %s is here, and disk %s is not in it", s.Name, p.Disk.Name)}
		case problem.Is(err, problem.Conflict), problem.Is(err, problem.Invalid):
			sights[i] = compute.DiskSight{Sight: compute.SightMissing, Text: newFailedResult(err).Error}
		default:
			sights[i] = compute.DiskSight{Sight: compute.SightUnknown, Text: newFailedResult(err).Error}
			if problem.Is(err, problem.Unavailable) {
				for _, rest := range list[at+1:] {
					sights[rest] = sights[i]
				}
				return
			}
		}
	}
}

// has tells whether a disk that is proven to be the server's lies in the store. Conflict: another one is in its place, or the guest wrote to an overlay
// over it last.
func (s *diskStore) has(server string, d compute.SpecDisk, folders folderNames) (bool, error) {
	d.Image = nil // of whatever image it was made: it has been written to since
	path, err := s.place(server, d)
	if err != nil {
		return false, err
	}
	there, err := hasFinishedDisk(path, server, d)
	if err != nil || !there {
		return there, err
	}
	return true, refusalOfOverlay(server, d.Name, path, folders)
}

// found proves that a server's disks are here: none is made.
func (w *orderExecution) found(ctx context.Context, spec *compute.Spec) error {
	for _, d := range spec.Disks {
		if d.VolumeID != "" {
			continue
		}
		s := w.stores.of(d)
		if s == nil {
			return problem.Conflictf("disk %s of server %s: this host has no disk store %q", d.Name, spec.ServerID, d.Store)
		}
		if _, err := s.marker(ctx); err != nil {
			return err
		}
		there, err := withStoreTimeout(ctx, s, func() (bool, error) { return s.has(spec.ServerID, d, folderNames{}) })
		if err != nil {
			return err
		}
		if !there {
			return problem.Conflictf("disk %s of server %s is not in store %s of this host; it is to be found there, and none is made", d.Name, spec.ServerID, s.Name)
		}
	}
	return nil
}

// fresh proves that no guest is in a server's way: one of its UUID and of another epoch, or of its name and another UUID.
func (w *orderExecution) fresh(ctx context.Context, spec *compute.Spec) error {
	guests, err := w.Hypervisor.Guests(ctx)
	if err != nil {
		return err
	}
	for _, g := range guests {
		switch {
		case g.ID == spec.ServerID && (!g.Ours || g.Epoch != spec.Epoch):
			return problem.Conflictf("server %s, epoch %d: a guest of its UUID is here already, epoch %d, %s", spec.ServerID, spec.Epoch, g.Epoch, g.Power)
		case g.ID != spec.ServerID && g.Name == spec.GuestName:
			return problem.Conflictf("server %s: guest %s has its name %s", spec.ServerID, g.ID, g.Name)
		}
	}
	return nil
}
