package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Receipt reads the open receipt of a host; problem.NotFound if it has none.
func (s *serviceCore) Receipt(ctx context.Context, tx job.Tx, hostID string) (*compute.Receipt, error) {
	found, err := s.store.Receipts().List(ctx, tx, compute.ReceiptFilter{HostID: hostID, Open: true}, pageOf(1))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, problem.NotFoundf("host %s has no open receipt of a fence", hostID)
	}
	return found[0], nil
}

// Fences is the service of fencing receipts: the evidence that hosts are off, and its end.
type Fences struct {
	*serviceCore
	cache    *hostCache
	liveness *Liveness
	reports  *GuestReports
}

// List reads a page.
func (s *Fences) List(ctx context.Context, f compute.ReceiptFilter, p record.Page) ([]*compute.Receipt, error) {
	return s.store.Receipts().List(ctx, nil, f, p)
}

// Give writes the receipt of a host that was fenced by these proofs. An open receipt is returned, with the proofs that the
// group requires besides; a former receipt needs all proofs anew. problem.Conflict
// says what the host's group requires and is missing, or which proof a word of the host speaks against. tx is run again after
// record.ErrChanged.
func (s *Fences) Give(ctx context.Context, tx job.Tx, hostID string, proofs []compute.Proof, by, words string) (*compute.Receipt, error) {
	r, err := s.Receipt(ctx, tx, hostID)
	if err == nil {
		if r.Former() {
			return r, s.proveAnew(ctx, tx, r, proofs, by, words)
		}
		return r, s.proveAgain(ctx, tx, r, proofs)
	}
	if !problem.Is(err, problem.NotFound) {
		return r, err
	}
	h, err := s.store.Hosts().Get(ctx, tx, hostID)
	if err != nil {
		return nil, err
	}
	if err := s.acceptEvidence(ctx, h, proofs); err != nil {
		return nil, err
	}
	if proofs, err = s.complete(ctx, tx, h, proofs); err != nil {
		return nil, err
	}
	h.Fences++
	h.Fenced = true
	r = &compute.Receipt{Record: record.Record{ID: uuid.NewString(), CreatedAt: s.now()}, HostID: hostID, BootID: h.BootID, Epoch: h.Fences, Proofs: proofs,
		By: by, Words: words}
	if err := conflictToChanged(s.store.Receipts().Insert(tx, r)); err != nil { // another one was given at this very moment
		return nil, err
	}
	if err := s.saveHost(tx, h); err != nil {
		return nil, err
	}
	// What the host says next is looked at in the store, whether or not this is committed.
	s.cache.change(hostID, func(k *cachedHost) { k.fenced = true })
	return r, s.noteFenced(tx, hostID, "fenced", proofs, by)
}

func (s *Fences) noteFenced(tx job.Tx, hostID, what string, proofs []compute.Proof, by string) error {
	var said []string
	for _, p := range proofs {
		said = append(said, string(p.Evidence)+" ("+p.Text+")")
	}
	return s.noteHost(tx, hostID, record.Asker{User: by}, what+": "+strings.Join(said, "; "))
}

// proveAnew puts proofs from after the release in place of those of a former receipt. One of them must show that the machine itself
// was off, because nobody knows the boot that ran last. problem.Conflict says what is missing.
func (s *Fences) proveAnew(ctx context.Context, tx job.Tx, r *compute.Receipt, proofs []compute.Proof, by, words string) error {
	h, err := s.store.Hosts().Get(ctx, tx, r.HostID)
	if err != nil {
		return err
	}
	if err := s.acceptEvidence(ctx, h, proofs); err != nil {
		return err
	}
	// The release saved the receipt, so it is not older than that.
	fresh := slices.DeleteFunc(slices.Clone(proofs), func(p compute.Proof) bool { return !p.At.After(r.UpdatedAt) })
	if !slices.ContainsFunc(fresh, compute.Proof.EndsAllBoots) {
		return problem.Conflictf("%s, and no cut of its power and no attestation is newer than that", r.ExplainFormer(compute.OrID(h)))
	}
	if fresh, err = s.complete(ctx, tx, h, fresh); err != nil {
		return err
	}
	r.Proofs, r.Incarnation, r.HeardAt, r.By, r.Words = fresh, "", time.Time{}, by, words
	if err := s.saveReceipt(tx, r); err != nil {
		return err
	}
	return s.noteFenced(tx, h.ID, "fenced again after the release of the restored database", fresh, by)
}

