package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

const (
	fenceCut = "cut" // the job of the node that switches it off
	fenceOff = "off" // when that had proven it
	// lateWord is how long after the end of a host a renewal of it may be stored.
	lateWord = 3 * time.Second
)

// cutHost switches the node that the host is off, ahead of all else that is asked of the node. It is held off before that: from then
// on nobody switches it on again.
func (c hostOperations) cutHost(ctx context.Context, r *job.Run, f *fencingTarget) job.Outcome {
	if f.host.NodeID == "" {
		return noteMissingEvidence(r, compute.PowerCut, "no node of the inventory is named as this host; name it with: salvor host set %s --node NODE", f.host.Name)
	}
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(r.ID+"\x00cut")).String()
	cut, err := c.Store.Job(ctx, nil, id)
	switch {
	case problem.Is(err, problem.NotFound):
		return c.beginCut(ctx, r, f, id)
	case err != nil:
		return job.From(err)
	case cut.State != job.Ended:
		if c.left(f, cutWithin+busyWithin/3) <= 0 {
			return noteMissingEvidence(r, compute.PowerCut, "the BMC of node %s has not answered in time", f.host.NodeID)
		}
		return job.Rest("node "+f.host.NodeID+" to be switched off", time.Second)
	case cut.Failed():
		return noteMissingEvidence(r, compute.PowerCut, "%s", cut.Problem)
	}
	var proof metal.PowerOffProof
	if err := json.Unmarshal(cut.Result, &proof); err != nil || len(proof.Reads) < 2 {
		return noteMissingEvidence(r, compute.PowerCut, "the node's job has no readings")
	}
	r.Note(fenceOff, cut.EndedAt.UTC().Format(time.RFC3339Nano))
	was := ""
	if proof.Was == metal.PowerOff {
		was = "; it was off before"
	}
	c.prove(r, f, compute.PowerCut, "the BMC of node %s read %q and %q after it was switched off by force%s", f.host.NodeID, proof.Reads[0], proof.Reads[1], was)
	return job.Done()
}

// beginCut holds the node and puts the order to it; one that somebody works on is waited for.
func (c hostOperations) beginCut(ctx context.Context, r *job.Run, f *fencingTarget, id string) job.Outcome {
	reason := fmt.Sprintf("host %s is fenced; salvor host restore %s", f.host.Name, f.host.Name)
	node := f.host.NodeID
	if r.Memo[fenceNode] == "" {
		r.Note(fenceNode, node)
		err := r.Commit(ctx, func(tx job.Tx) error { return c.Nodes.LockPower(detachContext(ctx), tx, node, reason) })
		if problem.Is(err, problem.NotFound) {
			r.Note(fenceNode, "")
			return noteMissingEvidence(r, compute.PowerCut, "node %s, which is named as this host, is not in the inventory", node)
		}
		if err != nil {
			return job.From(err)
		}
	}
	err := r.Commit(ctx, func(tx job.Tx) error { return c.Nodes.CutPower(detachContext(ctx), tx, node, id, r.Subject) })
	switch {
	case err == nil:
		return job.Rest("node "+node+" to be switched off", time.Second)
	case problem.Is(err, problem.Conflict) && c.left(f, busyWithin) > 0:
		return job.Pause(fencePoll, "node "+node+", on which someone works")
	case problem.Is(err, problem.Conflict):
		return noteMissingEvidence(r, compute.PowerCut, "someone has worked on node %s for %s: %v", node, busyWithin, err)
	case problem.KindOf(err) == problem.Unavailable, ctx.Err() != nil:
		return job.From(err)
	}
	return noteMissingEvidence(r, compute.PowerCut, "%v", err)
}

// listenAfterCut holds what the BMC says against the host's own word: one that renews its lease was not switched off.
func (c hostOperations) listenAfterCut(ctx context.Context, r *job.Run, f *fencingTarget) job.Outcome {
	off, err := time.Parse(time.RFC3339Nano, r.Memo[fenceOff])
	if err != nil || !f.has(compute.PowerCut) {
		return job.Done()
	}
	stored, err := c.Store.Leases(ctx)
	if err != nil {
		return job.From(err)
	}
	lease, held := stored[f.host.ID]
	if !held {
		return job.Done() // it never had one: a cluster's, or one that never came
	}
	i := slices.IndexFunc(f.proofs, func(p compute.Proof) bool { return p.Evidence == compute.PowerCut })
	if lease.RenewedAt.After(off.Add(lateWord)) {
		return c.contradicted(r, f, "it renewed its lease after that")
	}
	if f.heardAt.After(off.Add(lateWord)) {
		return c.contradicted(r, f, "it spoke after that")
	}
	since, _, known := c.silenceNow(ctx, f.host.ID)
	since = min(since, c.Now().Sub(f.heardAt))
	switch {
	case known && since >= compute.Suspect:
		f.proofs[i].At = c.Now().UTC() // a word that was under way when it was switched off speaks against nothing
		c.keepProofs(r, f)
		return job.Done()
	case !c.tooEarlyToTell(f):
		return c.contradicted(r, f, "it was not heard to be silent")
	}
	return job.Pause(fencePoll, "host "+f.host.Name+" to be silent")
}

