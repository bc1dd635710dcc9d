package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// hostFence proves that a host is off, by one kind of evidence after the other, until what is proven suffices. Nothing of it is
// taken back but the node's hold, where it comes to nothing.
func (c hostOperations) hostFence() job.Definition {
	const kept = "evidence is not taken back; a fence that fails lets go of the node and gives the volumes back"
	return job.Definition{
		Kind: compute.JobFence, Version: 1, Class: job.Operation, Failed: c.fenceFailed,
		Actions: []job.Action{
			{Name: "look", Do: c.fencing(c.lookAtHost), NoUndo: kept},
			{Name: "cut the power", Do: c.fencing(c.cutHost), NoUndo: kept},
			{Name: "listen", Do: c.fencing(c.listenAfterCut), NoUndo: kept},
			{Name: "revoke the storage", Do: c.fencing(c.revokeHost), NoUndo: kept},
			{Name: "wait for the self-fence", Do: c.fencing(c.awaitSelfFence), NoUndo: kept},
			{Name: "give the receipt", Do: c.fencing(c.giveReceipt), NoUndo: kept},
			{Name: "evacuate", Do: c.healHost, NoUndo: "a plan may be made again", Deadline: time.Minute},
		},
	}
}

// Bounds of a fence, from its beginning.
const (
	// busyWithin is how long a node that somebody works on is waited for.
	busyWithin = 30 * time.Second
	// cutWithin is when the BMC must have answered.
	cutWithin = busyWithin + 5*time.Second
	// fenceWithin is when it ends, with a receipt or blocked.
	fenceWithin = 55 * time.Second
	// spareStorage is what is left to the storage where it is not needed.
	spareStorage = 8 * time.Second
	fencePoll    = 250 * time.Millisecond
)

// Notes of a fence.
const (
	fenceBegan   = "began"
	fenceProofs  = "proofs"
	fenceReceipt = "receipt"
	fenceNode    = "node" // that was held off
	fencePartly  = "partly"
	fenceRevoked = "revoked" // its volumes were, or may have been, taken away
	fenceLacks   = "lacks "  // + evidence: why there is none of it
)

// fencingTarget is a host that is to be proven off, read afresh for each action.
type fencingTarget struct {
	host   *compute.Host
	group  *compute.HostGroup
	args   compute.FenceArgs
	began  time.Time
	proofs []compute.Proof
	// heardAt is the last report of a boot of the host while its receipt was open. Such a host renews no lease. Zero: there was no
	// report.
	heardAt time.Time
}

// fencing makes a job action of a function that looks for evidence. Once there is a receipt, it asks nothing more.
func (c hostOperations) fencing(do func(context.Context, *job.Run, *fencingTarget) job.Outcome) func(context.Context, *job.Run) job.Outcome {
	return func(ctx context.Context, r *job.Run) job.Outcome {
		f, err := c.fence(ctx, r)
		if err != nil {
			return job.From(err)
		}
		receipt, err := c.Compute.Fences.Receipt(ctx, nil, f.host.ID)
		switch {
		case err == nil:
			suffices, err := c.Compute.Fences.Suffices(ctx, nil, receipt)
			if err != nil {
				return job.From(err)
			}
			if suffices {
				r.Note(fenceReceipt, receipt.ID)
				return job.Done()
			}
			f.heardAt = receipt.LastHeardAt()
		case !problem.Is(err, problem.NotFound):
			return job.From(err)
		}
		return do(ctx, r, f)
	}
}

func (c hostOperations) fence(ctx context.Context, r *job.Run) (*fencingTarget, error) {
	f := &fencingTarget{}
	var err error
	if f.args, err = parseJobArgs[compute.FenceArgs](r); err != nil {
		return nil, err
	}
	if f.host, err = c.Store.Hosts().Get(ctx, nil, r.Subject.ID); err != nil {
		return nil, err
	}
	if f.group, err = c.Compute.Hosts.Group(ctx, nil, f.host); err != nil {
		return nil, err
	}
	if f.began, err = time.Parse(time.RFC3339Nano, r.Memo[fenceBegan]); err != nil {
		f.began = c.Now()
		r.Note(fenceBegan, f.began.UTC().Format(time.RFC3339Nano))
	}
	if text := r.Memo[fenceProofs]; text != "" {
		if err := json.Unmarshal([]byte(text), &f.proofs); err != nil {
			return nil, fmt.Errorf("proofs of job %s: %w", r.ID, err)
		}
	}
	return f, nil
}

