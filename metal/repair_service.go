package metal

import (
	"context"
	"encoding/json"
	"slices"

	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/repair"
)

// RepairStore keeps the parts of repairs.
type RepairStore interface {
	// RepairPart reads one; problem.NotFound if there is none.
	RepairPart(ctx context.Context, tx job.Tx, nodeID, repairID, name string) (RepairPart, error)
	// SaveRepairPart writes one over what was there; problem.NotFound if the node is gone.
	SaveRepairPart(tx job.Tx, p RepairPart) error
	// RepairSizes lists the repairs of which parts are kept, of all nodes that a project uses, oldest first. A node without a lessee and an owner
	// belongs to the project with the empty name.
	RepairSizes(ctx context.Context, tx job.Tx, project string) ([]RepairSize, error)
	// DropRepairParts removes the parts of all repairs of the node except those of the repairs keep.
	DropRepairParts(tx job.Tx, nodeID string, keep []string) error
}

// NodeRepairs is the service of repairs.
type NodeRepairs struct{ nodes *Nodes }

// NewNodeRepairs makes the service of repairs of nodes.
func NewNodeRepairs(nodes *Nodes) NodeRepairs { return NodeRepairs{nodes} }

// Begin begins a repair of a node. Conflict: one is under way already.
func (s NodeRepairs) Begin(ctx context.Context, ident string, args RepairArgs, asker record.Asker) (Repair, error) {
	args.Undoes, args.Method = "", ""
	n, err := s.nodes.store.Node(ctx, nil, ident)
	if err != nil {
		return Repair{}, err
	}
	if n.Maintenance && n.ProvisionState != Rescue && !IsRepairFault(n) {
		return Repair{}, problem.Conflictf("node %s is in maintenance, and a repair boots it into a rescue: first run: salvor node maintenance unset %[1]s", n.ID)
	}
	return s.begin(ctx, ident, args, asker, "asked to repair")
}

func (s NodeRepairs) begin(ctx context.Context, ident string, args RepairArgs, asker record.Asker, what string) (Repair, error) {
	if err := args.check(); err != nil {
		return Repair{}, err
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return Repair{}, err
	}
	keys, err := diagnose.PackLUKSKeys(args.LUKSKeys)
	if err != nil {
		return Repair{}, err
	}
	args.LUKSKeys = nil
	var begun Repair
	err = s.nodes.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.nodes.store.Node(ctx, tx, ident)
		if err != nil {
			return err
		}
		all, err := s.List(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		if len(all) > 0 && all[0].IsRunning() {
			open, err := job.IsOpen(s.nodes.jobs, tx, job.Node(n.ID), all[0].ID)
			switch {
			case err != nil:
				return err
			case open:
				return problem.Conflictf("node %s is being repaired since %s; to see how far that is: salvor repair show %[1]s", n.ID, record.Moment(all[0].RequestedAt))
			}
			all[0].end(s.nodes.now(), job.GoneProblem)
		}
		if r := interruptedRepair(all, args.Undoes); r != nil {
			return problem.Conflictf("node %s: the disks are half-written by repair %s; first run: salvor repair undo %[1]s %[2]s", n.ID, r.ID)
		}
		j := &job.Job{Kind: JobRepair, Class: job.Background, Subject: job.Node(n.ID), Group: n.ConductorGroup, Args: raw, Secret: keys, RequestID: asker.RequestID, User: asker.User}
		if err := s.nodes.jobs.Insert(tx, j); err != nil {
			return err
		}
		begun = Repair{ID: j.ID, RequestedAt: s.nodes.now(), RequestedBy: asker.User, Args: args, State: RepairPlanning}
		if err := s.save(tx, n, newestRepairs(begun, all)); err != nil {
			return err
		}
		return s.nodes.note(tx, n.ID, asker, "request", what)
	})
	return begun, err
}

