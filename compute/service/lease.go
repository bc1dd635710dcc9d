package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

const (
	// flushEvery is how late a lease may reach the store.
	flushEvery = time.Second
	// rowTTL is how late another process's word on a host (revoked, say) may reach this one.
	rowTTL = 5 * time.Second
	// resendInterval is after how long a host is asked for everything again, so that what could not be mended is tried again.
	resendInterval = 5 * time.Minute
)

// Leases is the service of renewals: what hosts tell and what they are told.
type Leases struct {
	*serviceCore
	cache    *hostCache
	liveness *Liveness
	reports  *GuestReports
	fences   *Fences
	cleanup  *hostCleanup
	orphans  *orphanedDisks
	observer *Observer
	actions  *Actions
	detector *failureDetector
}

func newLeases(c *serviceCore, cache *hostCache, s *Services) *Leases {
	return &Leases{serviceCore: c, cache: cache, liveness: s.Liveness, reports: s.GuestReports, fences: s.Fences, observer: s.Observer, actions: s.Actions,
		cleanup:  &hostCleanup{serviceCore: c, cache: cache, hosts: s.Hosts, reports: s.GuestReports},
		orphans:  &orphanedDisks{serviceCore: c, liveness: s.Liveness},
		detector: &failureDetector{serviceCore: c, cache: cache, liveness: s.Liveness, fences: s.Fences}}
}

// Allow tells whether the host with this certificate may speak: NotFound or Forbidden (revoked, or made before a revocation that
// was taken back). It is cheap.
func (s *Leases) Allow(ctx context.Context, hostID, serial string, issued time.Time) error {
	h, err := s.known(ctx, hostID)
	switch {
	case err != nil:
		return err
	case h.revoked:
		return revokedCertificateError(hostID)
	case !h.revokedAt.IsZero() && serial != h.serial && !issued.After(h.revokedAt):
		return problem.Forbiddenf("the certificate of host %s is from before its revocation: remove host.crt in its state directory and join again", hostID)
	}
	return nil
}

// known is what this process knows of a host, its row read again now and then.
func (s *Leases) known(ctx context.Context, hostID string) (cachedHost, error) {
	h := s.cache.get(hostID)
	if now := s.now(); !h.readAt.IsZero() && now.Sub(h.readAt) < rowTTL {
		return h, nil
	}
	row, err := s.store.Hosts().Get(ctx, nil, hostID)
	if problem.Is(err, problem.NotFound) {
		s.cache.drop(hostID)
		return cachedHost{}, problem.NotFoundf("host %s is not known: it has to join", compute.TruncateText(hostID))
	}
	if err != nil {
		return cachedHost{}, err
	}
	s.cache.change(hostID, func(k *cachedHost) {
		k.readAt, k.revoked, k.name, k.serial, k.revokedAt = s.now(), row.Revoked, row.Name, row.Serial, row.RevokedAt
		k.group, k.fenced, k.forcedDown, k.unseen, k.lost, k.strays, k.unlooked = row.Group, row.Fenced, row.ForcedDown, row.Unseen, row.Lost, row.Strays, row.Unlooked
		if k.lease.BootID != row.BootID {
			k.lease, k.inventory, k.guests = compute.Lease{HostID: hostID, BootID: row.BootID, Renewals: k.lease.Renewals}, false, false
		}
		h = *k
	})
	return h, nil
}

// maxTold bounds what one renewal may bring.
const maxTold = 10000

