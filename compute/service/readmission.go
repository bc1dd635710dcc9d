package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// inFlight is how late after the fence a renewal may come that was sent before the power was cut.
const inFlight = 2 * time.Second

// hostStatus is how a host stands when it speaks.
type hostStatus int

const (
	// hostActive: it holds the lease, or takes it.
	hostActive hostStatus = iota
	// hostFenced: it is fenced, or came back from that, or was removed as lost.
	hostFenced
	// hostDraining: it is forced down, and has not told that its guests are stopped.
	hostDraining
)

// statusOf tells how a host stands. Who renews without a gap, and of whom there is nothing to say, costs no query.
func (s *Leases) statusOf(ctx context.Context, hostID string, k cachedHost, r compute.Renewal) (hostStatus, error) {
	flags, err := s.hostFlags(ctx)
	if err != nil {
		return hostActive, err
	}
	if !k.fenced && !k.forcedDown && !k.lost && !flags.fenced[hostID] && k.lease.BootID == r.BootID && !s.lapsed(hostID) {
		return hostActive, nil
	}
	h, err := s.store.Hosts().Get(ctx, nil, hostID)
	if err == nil && h.Fenced && !h.Lost {
		h, err = s.readmit(ctx, h, r)
	}
	if err != nil {
		return hostActive, err
	}
	s.cache.change(hostID, func(k *cachedHost) {
		k.fenced, k.forcedDown, k.unseen, k.lost = h.Fenced, h.ForcedDown, h.Unseen, h.Lost
	})
	switch {
	case h.Fenced, h.Lost:
		return hostFenced, nil
	case h.ForcedDown:
		return hostDraining, nil
	}
	return hostActive, nil
}

// endedLasts is for how long what a host tells of its guests may be from before they were ended.
const endedLasts = 30 * time.Second

// guestsMayHaveStopped tells whether guests of a host that are off may be so because we, or its silence, had them ended.
func (s *Leases) guestsMayHaveStopped(hostID string, k cachedHost, fencing bool) bool {
	w, now := k.heard, s.now()
	silent := fencing && !w.at.IsZero() && now.Sub(w.at) >= compute.SelfFenceKill-compute.RenewEvery // it counts from sending, and needs not wait for us
	if k.unseen || silent {
		s.cache.change(hostID, func(h *cachedHost) { h.endedAt = now })
		return true
	}
	return !k.endedAt.IsZero() && now.Sub(k.endedAt) < endedLasts
}

// lapsed tells whether a host was silent so long that somebody may have taken its silence for its end.
func (s *Leases) lapsed(hostID string) bool {
	w := s.cache.get(hostID).heard
	return !w.at.IsZero() && s.now().Sub(w.at) >= compute.Suspect
}

// publishLease shows others that a host speaks, before it is taken in.
func (s *Leases) publishLease(ctx context.Context, hostID, bootID string) error {
	k, now := s.cache.get(hostID), s.now()
	l := compute.Lease{HostID: hostID, BootID: bootID, RenewedAt: now, Renewals: max(k.heard.count, k.lease.Renewals) + 1}
	if err := s.store.SaveLeases(ctx, []compute.Lease{l}); err != nil {
		return problem.Unavailablef("the lease of host %s could not be stored, so it is none: %w", compute.TruncateText(hostID), err)
	}
	s.cache.markStored([]compute.Lease{l})
	s.cache.change(hostID, func(k *cachedHost) { k.hear(now, "") })
	return nil
}

