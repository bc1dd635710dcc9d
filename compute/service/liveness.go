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

const (
	// leaseLag is how much older than a renewal that is answered the newest one may be that others see in the store. With it the
	// watchdog of a host (SelfFenceWatchdog after a renewal of which only this process knows) comes before SelfFenceEvidence, counted
	// by another process from what it saw.
	leaseLag = compute.SelfFenceEvidence - compute.SelfFenceWatchdog
	// deafAfter is the time without a look at the store after which silence is counted anew: whoever did not look heard nothing.
	deafAfter = 3 * time.Second
	// saveWithin bounds the writing of one lease before its renewal is answered.
	saveWithin = 2 * time.Second
)

// Liveness tells which hosts live, by their leases, by what neighbours see and by their BMCs.
type Liveness struct {
	*serviceCore
	cache *hostCache
}

// Silence tells for how long this process has not heard of a host though it could have, on its own monotonic clock, and which hardware
// watchdog the newest renewal named. known is false of a host that never held a lease, and while the store does not answer.
func (s *Liveness) Silence(hostID string) (since time.Duration, watchdog string, known bool) {
	w, from, known := s.cache.hearing(hostID)
	if !known {
		return 0, "", false
	}
	return s.now().Sub(from), w.watchdog, true
}

// Listen reads what other processes heard, before a fence counts a silence: this one may have stood still, and then it heard nothing.
func (s *Liveness) Listen(ctx context.Context) error {
	s.cache.resume(s.now(), false)
	return s.listen(ctx)
}

// Listening tells for how long this process has heard without a gap; 0: it hears nothing just now.
func (s *Liveness) Listening() time.Duration {
	length, stale, _ := s.cache.listening(s.now())
	if stale {
		return 0
	}
	return length
}

// Deaf tells whether nothing can be said of any host just now: the store does not answer, or was not asked yet.
func (s *Liveness) Deaf() bool {
	_, stale, looked := s.cache.listening(s.now())
	return stale || !looked
}

// listen reads what other processes heard.
func (s *Liveness) listen(ctx context.Context) error {
	stored, err := s.store.Leases(ctx)
	if err != nil {
		s.cache.markStale()
		return problem.Unavailablef("listen to hosts: %w", err)
	}
	s.cache.hearStored(stored, s.now())
	return nil
}

// keepListening is listen in a loop: a gap between its turns is one in which nothing was heard.
func (s *Liveness) keepListening(ctx context.Context) error {
	s.cache.resume(s.now(), true)
	return s.listen(ctx)
}

// persistLease writes a lease that others must see before its renewal is answered, unless they saw one of late that named the same watchdog: the
// host disarms it at the answer, and the store would have others believe in it.
func (s *Leases) persistLease(ctx context.Context, l compute.Lease) error {
	w := s.cache.get(l.HostID).heard
	if lag := l.RenewedAt.Sub(w.storedAt); !w.storedAt.IsZero() && lag >= 0 && lag <= leaseLag && w.storedWatchdog == l.Watchdog {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	if err := s.store.SaveLeases(bounded, []compute.Lease{l}); err != nil {
		s.cache.markStale()
		return problem.Unavailablef("the lease of host %s could not be stored, so it is none: %w", compute.TruncateText(l.HostID), err)
	}
	s.cache.markStored([]compute.Lease{l})
	s.cache.change(l.HostID, func(h *cachedHost) { h.fresh = h.fresh && h.lease != l })
	return nil
}

// hostFlags is what was read a moment ago of hosts of which there is something to say: a renewal that says nothing new must not cost a
// query.
type hostFlags struct {
	at time.Time
	// fenced hosts have an open receipt, sources have moves that go on or left something behind, fencing groups fence themselves.
	fenced, sources, fencing map[string]bool
}

// hostFlagsTTL is how old it may be.
const hostFlagsTTL = time.Second

// hostFlags gives the flags of hosts, read again if they are too old.
func (s *Leases) hostFlags(ctx context.Context) (hostFlags, error) {
	if f := s.cache.hostFlags(); f.isFresh(s.now()) {
		return f, nil
	}
	s.cache.reading.Lock()
	defer s.cache.reading.Unlock()
	now := s.now()
	if f := s.cache.hostFlags(); f.isFresh(now) { // another renewal has just read them
		return f, nil
	}
	f, err := s.readHostFlags(ctx)
	if err != nil {
		return hostFlags{}, err
	}
	f.at = now
	s.cache.setHostFlags(f)
	return f, nil
}

func (f *hostFlags) isFresh(now time.Time) bool {
	return !f.at.IsZero() && now.Sub(f.at) < hostFlagsTTL && !now.Before(f.at)
}

func (c *hostCache) hostFlags() hostFlags {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flags
}

func (c *hostCache) setHostFlags(f hostFlags) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flags = f
}