// proveAgain adds proofs to an open receipt that all boots which spoke since are off. problem.Conflict: one of them spoke after the
// proofs.
func (s *Fences) proveAgain(ctx context.Context, tx job.Tx, r *compute.Receipt, proofs []compute.Proof) error {
	suffices, err := s.Suffices(ctx, tx, r)
	if err != nil || suffices || len(proofs) == 0 {
		return err
	}
	if r.Doubted() {
		if !r.ApplyProofs(proofs) {
			return nil
		}
		return s.saveReceipt(tx, r)
	}
	fresh := slices.DeleteFunc(slices.Clone(proofs), func(p compute.Proof) bool {
		return !p.EndsAllBoots() || !p.At.After(r.OtherHeardAt.Add(compute.HeardEvery))
	})
	if len(fresh) == 0 {
		return problem.Conflictf("host %s is not proven off again: its boot %s was heard at %s, and no cut of its power and no attestation is newer than that",
			r.HostID, r.OtherBootID, record.Moment(r.OtherHeardAt))
	}
	r.Proofs = append(r.Proofs, fresh...)
	return s.saveReceipt(tx, r)
}

// Suffices tells whether an open receipt proves every reported guest of its host off. The fenced boot must not have spoken again,
// and no other boot may have reported a guest that is not proven off since. A former receipt does not suffice.
func (s *Fences) Suffices(ctx context.Context, tx job.Tx, r *compute.Receipt) (bool, error) {
	if !r.Proves() {
		return false, nil
	}
	reports, err := s.store.GuestReports(ctx, tx, compute.GuestReportFilter{HostID: r.HostID})
	return err == nil && !slices.ContainsFunc(reports, func(g compute.GuestReport) bool { return !r.AnswersFor(g) }), err
}

// acceptEvidence refuses a proof that the host is off, if it was heard after that.
func (s *Fences) acceptEvidence(ctx context.Context, h *compute.Host, proofs []compute.Proof) error {
	if err := s.liveness.Listen(ctx); err != nil {
		return err
	}
	heard, _, known := s.cache.hearing(h.ID)
	spoke := heard.at
	if !heard.first.IsZero() { // that this process looked for the first time is no word of the host
		spoke = heard.first.Add(-leaseLag)
	}
	for i := range proofs {
		p := &proofs[i]
		if p.At.IsZero() {
			p.At = s.now()
		}
		off := p.Evidence == compute.PowerCut || p.Evidence == compute.Attested || p.Evidence == compute.SelfFenced
		if known && off && spoke.After(p.At) {
			return problem.Conflictf("host %s renewed its lease after it was said to be off (%s: %s): that is no proof; its BMC may be another machine's",
				compute.OrID(h), p.Evidence, p.Text)
		}
	}
	return nil
}

// complete adds what is known besides to proofs that are not all that the host's group requires.
func (s *Fences) complete(ctx context.Context, tx job.Tx, h *compute.Host, proofs []compute.Proof) ([]compute.Proof, error) {
	g, err := s.Group(ctx, tx, h)
	if err != nil {
		return nil, err
	}
	missing := compute.MissingEvidence(g, proofs)
	if len(missing) > 0 {
		more, _, err := s.evidence(ctx, h)
		if err != nil {
			return nil, err
		}
		proofs = slices.Clone(proofs)
		for _, p := range more {
			if slices.Contains(missing, p.Evidence) {
				proofs = append(proofs, p)
			}
		}
		missing = compute.MissingEvidence(g, proofs)
	}
	switch {
	case len(missing) > 0:
		return nil, problem.Conflictf("host %s is not fenced: its group %s requires evidence of %s besides; run: salvor fence %s", compute.OrID(h), g.Name, wordsOf(missing), compute.OrID(h))
	case len(proofs) == 0:
		return nil, problem.Conflictf("host %s is not fenced: nothing proves that it is off; run: salvor fence %s", compute.OrID(h), compute.OrID(h))
	}
	return proofs, nil
}