// readmit looks whether a fenced host may be admitted again, or speaks against its fence; it gives the host as it is then.
func (s *Leases) readmit(ctx context.Context, h *compute.Host, r compute.Renewal) (*compute.Host, error) {
	receipt, err := s.Receipt(ctx, nil, h.ID)
	if problem.Is(err, problem.NotFound) {
		return s.store.Hosts().Get(ctx, nil, h.ID) // closed at this very moment
	}
	if err != nil {
		return nil, err
	}
	// The lost history may have readmitted the boot. So after a release its guests are not ended because of a receipt in the backup.
	former := receipt.Incarnation != ""
	contradicts := (receipt.Has(compute.PowerCut) || former) && r.BootID == receipt.BootID
	if contradicts && s.now().Sub(receipt.CreatedAt) <= inFlight {
		return h, nil
	}
	if !contradicts {
		if err := s.cleanup.reviveCleanUps(ctx, h.ID); err != nil {
			return nil, err
		}
		if why, err := s.fences.blockedReason(ctx, nil, h); err != nil || why != "" {
			return h, err
		}
	}
	var out *compute.Host
	err = s.change(ctx, func(tx job.Tx) (err error) {
		if contradicts {
			how := "the boot that was powered off renews its lease; its BMC may be another machine's"
			if former {
				how = "the boot that was fenced renews its lease, and the database was restored after the fence"
			}
			out, err = s.fences.Contradict(ctx, tx, h.ID, how)
			return err
		}
		out, err = s.fences.Admit(ctx, tx, h.ID, r.BootID)
		return err
	})
	if problem.Is(err, problem.Conflict) { // a move was first
		return s.store.Hosts().Get(ctx, nil, h.ID)
	}
	return out, err
}

// Admit closes the receipt of a host, if it has one, and gives the lease and the orders to a boot of it; no boot id: hosts that have
// none. problem.Conflict tells what keeps it out. tx is run again after record.ErrChanged.
func (s *Fences) Admit(ctx context.Context, tx job.Tx, hostID, bootID string) (*compute.Host, error) {
	h, receipt, err := s.closing(ctx, tx, hostID)
	if err != nil || receipt == nil {
		return h, err
	}
	if why, err := s.blockedReason(ctx, tx, h); err != nil || why != "" {
		if err == nil {
			err = problem.Conflictf("host %s is not admitted: %s", compute.OrID(h), why)
		}
		return nil, err
	}
	receipt.Closed, receipt.BackBootID = "admitted", bootID
	h.Unseen = true
	text := fmt.Sprintf("admitted again: fence %d is over", receipt.Epoch)
	if bootID == "" {
		err = s.noteHost(tx, hostID, record.Asker{}, text)
	} else {
		err = s.recordBoot(ctx, tx, h, bootID, text)
	}
	if err != nil {
		return nil, err
	}
	return h, s.closeReceipt(tx, h, receipt)
}

// Contradict closes the receipt of a host that turns out to live; how tells what shows that. Moves that have attached stay; others
// cannot go on. tx is run again after record.ErrChanged.
func (s *Fences) Contradict(ctx context.Context, tx job.Tx, hostID, how string) (*compute.Host, error) {
	h, receipt, err := s.closing(ctx, tx, hostID)
	if err != nil || receipt == nil {
		return h, err
	}
	receipt.Closed, receipt.BackBootID = "contradicted", receipt.BootID
	e := job.Event{Subject: compute.HostSubject(hostID), Type: "contact", Severity: "warning", Text: fmt.Sprintf(
		"fence %d is contradicted: %s: no move goes on by that fence", receipt.Epoch, how)}
	if err := s.jobs.Append(tx, e); err != nil {
		return nil, err
	}
	if h.Kind == compute.AgentHost { // beside whatever job of the host goes on
		j := &job.Job{Kind: compute.JobReadmit, Class: job.Background, Subject: compute.HostSubject(hostID)}
		if err := s.jobs.Insert(tx, j); err != nil {
			return nil, err
		}
	}
	return h, s.closeReceipt(tx, h, receipt)
}