// Renew keeps a host's lease and takes in what it tells. A new boot id is admitted and gets the open orders; not so that of a host
// that is fenced, or forced down (see standing).
func (s *Leases) Renew(ctx context.Context, hostID, serial string, r compute.Renewal) (compute.Renewed, error) {
	if r.BootID == "" || len(r.BootID) > 64 || len(r.Guests) > maxTold || len(r.Did) > maxTold || len(r.Cleaned) > maxTold {
		return compute.Renewed{}, problem.Invalidf("renewal of host %s: a boot id of at most 64 characters and at most %d guests, deeds and clean-ups are taken", hostID, maxTold)
	}
	h, err := s.known(ctx, hostID)
	if err != nil {
		return compute.Renewed{}, err
	}
	if h.revoked {
		return compute.Renewed{}, revokedCertificateError(hostID)
	}
	if r.HasGuests { // before it is judged how the host stands: what it tells may hold moves of others
		if err := s.reports.takeGuests(ctx, hostID, r.BootID, r.Guests); err != nil {
			return compute.Renewed{}, err
		}
	}
	if s.isHeld() {
		return s.renewHeld(ctx, hostID, r)
	}
	for _, c := range r.Cleaned {
		if err := s.orphans.cleaned(ctx, hostID, c); err != nil {
			return compute.Renewed{}, err
		}
	}
	if err := s.cleanup.applyCleanup(ctx, hostID, r.Cleaned); err != nil {
		return compute.Renewed{}, err
	}
	stands, err := s.statusOf(ctx, hostID, h, r)
	answer := s.renew
	switch {
	case err != nil:
		return compute.Renewed{}, err
	case stands == hostFenced:
		answer = s.hold
	case stands == hostDraining:
		answer = s.stop
	}
	out, err := answer(ctx, hostID, r)
	out.Now, out.QuarantineDays = s.now(), s.opts.QuarantineDays
	return out, err
}

// isHeld tells whether the database is held.
func (c *serviceCore) isHeld() bool { return c.opts.Held != nil && c.opts.Held() != nil }

// Incarnation is the id of the database's current incarnation; empty: it is not known.
func (c *serviceCore) Incarnation() string {
	if c.opts.Incarnation == nil {
		return ""
	}
	return c.opts.Incarnation()
}

// renewHeld does the work of Renew while the database is held. The host keeps its lease, and its report of guests is stored. It gets
// no instructions about guests, because the records may be older than the host.
func (s *Leases) renewHeld(ctx context.Context, hostID string, r compute.Renewal) (compute.Renewed, error) {
	out := compute.Renewed{Held: true, Now: s.now()}
	err := s.count(ctx, hostID, r, &out)
	return out, err
}

// renew is Renew of a host that is neither fenced nor forced down.
func (s *Leases) renew(ctx context.Context, hostID string, r compute.Renewal) (compute.Renewed, error) {
	h := s.cache.get(hostID)
	flags, err := s.hostFlags(ctx)
	if err != nil {
		return compute.Renewed{}, err
	}
	rebooted, ended := h.lease.BootID != r.BootID, s.guestsMayHaveStopped(hostID, h, flags.fencing[h.group])
	var left openObservations
	unlooked := h.unlooked
	if r.HasGuests { // before the new boot is admitted: if this is cut off, the next renewal is the first of its boot again
		if left, unlooked, err = s.observer.observe(ctx, hostID, r.Guests, rebooted || h.started || ended, h.unlooked); err != nil {
			return compute.Renewed{}, err
		}
	}
	if lapsed := s.lapsed(hostID); rebooted || lapsed || r.Inventory != nil || r.Name != "" && r.Name != h.name || h.unseen && r.HasGuests ||
		!slices.Equal(unlooked, h.unlooked) {
		fenced, err := s.applyRenewal(ctx, hostID, r, unlooked, rebooted, lapsed)
		if err != nil {
			return compute.Renewed{}, err
		}
		if fenced { // at this very moment
			return s.hold(ctx, hostID, r)
		}
	}
	if err := s.recordLocalActions(ctx, hostID, r.Did); err != nil {
		return compute.Renewed{}, err
	}
	out, err := s.renewed(ctx, hostID, r, left)
	out.Resend = out.Resend || left.again() || len(unlooked) > 0 || r.HasGuests && compute.HasUnsettledGuests(out.Clean)
	return out, err
}

