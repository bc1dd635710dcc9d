package service

import (
	"context"
	"slices"
	"sync"
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

// livenessTracker is what this process heard of all hosts. Its times are this process's own, with the reading of the monotonic clock.
type livenessTracker struct {
	mu sync.Mutex
	// since is from when on hosts could be heard without a gap; deaf: just now they cannot be.
	since time.Time
	stale bool
	// looked is when the store was asked last by the loop.
	looked   time.Time
	lastSeen map[string]lastSeen
}

// lastSeen is the newest word of a host, here or as another process stored it.
type lastSeen struct {
	at       time.Time
	watchdog string
	// first is set while nothing was heard but what lay in the store when this process looked there first: when that renewal was
	// answered, by the clock of whoever did. at is no more than the time of that look then.
	first time.Time
	// count is the stored count of renewals that was seen last: another one is a word that somebody else heard.
	count int64
	// storedAt is when the newest renewal was answered here that is in the store, and storedDog the watchdog that it named.
	storedAt  time.Time
	storedDog string
}

func (e *livenessTracker) change(hostID string, do func(*lastSeen)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.lastSeen[hostID]
	do(&w)
	e.lastSeen[hostID] = w
}

// of gives the word of a host and from when on its silence counts; known is false where nothing can be said.
func (e *livenessTracker) of(hostID string) (w lastSeen, from time.Time, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, known = e.lastSeen[hostID]
	if from = w.at; from.Before(e.since) {
		from = e.since
	}
	return w, from, known && !e.stale
}

func (e *livenessTracker) lost() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stale = true
}

func (e *livenessTracker) drop(hostID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.lastSeen, hostID)
}

// take compares what is stored with what was seen of it before. mine tells whether this process wrote a lease.
func (e *livenessTracker) take(stored map[string]compute.Lease, mine func(compute.Lease) bool, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stale {
		e.stale, e.since = false, now
	}
	for id, l := range stored {
		w, seen := e.lastSeen[id]
		if seen && w.count == l.Renewals {
			continue
		}
		w.count, w.watchdog = l.Renewals, l.Watchdog
		if !mine(l) {
			if w.at, w.first = now, (time.Time{}); !seen {
				w.first = l.RenewedAt
			}
		}
		e.lastSeen[id] = w
	}
}

// Liveness tells which hosts live, by their leases, by what neighbours see and by their BMCs.
type Liveness struct {
	*serviceCore
	cache *hostCache
}

// Silence tells for how long this process has not heard of a host though it could have, on its own monotonic clock, and which hardware
// watchdog the newest renewal named. known is false of a host that never held a lease, and while the store does not answer.
func (s *Liveness) Silence(hostID string) (since time.Duration, watchdog string, known bool) {
	w, from, known := s.cache.heard.of(hostID)
	if !known {
		return 0, "", false
	}
	return s.now().Sub(from), w.watchdog, true
}

// Listen reads what other processes heard, before a fence counts a silence: this one may have stood still, and then it heard nothing.
func (s *Liveness) Listen(ctx context.Context) error {
	s.resume(false)
	return s.listen(ctx)
}

// resume has silence count anew if the store was not asked for too long; turn: the loop asks it now.
func (s *Liveness) resume(turn bool) {
	s.cache.heard.mu.Lock()
	defer s.cache.heard.mu.Unlock()
	now := s.now()
	gap := !s.cache.heard.looked.IsZero() && now.Sub(s.cache.heard.looked) > deafAfter
	if gap {
		s.cache.heard.since = now
	}
	if gap || turn {
		s.cache.heard.looked = now
	}
}

// Listening tells for how long this process has heard without a gap; 0: it hears nothing just now.
func (s *Liveness) Listening() time.Duration {
	s.cache.heard.mu.Lock()
	defer s.cache.heard.mu.Unlock()
	if s.cache.heard.stale {
		return 0
	}
	return s.now().Sub(s.cache.heard.since)
}

// Deaf tells whether nothing can be said of any host just now: the store does not answer, or was not asked yet.
func (s *Liveness) Deaf() bool {
	s.cache.heard.mu.Lock()
	defer s.cache.heard.mu.Unlock()
	return s.cache.heard.stale || s.cache.heard.looked.IsZero()
}