// Ensure gives the open receipt of a host, unless that is a former one, or one by what is known now: an operator's word that it is down once its lease has
// lapsed, its own acknowledgement, or the lapse of a self-fence. Else problem.Conflict says what is missing. The host must have been
// read in tx, which is run again after record.ErrChanged.
func (s *Fences) Ensure(ctx context.Context, tx job.Tx, h *compute.Host) (*compute.Receipt, error) {
	r, err := s.Receipt(ctx, tx, h.ID)
	if err == nil && !r.Former() || err != nil && !problem.Is(err, problem.NotFound) {
		return r, err
	}
	proofs, why, err := s.evidence(ctx, h)
	if err != nil {
		return nil, err
	}
	if len(proofs) == 0 {
		if !strings.Contains(why, "run: ") {
			why += "; run: salvor fence " + compute.OrID(h)
		}
		return nil, problem.Conflictf("host %s is not fenced: %s", compute.OrID(h), why)
	}
	by, words := "", ""
	if h.ForcedDown {
		by, words = h.ForcedDownBy, "forced down"
	}
	return s.Give(ctx, tx, h.ID, proofs, by, words)
}

// evidence lists what is known of a host's end without asking anybody; why tells what is missing where that is nothing.
func (s *Fences) evidence(ctx context.Context, h *compute.Host) (proofs []compute.Proof, why string, err error) {
	if err := s.liveness.listen(ctx); err != nil {
		return nil, "", err
	}
	silent, watchdog, leased := s.liveness.Silence(h.ID)
	lapsed, ago := leased && silent >= compute.Suspect, "its lease lapsed, it was heard last "+silent.Round(time.Second).String()+" ago"
	if !leased || h.Kind != compute.AgentHost {
		lapsed, ago = h.Kind != compute.AgentHost || s.liveness.Listening() >= compute.Suspect, "it holds no lease"
	}
	if h.AnsweredItsCluster() {
		lapsed = false
	}
	add := func(e compute.Evidence, format string, args ...any) {
		proofs = append(proofs, compute.Proof{Evidence: e, Text: fmt.Sprintf(format, args...), At: s.now()})
	}
	told := s.cache.get(h.ID)
	var against []compute.Contradiction
	if h.ForcedDown && lapsed {
		if against, err = s.Contradictions(ctx, h); err != nil {
			return nil, "", err
		}
	}
	if h.ForcedDown && lapsed && len(against) == 0 {
		add(compute.Attested, "forced down by %s; %s", h.ForcedDownBy, ago)
	}
	if h.ForcedDown && !told.stopped.IsZero() && told.lease.BootID == h.BootID {
		add(compute.Acknowledged, "it was told to stop its guests, and told that none runs")
	}
	if leased && watchdog != "" && silent >= compute.SelfFenceEvidence {
		add(compute.SelfFenced, "silent for %s with watchdog %s armed to reset it after %s", silent.Round(time.Second), watchdog, compute.SelfFenceWatchdog)
	}
	switch {
	case len(proofs) > 0:
	case len(against) > 0:
		why = againstForcedDown(h, against)
	case h.AnsweredItsCluster():
		why = "its cluster reached it when it was last asked: it lives"
	case h.ForcedDown && leased:
		why = "it still held its lease " + silent.Round(time.Second).String() + " ago; it is told to stop its guests, and has not told that none runs"
	case h.ForcedDown:
		why = "this control plane has listened for " + s.liveness.Listening().Round(time.Second).String() + " only"
	case !lapsed && leased:
		why = "it holds its lease"
	case leased && watchdog == "":
		why = ago + ", but its newest renewal named no armed watchdog: that is a suspicion, no proof"
	case leased:
		why = ago + "; with its watchdog that is proof after " + compute.SelfFenceEvidence.String()
	default:
		why = "nothing proves that it is off"
	}
	return proofs, why, nil
}

// tend gives hosts that are forced down their receipt once their lease has lapsed.
func (s *Fences) tend(ctx context.Context) error {
	down, err := s.store.Hosts().List(ctx, nil, compute.HostFilter{ForcedDown: true}, record.Page{})
	if err != nil {
		return err
	}
	for _, h := range down {
		if silent, _, leased := s.liveness.Silence(h.ID); h.Fenced || h.Kind == compute.IronicHost || leased && silent < compute.Suspect {
			continue
		}
		if err := s.ensureForcedDown(ctx, h.ID); err != nil && !problem.Is(err, problem.Conflict) {
			return err
		}
	}
	return nil
}

// ensureForcedDown is Ensure for a host that is forced down, in a transaction of its own.
func (s *Fences) ensureForcedDown(ctx context.Context, hostID string) error {
	return s.change(ctx, func(tx job.Tx) error {
		h, err := s.store.Hosts().Get(ctx, tx, hostID)
		if err != nil || !h.ForcedDown || h.Fenced {
			return err
		}
		_, err = s.Ensure(ctx, tx, h)
		return err
	})
}