// closing holds the open receipt of a host against moves that would use it; nil: it has none.
func (s *Fences) closing(ctx context.Context, tx job.Tx, hostID string) (*compute.Host, *compute.Receipt, error) {
	h, err := s.store.Hosts().Get(ctx, tx, hostID)
	if err != nil {
		return nil, nil, err
	}
	receipt, err := s.Receipt(ctx, tx, hostID)
	if problem.Is(err, problem.NotFound) {
		return h, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return h, receipt, s.store.UseReceipt(tx, receipt.ID)
}

func (s *Fences) closeReceipt(tx job.Tx, h *compute.Host, r *compute.Receipt) error {
	if err := s.saveClosed(tx, r); err != nil {
		return err
	}
	h.Fenced = false
	return s.saveHost(tx, h)
}

// saveClosed closes a receipt if nobody else did.
func (s *Fences) saveClosed(tx job.Tx, r *compute.Receipt) error {
	r.ClosedAt = s.now()
	return s.saveReceipt(tx, r)
}

func (s *serviceCore) saveReceipt(tx job.Tx, r *compute.Receipt) error {
	return conflictToChanged(s.store.Receipts().Save(tx, r))
}

// blockedReason tells what keeps a fenced host from being admitted; empty: nothing.
func (s *Fences) blockedReason(ctx context.Context, tx job.Tx, h *compute.Host) (string, error) {
	if h.ForcedDown {
		return "it is forced down", nil
	}
	for _, f := range []compute.MoveFilter{{SourceID: h.ID, Open: true}, {SourceID: h.ID, Uncleaned: true}} {
		found, err := s.store.Moves().List(ctx, tx, f, pageOf(1))
		switch {
		case err != nil:
			return "", err
		case len(found) > 0 && f.Open:
			return "server " + found[0].ServerID + " is being moved away from it", nil
		case len(found) > 0:
			return "it has not cleaned up what it had of server " + found[0].ServerID, nil
		}
	}
	running, err := s.store.Plans().List(ctx, tx, compute.PlanFilter{HostID: h.ID, State: compute.PlanRunning}, pageOf(1))
	if err != nil || len(running) == 0 {
		return "", err
	}
	return "plan " + running[0].ID + " is running", nil
}

// hold answers a host that is fenced, or came back from that: it shows its guests and cleans up, and nothing else.
func (s *Leases) hold(ctx context.Context, hostID string, r compute.Renewal) (compute.Renewed, error) {
	flags, err := s.hostFlags(ctx)
	if err != nil {
		return compute.Renewed{}, err
	}
	stop, err := s.doubt(ctx, hostID, r)
	if err != nil {
		return compute.Renewed{}, err
	}
	var k cachedHost
	s.cache.change(hostID, func(h *cachedHost) {
		if h.oursBoot != r.BootID {
			h.ours = nil
		}
		if r.HasGuests {
			h.ours, h.oursBoot = oursOf(r.Guests), r.BootID
		}
		// Once it is admitted everything is told anew, and looked at as after a start.
		h.inventory, h.guests, h.stopTold, h.stopped = false, false, stop, time.Time{}
		k = *h
	})
	if err := s.recordLocalActions(ctx, hostID, r.Did); err != nil {
		return compute.Renewed{}, err
	}
	out := compute.Renewed{Hold: true, Stop: stop, SelfFence: flags.fencing[k.group], Resend: k.ours == nil}
	if out.Clean, err = s.cleanup.owed(ctx, hostID); err != nil {
		return compute.Renewed{}, err
	}
	here, err := s.store.Servers().List(ctx, nil, compute.ServerFilter{HostID: hostID}, pageOf(0))
	if err != nil {
		return compute.Renewed{}, err
	}
	staying := map[string]bool{}
	for _, srv := range here {
		staying[srv.ID] = true
		if _, told := out.Clean[srv.ID]; !told && k.ours[srv.ID] {
			out.Clean[srv.ID] = compute.Clean{Do: compute.CleanKeep, Epoch: srv.Epoch}
		}
	}
	return out, s.cleanup.judgeStrays(ctx, hostID, k.ours, staying, out.Clean)
}

// doubt takes in that a host that is held speaks. The boot that was fenced must end its guests, unless it has told that none runs;
// until then, or until another boot speaks, it keeps the receipt from being used.
func (s *Leases) doubt(ctx context.Context, hostID string, r compute.Renewal) (stop bool, err error) {
	receipt, err := s.Receipt(ctx, nil, hostID)
	if err != nil {
		return false, ignoreNotFound(err) // it was closed at this very moment
	}
	now, same := s.now(), r.BootID == receipt.BootID
	ended := same && r.Stopped && s.cache.get(hostID).stopTold
	speaks := same && !receipt.Has(compute.Acknowledged) && !ended
	stop = speaks && receipt.Incarnation == ""
	other := false
	if !same {
		if other, err = s.otherBootSpeaks(ctx, receipt, r.BootID); err != nil {
			return false, err
		}
	}
	switch {
	case ended && !receipt.Has(compute.Acknowledged):
	case !same && (other || !receipt.HeardAt.IsZero()):
	case speaks && now.Sub(receipt.CreatedAt) > inFlight && now.Sub(receipt.HeardAt) >= compute.HeardEvery:
	default:
		return stop, nil
	}
	return stop, s.change(ctx, func(tx job.Tx) error {
		receipt, err := s.store.Receipts().Get(ctx, tx, receipt.ID)
		if err != nil || !receipt.Open() {
			return err
		}
		text := ""
		switch {
		case ended:
			receipt.Proofs = append(receipt.Proofs, compute.Proof{Evidence: compute.Acknowledged, Text: "it spoke again, was told to stop its guests, and told that none runs", At: now})
			text = "it has told that none of its guests runs"
		case !same:
			if receipt.HeardAt = (time.Time{}); other {
				if receipt.OtherBootID != r.BootID {
					text = fmt.Sprintf("another boot of the host speaks during fence %d, and tells guests: it is %s", receipt.Epoch, r.BootID)
				}
				receipt.OtherBootID, receipt.OtherHeardAt = r.BootID, now
			}
		default:
			if receipt.HeardAt.IsZero() {
				text = fmt.Sprintf("the boot that fence %d ended speaks: it is told to end its guests, and no server is begun elsewhere before it has told that none runs", receipt.Epoch)
			}
			receipt.HeardAt = now
		}
		if err := s.saveReceipt(tx, receipt); err != nil || text == "" {
			return err
		}
		return s.jobs.Append(tx, job.Event{Subject: compute.HostSubject(hostID), Type: "contact", Severity: "warning", Text: text})
	})
}

// otherBootSpeaks tells whether a report of a boot other than the fenced one must be stored. The boot must have reported guests. The
// last stored report must be older than heardEvery, or older than a proof that the host is off.
func (s *Leases) otherBootSpeaks(ctx context.Context, receipt *compute.Receipt, bootID string) (bool, error) {
	if receipt.OtherBootID == bootID && s.now().Sub(receipt.OtherHeardAt) < compute.HeardEvery && !receipt.OtherBootProvenOff(time.Time{}) {
		return false, nil
	}
	reports, err := s.store.GuestReports(ctx, nil, compute.GuestReportFilter{HostID: receipt.HostID})
	return err == nil && slices.ContainsFunc(reports, func(g compute.GuestReport) bool { return g.BootID == bootID }), err
}

func oursOf(guests []compute.Guest) map[string]bool {
	out := map[string]bool{}
	for _, g := range guests {
		if g.Ours {
			out[g.ID] = true
		}
	}
	return out
}

// stop answers a host that is forced down and lives: it keeps its lease until it has told that its guests are stopped.
func (s *Leases) stop(ctx context.Context, hostID string, r compute.Renewal) (compute.Renewed, error) {
	k := s.cache.get(hostID)
	rebooted := k.lease.BootID != r.BootID
	if lapsed := s.lapsed(hostID); rebooted || lapsed || r.Inventory != nil {
		fenced, err := s.applyRenewal(ctx, hostID, r, k.unlooked, rebooted, lapsed)
		if err != nil {
			return compute.Renewed{}, err
		}
		if fenced {
			return s.hold(ctx, hostID, r)
		}
	}
	if err := s.recordLocalActions(ctx, hostID, r.Did); err != nil {
		return compute.Renewed{}, err
	}
	out := compute.Renewed{Stop: true}
	if err := s.count(ctx, hostID, r, &out); err != nil || !r.Stopped || !k.stopTold || rebooted {
		return out, err
	}
	s.cache.change(hostID, func(h *cachedHost) { h.stopped = s.now() })
	err := s.fences.ensureForcedDown(ctx, hostID)
	if problem.Is(err, problem.Conflict) { // its group requires more
		return out, nil
	}
	if err != nil {
		return compute.Renewed{}, err
	}
	if may, err := s.MayAct(ctx, hostID); err != nil || may {
		return out, err // it was taken back at this very moment
	}
	return s.hold(ctx, hostID, r)
}

// MayAct tells whether a host may get orders. It may not while it is fenced or forced down, or while the database is held.
func (s *Leases) MayAct(ctx context.Context, hostID string) (bool, error) {
	if s.isHeld() {
		return false, nil
	}
	h, err := s.store.Hosts().Get(ctx, nil, hostID)
	if err != nil {
		return false, err
	}
	return !h.Fenced && !h.ForcedDown && !h.Lost, nil
}