// listen reads what other processes heard.
func (s *Liveness) listen(ctx context.Context) error {
	stored, err := s.store.Leases(ctx)
	if err != nil {
		s.cache.heard.lost()
		return problem.Unavailablef("listen to hosts: %w", err)
	}
	s.cache.heard.take(stored, func(l compute.Lease) bool {
		own := s.cache.sessions.get(l.HostID).lease
		return own.Renewals == l.Renewals && own.RenewedAt.UnixMicro() == l.RenewedAt.UnixMicro()
	}, s.now())
	return nil
}

// keepListening is listen in a loop: a gap between its turns is one in which nothing was heard.
func (s *Liveness) keepListening(ctx context.Context) error {
	s.resume(true)
	return s.listen(ctx)
}

// persistLease writes a lease that others must see before its renewal is answered, unless they saw one of late that named the same watchdog: the
// host disarms it at the answer, and the store would have others believe in it.
func (s *Leases) persistLease(ctx context.Context, l compute.Lease) error {
	w, _, _ := s.cache.heard.of(l.HostID)
	if lag := l.RenewedAt.Sub(w.storedAt); !w.storedAt.IsZero() && lag >= 0 && lag <= leaseLag && w.storedDog == l.Watchdog {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	if err := s.store.SaveLeases(bounded, []compute.Lease{l}); err != nil {
		s.cache.heard.lost()
		return problem.Unavailablef("the lease of host %s could not be stored, so it is none: %w", compute.TruncateText(l.HostID), err)
	}
	s.stored([]compute.Lease{l})
	s.cache.sessions.with(l.HostID, func(h *hostSession) { h.fresh = h.fresh && h.lease != l })
	return nil
}

// stored notes which leases others see, and that their counts are no news here.
func (s *Leases) stored(leases []compute.Lease) {
	for _, l := range leases {
		s.cache.heard.change(l.HostID, func(w *lastSeen) {
			w.count = max(w.count, l.Renewals)
			if l.RenewedAt.After(w.storedAt) {
				w.storedAt, w.storedDog = l.RenewedAt, l.Watchdog
			}
		})
	}
}

// hostFlagsCache is what was read a moment ago of hosts of which there is something to say: a renewal that says nothing new must not cost a
// query.
type hostFlagsCache struct {
	mu sync.Mutex
	at time.Time
	// fenced hosts have an open receipt, sources have moves that go on or left something behind, fencing groups fence themselves.
	fenced, sources, fencing map[string]bool
}

// hostFlagsTTL is how old it may be.
const hostFlagsTTL = time.Second

// hostFlags gives the register, read again if it is too old.
func (s *Leases) hostFlags(ctx context.Context) (fenced, sources, fencing map[string]bool, err error) {
	r := &s.cache.flags
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := s.now(); r.at.IsZero() || now.Sub(r.at) >= hostFlagsTTL || now.Before(r.at) {
		if err := s.fill(ctx, r); err != nil {
			return nil, nil, nil, err
		}
		r.at = now
	}
	return r.fenced, r.sources, r.fencing, nil
}

func (s *Leases) fill(ctx context.Context, r *hostFlagsCache) error {
	open, err := s.store.Receipts().List(ctx, nil, compute.ReceiptFilter{Open: true}, record.Page{})
	if err != nil {
		return err
	}
	from, err := s.store.MoveSources(ctx)
	if err != nil {
		return err
	}
	groups, err := s.store.HostGroups().List(ctx, nil, compute.HostGroupFilter{}, record.Page{})
	if err != nil {
		return err
	}
	groups = slices.DeleteFunc(groups, func(g *compute.HostGroup) bool { return !g.SelfFence })
	r.fenced = setOf(open, func(o *compute.Receipt) string { return o.HostID })
	r.sources = setOf(from, func(id string) string { return id })
	r.fencing = setOf(groups, func(g *compute.HostGroup) string { return g.Name })
	return nil
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
		l := s.cache.sessions.newest(up.stored[h.ID], h.ID)
		life := compute.HostLiveness{Up: up.isUp(h), RenewedAt: l.RenewedAt, Renewals: l.Renewals, Servers: use[h.ID], Watchdog: l.Watchdog}
		life.Verdict, life.Suspected = s.cache.probes.verdictFor(h.ID)
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
	return l.at.Sub(l.cache.sessions.newest(l.stored[h.ID], h.ID).RenewedAt) < compute.Suspect
}

// Up tells whether a host lives. Unavailable: who has just begun to listen cannot tell.
func (s *Liveness) Up(ctx context.Context, h *compute.Host) (bool, error) {
	live, err := s.snapshot(ctx, nil)
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