// left is what remains until so long after the beginning.
func (c hostOperations) left(f *fencingTarget, within time.Duration) time.Duration {
	return within - c.Now().Sub(f.began)
}

// prove notes a piece of evidence.
func (c hostOperations) prove(r *job.Run, f *fencingTarget, e compute.Evidence, format string, args ...any) {
	f.proofs = slices.DeleteFunc(f.proofs, func(p compute.Proof) bool { return p.Evidence == e })
	f.proofs = append(f.proofs, compute.Proof{Evidence: e, Text: fmt.Sprintf(format, args...), At: c.Now().UTC()})
	c.keepProofs(r, f)
}

func (c hostOperations) keepProofs(r *job.Run, f *fencingTarget) {
	text, err := json.Marshal(f.proofs)
	if err == nil { // what was read from JSON is written as JSON
		r.Note(fenceProofs, string(text))
	}
}

// noteMissingEvidence notes why a kind of evidence is not there.
func noteMissingEvidence(r *job.Run, e compute.Evidence, format string, args ...any) job.Outcome {
	r.Note(fenceLacks+string(e), fmt.Sprintf(format, args...))
	return job.Done()
}

func (f *fencingTarget) has(e compute.Evidence) bool {
	return slices.ContainsFunc(f.proofs, func(p compute.Proof) bool { return p.Evidence == e })
}

// missing lists what the group requires and is not proven.
func (f *fencingTarget) missing() (out []compute.Evidence) {
	for _, e := range f.group.Require {
		if !f.has(e) {
			out = append(out, e)
		}
	}
	return out
}

// enough tells whether a receipt may rest on what is proven. A storage that guards some of the disks only is no proof by itself.
func (f *fencingTarget) enough(r *job.Run) bool {
	alone := len(f.proofs) == 1 && f.has(compute.StorageRevoked) && r.Memo[fencePartly] != ""
	return len(f.proofs) > 0 && !alone && len(f.missing()) == 0
}

// lookAtHost takes the evidence that is there already.
func (c hostOperations) lookAtHost(ctx context.Context, r *job.Run, f *fencingTarget) job.Outcome {
	if f.host.Revoked && f.args.Words == "" {
		return job.Fail(problem.Conflictf("fence host %[1]s: its certificate was revoked, so whether it lives cannot be heard; let it join again first, or, "+
			"once someone has seen that it is off: salvor fence %[1]s --attest \"who saw what\"", f.host.Name))
	}
	_, err := c.knownReceipt(ctx, r, f)
	return job.From(err)
}