func (s *Leases) readHostFlags(ctx context.Context) (f hostFlags, err error) {
	open, err := s.store.Receipts().List(ctx, nil, compute.ReceiptFilter{Open: true}, record.Page{})
	if err != nil {
		return f, err
	}
	from, err := s.store.MoveSources(ctx)
	if err != nil {
		return f, err
	}
	groups, err := s.store.HostGroups().List(ctx, nil, compute.HostGroupFilter{}, record.Page{})
	if err != nil {
		return f, err
	}
	groups = slices.DeleteFunc(groups, func(g *compute.HostGroup) bool { return !g.SelfFence })
	f.fenced = setOf(open, func(o *compute.Receipt) string { return o.HostID })
	f.sources = setOf(from, func(id string) string { return id })
	f.fencing = setOf(groups, func(g *compute.HostGroup) string { return g.Name })
	return f, nil
}

func setOf[T any](all []T, key func(T) string) map[string]bool {
	out := make(map[string]bool, len(all))
	for _, one := range all {
		out[key(one)] = true
	}
	return out
}

// All reads which hosts live, by host: renewed within Suspect, and neither forced down nor fenced; hosts of clusters live while their
// cluster answers.
func (s *Liveness) All(ctx context.Context) (map[string]compute.HostLiveness, error) {
	hosts, err := s.store.Hosts().List(ctx, nil, compute.HostFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	return s.Of(ctx, hosts)
}

// Of is All for hosts that were read already.
func (s *Liveness) Of(ctx context.Context, hosts []*compute.Host) (map[string]compute.HostLiveness, error) {
	up, err := s.snapshot(ctx, nil)
	if err != nil {
		return nil, err
	}
	use, err := s.store.HostUse(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]compute.HostLiveness, len(hosts))
	for _, h := range hosts {
		l := s.cache.newest(up.stored[h.ID], h.ID)
		life := compute.HostLiveness{Up: up.isUp(h), RenewedAt: l.RenewedAt, Renewals: l.Renewals, HostUse: use[h.ID], Watchdog: l.Watchdog}
		life.Verdict, life.Suspected = s.cache.verdictFor(h.ID)
		out[h.ID] = life
	}
	return out, nil
}

// livenessView judges hosts by what was read at one time.
type livenessView struct {
	cache          *hostCache
	stored         map[string]compute.Lease
	failedClusters []string // clusters that do not answer
	at             time.Time
}

func (s *Liveness) snapshot(ctx context.Context, tx job.Tx) (*livenessView, error) {
	stored, err := s.store.Leases(ctx)
	if err != nil {
		return nil, err
	}
	clusters, err := s.store.Clusters().List(ctx, tx, compute.ClusterFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	l := &livenessView{cache: s.cache, stored: stored, at: s.now()}
	for _, c := range clusters {
		if c.Problem != "" {
			l.failedClusters = append(l.failedClusters, c.ID)
		}
	}
	return l, nil
}

func (l *livenessView) isUp(h *compute.Host) bool {
	switch {
	case h.ForcedDown || h.Revoked || h.Fenced || h.Lost:
		return false
	case h.ClusterID != "":
		return !slices.Contains(l.failedClusters, h.ClusterID)
	}
	return l.at.Sub(l.cache.newest(l.stored[h.ID], h.ID).RenewedAt) < compute.Suspect
}

// Up tells whether a host lives. Unavailable: who has just begun to listen cannot tell.
func (s *Liveness) Up(ctx context.Context, h *compute.Host) (bool, error) { return s.UpIn(ctx, nil, h) }

// UpIn is Up in a transaction.
func (s *Liveness) UpIn(ctx context.Context, tx job.Tx, h *compute.Host) (bool, error) {
	live, err := s.snapshot(ctx, tx)
	if err != nil || live.isUp(h) {
		return err == nil, err
	}
	return false, s.requireHeard(h)
}

// requireHeard is an error about a host that only seems to be down, for this process has not listened for long enough to have heard it.
func (s *Liveness) requireHeard(h *compute.Host) error {
	if h.Fenced || h.ForcedDown || h.Revoked || s.Listening() >= compute.Suspect {
		return nil
	}
	return problem.Unavailablef("host %s was not heard yet by a control plane that has just begun to listen", compute.OrID(h))
}