// renewed counts the renewal at the time at which it is answered.
func (s *Leases) renewed(ctx context.Context, hostID string, r compute.Renewal, left openObservations) (out compute.Renewed, err error) {
	if r.HasGuests {
		if out.Servers, err = s.wanted(ctx, hostID, left); err != nil {
			return out, err
		}
	}
	flags, err := s.hostFlags(ctx)
	if err != nil {
		return out, err
	}
	if out.Clean, err = s.cleanup.cleanUps(ctx, hostID, r, flags.sources[hostID], out.Servers); err != nil {
		return out, err
	}
	if err := s.orphans.add(ctx, hostID, flags, out.Clean); err != nil {
		return out, err
	}
	out.Look = s.cache.lookFor(hostID)
	if len(r.Neighbours) > 0 {
		s.cache.recordProbe(hostID, r.Neighbours, s.now())
	}
	return out, s.count(ctx, hostID, r, &out)
}

// count keeps the lease of a renewal that is answered now. A lease that other processes cannot see in the store does not count.
func (s *Leases) count(ctx context.Context, hostID string, r compute.Renewal, out *compute.Renewed) error {
	group := s.cache.get(hostID).group
	flags, err := s.hostFlags(ctx)
	if err != nil {
		return err
	}
	out.SelfFence = flags.fencing[group]
	watchdog := ""
	if out.SelfFence { // told otherwise, it disarms it
		watchdog = r.Watchdog
	}
	now := s.now()
	var lease compute.Lease
	s.cache.change(hostID, func(h *cachedHost) {
		if h.lease.BootID != r.BootID {
			h.inventory, h.guests, h.started = false, false, true
		}
		if r.HasGuests && !out.Stop {
			h.started, h.toldAt = false, now
		}
		h.lease = compute.Lease{HostID: hostID, BootID: r.BootID, RenewedAt: now, Renewals: max(h.lease.Renewals, h.heard.count) + 1, Watchdog: watchdog}
		h.fresh, h.stopTold = true, out.Stop
		if !out.Stop {
			h.stopped = time.Time{}
		}
		h.inventory = h.inventory || r.Inventory != nil
		h.guests = h.guests || r.HasGuests
		out.Resend = !h.inventory || !h.guests || now.Sub(h.toldAt) > resendInterval
		lease = h.lease
		h.hear(now, watchdog)
	})
	return s.persistLease(ctx, lease)
}

// applyRenewal writes what is new of a host into its row. Of a fenced host applyRenewal takes nothing, and returns fenced. A host whose lease had
// lapsed writes its row in any case, and its lease before: of that and of a receipt by its silence one comes first.
func (s *Leases) applyRenewal(ctx context.Context, hostID string, r compute.Renewal, unlooked []string, rebooted, lapsed bool) (fenced bool, err error) {
	if rebooted || lapsed {
		if err := s.publishLease(ctx, hostID, r.BootID); err != nil {
			return false, err
		}
	}
	err = s.change(ctx, func(tx job.Tx) error {
		h, err := s.store.Hosts().Get(ctx, tx, hostID)
		if err != nil {
			return err
		}
		if fenced = h.Fenced; fenced {
			return nil
		}
		changed := lapsed
		if rebooted && h.BootID != r.BootID {
			changed = true
			if err := s.recordBoot(ctx, tx, h, r.BootID, "a new boot of the host holds the lease"); err != nil {
				return err
			}
		}
		if r.Name != "" && len(r.Name) <= 255 && r.Name != h.Name {
			changed, h.Name = true, r.Name
		}
		if r.Inventory != nil && !compute.SameInventory(h.Inventory, *r.Inventory) {
			changed, h.Inventory = true, *r.Inventory
		}
		if h.Unseen && r.HasGuests && !h.ForcedDown {
			changed, h.Unseen = true, false
		}
		if !slices.Equal(h.Unlooked, unlooked) {
			changed, h.Unlooked = true, unlooked
		}
		if !changed {
			return nil
		}
		return s.saveHost(tx, h)
	})
	if err == nil {
		s.cache.expireRow(hostID)
	}
	return fenced, err
}

