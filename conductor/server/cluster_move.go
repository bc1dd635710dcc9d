package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// This file has clusters move guests between their nodes. They detect no failure and fence nothing: what is told them of a node rests on
// a receipt, or on the node's life.

// mover is what moves the guests of a host's cluster.
func (c clusterOperations) mover(ctx context.Context, h *compute.Host) (hypervisor.Mover, error) {
	hv, err := c.hypervisor(ctx, h)
	if err != nil {
		return nil, err
	}
	m, able := hv.(hypervisor.Mover)
	if !able {
		return nil, problem.Unsupportedf("host %s: %s moves no guests", h.Name, h.Inventory.HypervisorType)
	}
	return m, nil
}

// nodeOf finds the host that is a node of a cluster.
func (c clusterOperations) nodeOf(ctx context.Context, cluster, name string) (*compute.Host, error) {
	found, err := c.Store.Hosts().List(ctx, nil, compute.HostFilter{ClusterID: cluster, Name: name}, record.Page{Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, problem.Unavailablef("the cluster says that the guest is on node %q, which is not known yet", name)
	}
	return found[0], nil
}

// moveByCluster has the cluster move a guest of a living node, and notes where it is then.
func (c clusterOperations) moveByCluster(ctx context.Context, r *job.Run, t *serverMigration) job.Outcome {
	m, err := c.mover(ctx, t.here.host)
	if err != nil {
		return job.From(err)
	}
	to := ""
	if t.there != nil {
		to = t.there.host.Name
	}
	bounded, cancel := context.WithTimeout(ctx, diskErrand)
	defer cancel()
	name, err := m.Migrate(bounded, t.here.server.ID, to, t.live(r))
	if err != nil && t.live(r) && !t.args.LiveOnly && !problem.Is(err, problem.Unavailable) {
		return c.moves().goOff(ctx, r, t, err)
	}
	if err != nil {
		return job.From(err)
	}
	at, err := c.nodeOf(ctx, t.here.host.ClusterID, name)
	if err != nil {
		return job.From(err)
	}
	r.Note(broughtMemo, at.ID)
	r.Note(livesMemo, "brought")
	r.Note(clearedMemo, "yes")
	return job.Done()
}

// failOver has the cluster bring a guest of a fenced node to another one, and follows it there. The cluster is told that the node is
// dead first: the receipt proves it.
func (c clusterOperations) failOver(ctx context.Context, r *job.Run, v *moveContext) job.Outcome {
	if v.move.ReceiptID == "" {
		return job.Fail(problem.Conflictf("node %s of a cluster is not fenced: nothing is failed over", v.host.Name))
	}
	m, err := c.mover(ctx, v.host)
	if err != nil {
		return job.From(err)
	}
	bounded, cancel := context.WithTimeout(ctx, diskErrand)
	defer cancel()
	if out := c.stillReached(bounded, r, v, m); out != nil {
		return *out
	}
	// The receipt is looked at before the cluster is told: a node that came back is not marked as dead.
	err = r.Commit(ctx, func(tx job.Tx) error { return c.Store.UseReceipt(tx, v.move.ReceiptID) })
	if err != nil {
		return job.From(err)
	}
	if err := m.SetOffline(bounded, v.host.Name, true); err != nil {
		return job.From(err)
	}
	to := ""
	if v.args.DestID != "" {
		dest, err := c.Store.Hosts().Get(ctx, nil, v.args.DestID)
		if err != nil {
			return job.From(err)
		}
		to = dest.Name
	}
	name, err := m.Failover(bounded, v.server.ID, to)
	if err != nil {
		return job.From(err)
	}
	at, err := c.nodeOf(ctx, v.host.ClusterID, name)
	if err != nil {
		return job.From(err)
	}
	return job.Done(func(tx job.Tx) error { return c.Compute.Moves.Follow(detachContext(ctx), tx, v.move.ID, at.ID) })
}

const (
	silentMemo = "looks at a silent node"
	// silentLooks are how often, RenewEvery apart, a node must have been silent of which nobody has read that its power is off.
	silentLooks = 3
)

// stillReached has the cluster asked whether it reaches a node before it is told that the node is dead: for it would start its guests a
// second time then, whoever attested what. nil: the node is silent, or was marked before.
func (c clusterOperations) stillReached(ctx context.Context, r *job.Run, v *moveContext, m hypervisor.Mover) *job.Outcome {
	end := func(out job.Outcome) *job.Outcome { return &out }
	answers, offline, err := m.Reaches(ctx, v.host.Name)
	if err != nil {
		return end(job.From(err))
	}
	if offline {
		return nil
	}
	receipt, err := c.Store.Receipts().Get(ctx, nil, v.move.ReceiptID)
	if err != nil {
		return end(job.From(err))
	}
	cut := receipt.Has(compute.PowerCut)
	if !answers {
		looks, _ := strconv.Atoi(r.Memo[silentMemo]) // our own writing
		if looks++; cut || looks >= silentLooks {
			return nil
		}
		r.Note(silentMemo, strconv.Itoa(looks))
		return end(job.Pause(compute.RenewEvery, "another look whether the cluster reaches its node"))
	}
	lives := fmt.Sprintf("the cluster still reaches node %s", v.host.Name)
	if cut {
		lives += ", though its power was read to be off; its BMC may be another machine's"
	}
	err = r.Commit(ctx, func(tx job.Tx) error {
		_, err := c.Compute.Fences.Contradict(detachContext(ctx), tx, v.host.ID, lives)
		return err
	})
	if err != nil {
		return end(job.From(err))
	}
	return end(job.Fail(problem.Conflictf("%s: its guests may run, so nothing is failed over. Have its power cut: salvor fence %s", lives, v.host.Name)))
}

// renewMirrors has the cluster of a node that was evacuated make the mirrors of disks that the node had anew. A cluster that cannot is
// told of: the servers live.
func (c clusterOperations) renewMirrors(ctx context.Context, r *job.Run) job.Outcome {
	h, err := c.Store.Hosts().Get(ctx, nil, r.Subject.ID)
	if err != nil || h.Kind != compute.GanetiHost || r.Kind != compute.JobEvacuate {
		return job.From(err)
	}
	m, err := c.mover(ctx, h)
	if err != nil {
		return job.From(err)
	}
	bounded, cancel := context.WithTimeout(ctx, diskErrand)
	defer cancel()
	had, err := m.RenewMirrors(bounded)
	text, severity := "the mirrors of disks that it had were made anew on other nodes", "info"
	switch {
	case err != nil:
		text, severity = "the mirrors of disks that it had could not be made anew: "+err.Error(), "warning"
	case !had:
		return job.Done()
	}
	return job.Done(func(tx job.Tx) error { return c.hosts().hostEvent(tx, r, text, severity) })
}

const troubleMemo = "in trouble"

// newTrouble tells servers, once, what their cluster finds wrong with where they run; known is who was in trouble at the last look, now who is.
func (c clusterOperations) newTrouble(known string, v *clusterView) (events []job.Event, now string) {
	var ids []string
	for _, g := range v.guests {
		if !g.Ours || g.Trouble == "" {
			continue
		}
		ids = append(ids, g.ID)
		if !slices.Contains(strings.Fields(known), g.ID) {
			events = append(events, job.Event{Subject: compute.Subject(g.ID), At: c.Now(), Type: "contact", Severity: "warning", Text: g.Trouble})
		}
	}
	return events, strings.Join(ids, " ")
}