// knownReceipt gives a receipt by what is known without asking anybody: an acknowledgement, say. false: that does not suffice.
func (c hostOperations) knownReceipt(ctx context.Context, r *job.Run, f *fencingTarget) (bool, error) {
	err := c.commitChanged(ctx, r, func(tx job.Tx) error {
		h, err := c.Store.Hosts().Get(ctx, tx, f.host.ID)
		if err != nil {
			return err
		}
		receipt, err := c.Compute.Fences.Ensure(ctx, tx, h)
		if err != nil {
			return err
		}
		suffices, err := c.Compute.Fences.Suffices(ctx, tx, receipt)
		if err == nil && !suffices {
			err = problem.Conflictf("the receipt of host %s does not answer for what it told since", f.host.Name)
		}
		return err
	})
	if problem.Is(err, problem.Conflict) || problem.Is(err, problem.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// commitChanged makes a change durable in the middle of an action, again where a row that it saves was changed meanwhile.
func (c hostOperations) commitChanged(ctx context.Context, r *job.Run, change func(job.Tx) error) (err error) {
	for range 5 {
		if err = r.Commit(ctx, change); !errors.Is(err, record.ErrChanged) {
			return err
		}
	}
	return problem.Unavailablef("the host keeps changing: %w", err)
}

// giveReceipt ends the search: by a receipt, or by saying of each kind of evidence why there is none.
func (c hostOperations) giveReceipt(ctx context.Context, r *job.Run, f *fencingTarget) job.Outcome {
	if f.args.Words != "" {
		since, hadLease := c.silence(ctx, f.host.ID)
		spoke, err := c.spokeSince(ctx, f)
		switch {
		case err != nil:
			return job.From(err)
		case hadLease && since < compute.Suspect && !spoke && c.tooEarlyToTell(f):
			// Who has just begun to listen hears first whether it speaks.
			return job.Pause(fencePoll, "host "+f.host.Name+" to be silent")
		case hadLease && since < compute.Suspect:
			noteMissingEvidence(r, compute.Attested, "the host renewed its lease %s ago: it lives, whatever is said of it", since.Round(time.Second))
		case c.Now().Sub(f.heardAt) < compute.Suspect && c.left(f, fenceWithin) > 0:
			return job.Pause(fencePoll, "host "+f.host.Name+" to be silent")
		case c.Now().Sub(f.heardAt) < compute.Suspect:
			noteMissingEvidence(r, compute.Attested, "the host spoke %s ago: it lives, whatever is said of it", c.Now().Sub(f.heardAt).Round(time.Second))
		default:
			against, err := c.Compute.Fences.Contradictions(ctx, f.host)
			if err != nil {
				return job.From(err)
			}
			if against = compute.Undisputed(against, f.args.Disputes); len(against) > 0 {
				noteMissingEvidence(r, compute.Attested, "contradicted by %s", compute.ContradictedBy(against))
				break
			}
			c.prove(r, f, compute.Attested, "%s says: %s", orSomebody(r.User), f.args.Words)
		}
	}
	if !f.enough(r) {
		if known, err := c.knownReceipt(ctx, r, f); known || err != nil {
			return job.From(err)
		}
		return c.comeToNothing(ctx, r, f, c.blocked(r, f))
	}
	if since, hadLease := c.silence(ctx, f.host.ID); hadLease && since < compute.Suspect && c.Compute.Liveness.Listening() < 2*compute.Suspect &&
		(f.has(compute.PowerCut) || f.has(compute.SelfFenced)) {
		return job.Pause(fencePoll, "host "+f.host.Name+" to be silent") // a former process heard that it is: this one hears for itself
	}
	err := c.commitChanged(ctx, r, func(tx job.Tx) error {
		_, err := c.Compute.Fences.Give(detachContext(ctx), tx, f.host.ID, f.proofs, r.User, f.args.Words)
		return err
	})
	if problem.Is(err, problem.Conflict) {
		return c.comeToNothing(ctx, r, f, err)
	}
	return job.From(err)
}

// comeToNothing ends a fence without a receipt, because of why: the host gets its volumes back.
func (c hostOperations) comeToNothing(ctx context.Context, r *job.Run, f *fencingTarget, why error) job.Outcome {
	err := c.readmit(ctx, r, f)
	switch {
	case err == nil:
		return job.Fail(why)
	case ctx.Err() != nil:
		return job.From(err)
	}
	return job.Fail(problem.Conflictf("%v. Its volumes were taken away and could not be given back: %v", why, err))
}

// readmit lets the servers of a host that could not be fenced in to their volumes again: where it lives, they run on.
func (c hostOperations) readmit(ctx context.Context, r *job.Run, f *fencingTarget) error {
	if r.Memo[fenceRevoked] == "" || c.Storage == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, spareStorage)
	defer cancel()
	return c.storageAccess().letIn(bounded, f.host)
}

func orSomebody(user string) string {
	if user == "" {
		return "an operator"
	}
	return user
}

// evidenceOrder is the order in which evidence is looked for, and told.
var evidenceOrder = []compute.Evidence{compute.PowerCut, compute.StorageRevoked, compute.SelfFenced, compute.Acknowledged, compute.Attested}

// lackWords say what there would have to be, where nothing was noted.
var lackWords = map[compute.Evidence]string{
	compute.PowerCut:       "no node of the inventory is named as this host",
	compute.StorageRevoked: "no storage is configured that could take its volumes away",
	compute.SelfFenced:     "its newest renewal named no armed watchdog",
	compute.Acknowledged:   "it was told to stop its guests, and has not said that none runs",
	compute.Attested:       "nobody attested that it is off",
}

// blocked is what an operator reads: of each kind of evidence whether it is there or why not, and what to do.
func (c hostOperations) blocked(r *job.Run, f *fencingTarget) error {
	var reasons []string
	for _, e := range evidenceOrder {
		why := r.Memo[fenceLacks+string(e)]
		switch {
		case f.has(e) && e == compute.StorageRevoked && r.Memo[fencePartly] != "":
			why = "revoked, but " + r.Memo[fencePartly]
		case f.has(e):
			why = "proven"
		case why == "":
			why = lackWords[e]
		}
		if e == compute.Acknowledged && !f.has(e) && !f.host.ForcedDown {
			why = "it was not told to stop its guests: a fence does not, this does: salvor host set " + f.host.Name + " --forced-down"
		}
		reasons = append(reasons, string(e)+": "+why)
	}
	need := ""
	if lacking := f.missing(); len(lacking) > 0 {
		need = fmt.Sprintf(" Its group %q requires %v.", f.group.Name, f.group.Require)
	}
	return problem.Conflictf("host %s is not proven off (%s).%s Once someone has seen that it is off: salvor fence %s --attest \"who saw what\"",
		f.host.Name, strings.Join(reasons, "; "), need, f.host.Name)
}

// fenceFailed lets go of the node: no server was moved.
func (c hostOperations) fenceFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.State != job.Ended {
		return nil
	}
	_, err := c.Compute.Fences.Receipt(ctx, tx, j.Subject.ID)
	if err == nil {
		return nil
	}
	if !problem.Is(err, problem.NotFound) {
		return err
	}
	if node := j.Memo[fenceNode]; node != "" {
		if err := c.Nodes.UnlockPower(ctx, tx, node); err != nil {
			return err
		}
	}
	return nil
}