// recordBoot gives a boot of a host the lease and the orders. No guest of a former boot runs any more: their reports go.
func (c *serviceCore) recordBoot(ctx context.Context, tx job.Tx, h *compute.Host, bootID, text string) error {
	h.BootID = bootID
	former, err := c.store.GuestReports(ctx, tx, compute.GuestReportFilter{HostID: h.ID})
	if err != nil {
		return err
	}
	for _, g := range former {
		if g.BootID == bootID {
			continue
		}
		if err := c.store.DropGuestReport(tx, h.ID, g.ServerID); err != nil {
			return err
		}
	}
	if err := c.store.MoveOrders(tx, h.ID, bootID); err != nil {
		return err
	}
	return c.noteHost(tx, h.ID, record.Asker{}, text)
}

// recordLocalActions writes what a host did on its own on the timelines of its servers.
func (s *Leases) recordLocalActions(ctx context.Context, hostID string, did []compute.LocalAction) error {
	if len(did) == 0 {
		return nil
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		for _, d := range did {
			srv, err := s.store.Servers().Get(ctx, tx, d.ServerID)
			if problem.Is(err, problem.NotFound) || err == nil && srv.HostID != hostID {
				continue // a host speaks for its own servers only
			}
			if err != nil {
				return err
			}
			e := job.Event{Subject: compute.Subject(srv.ID), Type: "contact", Text: "host: " + oneLine(d.Text), Severity: "info", At: d.At}
			if err := s.jobs.Append(tx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

func oneLine(s string) string {
	return compute.TruncateText(strings.Join(strings.Fields(s), " "))
}

// wanted lists what should be on a host. Nobody else than a job switches a server in a session: a rescue system that only
// starts is never unlocked.
func (s *Leases) wanted(ctx context.Context, hostID string, left openObservations) (map[string]compute.WantedServer, error) {
	list, err := s.store.Servers().List(ctx, nil, compute.ServerFilter{HostID: hostID}, pageOf(0))
	if err != nil {
		return nil, err
	}
	out := make(map[string]compute.WantedServer, len(list))
	for _, srv := range list {
		_, undecided := left[srv.ID]
		// A host that starts a guest by itself would give up the memory that somebody saved to a file.
		busy := undecided || srv.Task != compute.NoTask || !srv.IsSteady() || srv.InSession() || srv.Pause.Reason == compute.SavedToFile
		out[srv.ID] = compute.WantedServer{Power: srv.Wanted, Epoch: srv.Epoch, Busy: busy}
	}
	return out, nil
}

// FlushLeases writes the leases that were renewed since the last time.
func (s *Leases) FlushLeases(ctx context.Context) error {
	due := s.cache.takeDueLeases()
	if len(due) == 0 {
		return nil
	}
	slices.SortFunc(due, func(a, b compute.Lease) int { return strings.Compare(a.HostID, b.HostID) })
	if err := s.store.SaveLeases(ctx, due); err != nil {
		s.cache.requeueLeases(due)
		return err
	}
	s.cache.markStored(due)
	return nil
}

// RunLeases is KeepLeases for who does the work that it finds: it tends what is due as well (see tend).
func (s *Leases) RunLeases(ctx context.Context, onError func(error)) {
	var tending sync.WaitGroup
	tending.Go(func() { s.each(ctx, onError, s.tend) })
	s.KeepLeases(ctx, onError) // in time, however long it takes to tend
	tending.Wait()
}

// tend does the periodic work that is due, unless the database is held.
func (s *Leases) tend(ctx context.Context) error {
	if s.isHeld() {
		return nil
	}
	return errors.Join(s.actions.Tend(ctx), s.fences.tend(ctx), s.detector.tend(ctx))
}

// KeepLeases writes leases in batches and hears those of other processes until ctx ends. onError is told of what failed; it is no end.
func (s *Leases) KeepLeases(ctx context.Context, onError func(error)) {
	s.each(ctx, onError, s.FlushLeases, s.liveness.keepListening)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushEvery)
	defer cancel()
	if err := s.FlushLeases(bounded); err != nil {
		onError(err)
	}
}

// each does all of these each flushEvery.
func (s *Leases) each(ctx context.Context, onError func(error), all ...func(context.Context) error) {
	turn := time.NewTicker(flushEvery)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
		for _, do := range all {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				onError(err)
			}
		}
	}
}