// newestRepairs puts a repair before the others, and drops the oldest. A repair that is to be undone stays.
func newestRepairs(begun Repair, all []Repair) []Repair {
	out := append([]Repair{begun}, all...)
	for i := len(out) - 1; len(out) > maxRepairs; i-- {
		if out[i].ID != begun.Args.Undoes {
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// List lists the kept repairs of a node, newest first.
func (s NodeRepairs) List(ctx context.Context, tx job.Tx, nodeID string) ([]Repair, error) {
	return readList[Repair](ctx, s.nodes.store, tx, nodeID, Repairs)
}

// Newest lists the kept repairs of a node, newest first.
func (s NodeRepairs) Newest(ctx context.Context, ident string) ([]Repair, error) {
	return s.List(ctx, nil, ident)
}

// find gives a repair by its id, or the newest one.
func (s NodeRepairs) find(ctx context.Context, tx job.Tx, ident, id string) (*Node, Repair, error) {
	n, err := s.nodes.store.Node(ctx, tx, ident)
	if err != nil {
		return nil, Repair{}, err
	}
	all, err := s.List(ctx, tx, n.ID)
	if err != nil {
		return nil, Repair{}, err
	}
	for _, r := range all {
		if id == "newest" || r.ID == id {
			return n, r, nil
		}
	}
	return nil, Repair{}, problem.NotFoundf("Node %s has no repair %s.", ident, id)
}

// Find gives a repair by its id, or the newest one for the id "newest". Its plan is sanitized, and nil where there is none.
func (s NodeRepairs) Find(ctx context.Context, ident, id string) (Repair, *repair.Plan, UndoMethod, error) {
	n, r, err := s.find(ctx, nil, ident, id)
	if err != nil {
		return Repair{}, nil, "", err
	}
	plan, err := s.Plan(ctx, n.ID, r.ID)
	if problem.Is(err, problem.NotFound) {
		return r, nil, r.Undo(n), nil
	}
	if err != nil {
		return Repair{}, nil, "", err
	}
	return r, plan.Sanitize(), r.Undo(n), nil
}

// Plan reads the plan of a repair as the agent made it; problem.NotFound if there is none.
func (s NodeRepairs) Plan(ctx context.Context, nodeID, id string) (*repair.Plan, error) {
	part, err := s.nodes.store.RepairPart(ctx, nil, nodeID, id, RepairPlanPart)
	if err != nil {
		return nil, err
	}
	plan := &repair.Plan{}
	return plan, json.Unmarshal(part.Body, plan)
}

// Get reads a repair of a node; problem.NotFound if it is not kept any more.
func (s NodeRepairs) Get(ctx context.Context, nodeID, id string) (Repair, error) {
	_, r, err := s.find(ctx, nil, nodeID, id)
	return r, err
}

// Edit changes a repair inside a job's transaction. One that is no longer kept is not changed.
func (s NodeRepairs) Edit(ctx context.Context, tx job.Tx, nodeID, id string, change func(*Repair)) error {
	n, err := s.nodes.store.Node(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	all, err := s.List(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(r Repair) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	change(&all[i])
	return s.save(tx, n, all)
}

// SavePart stores a part of a repair inside a job's transaction. One of a repair that is no longer kept, because the tenancy has ended, is not stored.
func (s NodeRepairs) SavePart(ctx context.Context, tx job.Tx, p RepairPart) error {
	switch _, _, err := s.find(ctx, tx, p.NodeID, p.RepairID); {
	case problem.Is(err, problem.NotFound):
		return nil
	case err != nil:
		return err
	}
	return s.nodes.store.SaveRepairPart(tx, p)
}

// Consent takes the consent of a user to the plan of a repair that waits for it. Conflict: it does not wait, or the digest is another
// plan's. Invalid: the plan needs another consent.
func (s NodeRepairs) Consent(ctx context.Context, ident, id string, consent RepairConsent, asker record.Asker) (Repair, error) {
	if err := checkConsents(consent.Consents); err != nil {
		return Repair{}, err
	}
	return s.change(ctx, ident, id, asker, func(n *Node, r *Repair) (string, error) {
		switch {
		case r.State != RepairAwaitingConsent || r.Consent != nil || r.Declined:
			return "", problem.Conflictf("node %s: repair %s is in state %s and waits for no consent; to carry its plan out: salvor repair %[1]s --digest DIGEST --consent CONSENTS", n.ID, r.ID, r.State)
		case consent.Digest != r.Digest:
			return "", problem.Conflictf("node %s: the plan of repair %s has another digest; read it again: salvor repair show %[1]s", n.ID, r.ID)
		}
		if err := r.admitConsent(n, consent.Consents); err != nil {
			return "", err
		}
		consent.By, consent.At = asker.User, s.nodes.now()
		r.Consent = &consent
		return consent.text(), nil
	})
}

// Decline ends the wait for a consent, and with that the rescue that the repair has made. Conflict: it waits for none.
func (s NodeRepairs) Decline(ctx context.Context, ident, id string, asker record.Asker) (Repair, error) {
	return s.change(ctx, ident, id, asker, func(n *Node, r *Repair) (string, error) {
		if r.State != RepairAwaitingConsent || r.Consent != nil {
			return "", problem.Conflictf("node %s: repair %s is in state %s and waits for no consent", n.ID, r.ID, r.State)
		}
		r.Declined = true
		return "declined the plan of repair " + r.ID, nil
	})
}

// text says in the timeline what was consented to.
func (c *RepairConsent) text() string {
	return "consented to " + joinConsents(c.Consents, ", ") + " of the repair with digest " + c.Digest
}

// AcceptDigest takes the digest that came with the request of a repair as the consent to its plan, in the transaction of a job.
func (s NodeRepairs) AcceptDigest(tx job.Tx, nodeID string, r *Repair, asker record.Asker) error {
	r.Consent = &RepairConsent{Digest: r.Digest, Consents: r.Args.Consents, By: r.RequestedBy, At: s.nodes.now()}
	return s.nodes.note(tx, nodeID, asker, "request", r.Consent.text())
}

// admitConsent refuses what does not cover the plan.
func (r *Repair) admitConsent(n *Node, given []diagnose.Consent) error {
	for _, need := range r.Needs {
		if !slices.Contains(given, need) {
			return problem.Invalidf("node %s: the plan of repair %s also needs the consent %q", n.ID, r.ID, need)
		}
	}
	return nil
}

// Confirm takes a user's statement that the repaired machine works.
func (s NodeRepairs) Confirm(ctx context.Context, ident, id string, asker record.Asker) (Repair, error) {
	return s.change(ctx, ident, id, asker, func(n *Node, r *Repair) (string, error) {
		switch r.State {
		case RepairBooting:
		case RepairWritten, RepairUnproven:
			if !r.Booted && n.ProvisionState.Info().InRescue {
				return "", problem.Conflictf("node %s is still in rescue; boot its own system first: salvor node unrescue %[1]s", n.ID)
			}
		default:
			return "", problem.Conflictf("node %s: repair %s is in state %s, and there is nothing to confirm", n.ID, r.ID, r.State)
		}
		r.State, r.ProvenBy, r.Problem = RepairProven, "confirmed by "+asker.User, ""
		return "confirmed that the machine works since repair " + r.ID, nil
	})
}

// change changes a repair for a user, and notes that in the timeline.
func (s NodeRepairs) change(ctx context.Context, ident, id string, asker record.Asker, edit func(*Node, *Repair) (string, error)) (Repair, error) {
	var out Repair
	err := s.nodes.jobs.Do(ctx, func(tx job.Tx) error {
		n, r, err := s.find(ctx, tx, ident, id)
		if err != nil {
			return err
		}
		text, err := edit(n, &r)
		if err != nil {
			return err
		}
		out = r
		if err := s.Edit(ctx, tx, n.ID, r.ID, func(kept *Repair) { *kept = r }); err != nil {
			return err
		}
		return s.nodes.note(tx, n.ID, asker, "request", text)
	})
	return out, err
}

// save keeps these repairs, and what undoes them.
func (s NodeRepairs) save(tx job.Tx, n *Node, all []Repair) error {
	keep := make([]string, 0, len(all))
	for _, r := range all {
		keep = append(keep, r.ID)
	}
	if err := saveList(s.nodes, tx, n, Repairs, all); err != nil {
		return err
	}
	return s.nodes.store.DropRepairParts(tx, n.ID, keep)
}

// DropTenancy removes what is kept of a node's disks and console for its owner: the diagnoses and the repairs, with what undoes them, and the console log.
func DropTenancy(store Store, tx job.Tx, nodeID string) error {
	for _, kind := range []DocumentKind{Diagnoses, Repairs, ConsoleLogDocument} {
		if err := store.DeleteDocument(tx, nodeID, kind); err != nil {
			return err
		}
	}
	return store.DropRepairParts(tx, nodeID, nil)
}