// contradicted drops what the BMC said, and the hold of a node that is not the host.
func (c hostOperations) contradicted(r *job.Run, f *fencingTarget, why string) job.Outcome {
	node := f.host.NodeID
	f.proofs = slices.DeleteFunc(f.proofs, func(p compute.Proof) bool { return p.Evidence == compute.PowerCut })
	c.keepProofs(r, f)
	r.Note(fenceNode, "")
	noteMissingEvidence(r, compute.PowerCut, "the BMC of node %s says off, but the host lives: %s. It is not the BMC of this host; see to salvor host set %s --node", node, why, f.host.Name)
	return job.Done(func(tx job.Tx) error {
		if err := c.Nodes.UnlockPower(context.Background(), tx, node); err != nil {
			return err
		}
		return c.hostEvent(tx, r, "the BMC of node "+node+" says off, but the host lives: "+why, "error")
	})
}

// revokeHost takes the host's volumes away from it. It is done wherever there are volumes, for whatever else was proven may have been
// said by a BMC that errs; but where that suffices, a storage that does not answer holds nothing up.
func (c hostOperations) revokeHost(ctx context.Context, r *job.Run, f *fencingTarget) job.Outcome {
	servers, err := c.Compute.Servers.On(ctx, f.host.ID)
	if err != nil {
		return job.From(err)
	}
	var guarded []*compute.Server
	var others []string
	for _, s := range servers {
		some, only := s.HasVolumes()
		if some {
			guarded = append(guarded, s)
		}
		if !only {
			others = append(others, s.Name)
		}
	}
	required := slices.Contains(f.group.Require, compute.StorageRevoked)
	switch {
	case c.Storage == nil && required:
		return noteMissingEvidence(r, compute.StorageRevoked, "no storage is configured: [storage]driver is none")
	case c.Storage == nil, len(guarded) == 0 && !required:
		return noteMissingEvidence(r, compute.StorageRevoked, "it has no volumes of a storage that is spoken to")
	}
	within := c.left(f, fenceWithin)
	if f.enough(r) {
		within = min(within, spareStorage)
	}
	bounded, cancel := context.WithTimeout(ctx, max(within, time.Second))
	defer cancel()
	if err := c.Permission.Refusal(); err != nil {
		return job.From(err)
	}
	r.Note(fenceRevoked, "yes")
	names := compute.Initiators(f.host, guarded)
	if err := c.Storage.Revoke(bounded, names...); err != nil {
		if ctx.Err() != nil {
			return job.From(err)
		}
		return noteMissingEvidence(r, compute.StorageRevoked, "%v", err)
	}
	if err := c.strangers(bounded, f.host); err != nil {
		return noteMissingEvidence(r, compute.StorageRevoked, "%v", err)
	}
	if len(others) > 0 {
		r.Note(fencePartly, fmt.Sprintf("disks of %s lie elsewhere", abbreviateNames(others)))
	}
	c.prove(r, f, compute.StorageRevoked, "%d initiators of the host may log in no more, and no connection of theirs remains", len(names))
	return job.Done()
}

// strangers finds connections from the host by names that are none of its.
func (c hostOperations) strangers(ctx context.Context, h *compute.Host) error {
	all, err := c.Storage.Sessions(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if h.Inventory.Address != "" && s.Address == h.Inventory.Address {
			return problem.Conflictf("%s is still connected to %s from the host's address %s", s.Initiator, s.Target, s.Address)
		}
	}
	return nil
}

// abbreviateNames names some of many.
func abbreviateNames(names []string) string {
	const some = 5
	if len(names) <= some {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:some], ", "), len(names)-some)
}

// awaitSelfFence waits until the host has ended its guests by itself, if it said that it would and has a watchdog that sees to it.
func (c hostOperations) awaitSelfFence(ctx context.Context, r *job.Run, f *fencingTarget) job.Outcome {
	if f.enough(r) {
		return job.Done()
	}
	since, watchdog, known := c.silenceNow(ctx, f.host.ID)
	switch {
	case !known && c.left(f, fenceWithin) > 0 && c.Compute.Liveness.Deaf():
		return job.Pause(fencePoll, "the store, by which host "+f.host.Name+" would be heard")
	case !known:
		return noteMissingEvidence(r, compute.SelfFenced, "it never held a lease, or cannot be heard just now")
	case watchdog == "":
		return noteMissingEvidence(r, compute.SelfFenced, "its newest renewal named no armed watchdog")
	case since >= compute.SelfFenceEvidence:
		c.prove(r, f, compute.SelfFenced, "silent for %s; its watchdog %s was armed to reset it at %s", since.Round(time.Second), watchdog, compute.SelfFenceWatchdog)
		return job.Done()
	case !c.tooEarlyToTell(f):
		return noteMissingEvidence(r, compute.SelfFenced, "it renewed its lease %s ago", since.Round(time.Second))
	}
	return job.Pause(min(compute.SelfFenceEvidence-since, time.Second), "the watchdog of host "+f.host.Name)
}