func (c hostOperations) hostEvent(tx job.Tx, r *job.Run, text, severity string) error {
	return c.Store.Append(tx, job.Event{Subject: r.Subject, Type: "contact", Text: text, Severity: severity, JobID: r.ID, RequestID: r.RequestID, User: r.User})
}

// silence tells for how long a host has been silent, as far as this process could hear; heard is false of a host that never held a lease.
func (c hostOperations) silence(ctx context.Context, hostID string) (since time.Duration, hadLease bool) {
	since, _, known := c.silenceNow(ctx, hostID)
	if known {
		return since, true
	}
	stored, err := c.Store.Leases(ctx)
	_, hadLease = stored[hostID]
	return 0, hadLease || err != nil // what cannot be heard counts as just heard
}

// silenceNow is Silence after a look at what others heard until now.
func (c hostOperations) silenceNow(ctx context.Context, hostID string) (since time.Duration, watchdog string, known bool) {
	if err := c.Compute.Liveness.Listen(ctx); err != nil {
		return 0, "", false
	}
	return c.Compute.Liveness.Silence(hostID)
}

// tooEarlyToTell: that the host was not heard to be silent does not say yet that it lives. A fence has its time for that, and so has each
// process that goes on with it.
func (c hostOperations) tooEarlyToTell(f *fencingTarget) bool {
	return c.left(f, fenceWithin) > 0 || c.Compute.Liveness.Listening() < 2*compute.Suspect
}

// spokeSince tells whether the host renewed its lease after the fence began.
func (c hostOperations) spokeSince(ctx context.Context, f *fencingTarget) (bool, error) {
	stored, err := c.Store.Leases(ctx)
	return stored[f.host.ID].RenewedAt.After(f.began), err
}

// healHost has the servers of a host that was fenced without anybody asking live on elsewhere.
func (c hostOperations) healHost(ctx context.Context, r *job.Run) job.Outcome {
	a, err := parseJobArgs[compute.FenceArgs](r)
	if err != nil || !a.Heal {
		return job.From(err)
	}
	next, commit, err := c.Compute.Plans.Heal(ctx, r.Subject.ID, compute.Who{Admin: true})
	switch {
	case err != nil:
		return job.From(err)
	case next == nil:
		return job.Done()
	}
	return job.Then(next, commit)
}
