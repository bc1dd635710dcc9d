package metal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/repair"
)

// Kinds of the jobs of a repair. JobRepair leads through it and locks nothing; JobWriteRepair writes to the disks and locks the node.
const (
	JobRepair      job.Kind = "repair"
	JobWriteRepair job.Kind = "write repair"
)

// Repairs is the document with the newest repairs of a node, without their plans. It is sealed, and ends with the tenancy.
const Repairs DocumentKind = "repairs"

const (
	// maxRepairs is how many repairs of a node are kept, with what undoes them.
	maxRepairs = 3
	// maxRepairFindings bounds a request.
	maxRepairFindings = 100
	// ConsentTime is how long a machine stays in rescue until the owner consents to the plan.
	ConsentTime = 10 * time.Minute
)

// RepairState is how far a repair is.
type RepairState string

// The states of a repair.
const (
	RepairPlanning RepairState = "planning"
	// RepairAwaitingConsent: the plan is there, and the machine waits in rescue for the owner's consent.
	RepairAwaitingConsent RepairState = "awaiting-consent"
	// RepairPlanned: it ended with its plan, and nothing was written.
	RepairPlanned RepairState = "planned"
	RepairWriting RepairState = "writing"
	// RepairWritten: the disks are repaired, and the machine is still in rescue.
	RepairWritten RepairState = "written"
	// RepairBooting: the machine's own system boots and has to prove itself.
	RepairBooting RepairState = "booting"
	RepairProven  RepairState = "proven"
	// RepairUnproven: the machine did not prove in time that it works.
	RepairUnproven RepairState = "unproven"
	RepairUndone   RepairState = "undone"
	// RepairFailed: nothing was written. RepairRolledBack: the disks hold again what they held before.
	RepairFailed     RepairState = "failed"
	RepairRolledBack RepairState = "rolled-back"
	// RepairInterrupted: the disks are half-written, and nobody could take that back. An undo can.
	RepairInterrupted RepairState = "interrupted"
)

// repairFault is the fault of a node that is in maintenance because a repair left its disks half-written.
const repairFault = string(JobWriteRepair) + " abort failure"

// IsRepairFault tells whether the node is in maintenance because a repair left its disks half-written.
func IsRepairFault(n *Node) bool { return n.Maintenance && n.Fault == repairFault }

// UndoMethod is how a repair can be taken back.
type UndoMethod string

// UndoExact puts each chunk back, which needs that the machine's own system has not booted since. UndoFiles puts those files back that still
// are what the repair made of them.
const (
	UndoExact UndoMethod = "exact"
	UndoFiles UndoMethod = "files"
	UndoNone  UndoMethod = "none"
)

// Repair is one repair of a machine, or the undo of one.
type Repair struct {
	ID          string    `json:"id"`
	RequestedAt time.Time `json:"requested_at"`
	FinishedAt  time.Time `json:"finished_at,omitzero"`
	// RequestedBy is the user's name.
	RequestedBy string      `json:"requested_by,omitempty"`
	Args        RepairArgs  `json:"args"`
	State       RepairState `json:"state"`
	// Step says in words what it does now, or did last.
	Step    string `json:"step,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Digest names the plan, and Needs lists the consents without which it is not carried out. Both are empty until the plan is there.
	Digest string             `json:"digest,omitempty"`
	Needs  []diagnose.Consent `json:"needs,omitempty"`
	// Consent is who agreed to the plan; nil: nobody did.
	Consent *RepairConsent `json:"consent,omitempty"`
	// ConsentUntil is when the wait for a consent ends. Declined: somebody has ended it.
	ConsentUntil time.Time `json:"consent_until,omitzero"`
	Declined     bool      `json:"declined,omitempty"`
	WrittenAt    time.Time `json:"written_at,omitzero"`
	// Session is when the rescue session began in which it was written, and SessionBegun the session's Begun then.
	Session      time.Time `json:"session,omitzero"`
	SessionBegun int       `json:"session_begun,omitempty"`
	// Booted: the machine's own system may have booted since the writing began.
	Booted bool `json:"booted,omitempty"`
	// UndoBytes is the size of the kept before-images, which lie in UndoPages parts. UndoFiles counts the files that can be put back one by one.
	UndoBytes int64 `json:"undo_bytes"`
	UndoPages int   `json:"undo_pages"`
	UndoFiles int   `json:"undo_files"`
	// ProofUntil is when the wait for a proof ends. ProvenBy says how the machine proved that it works.
	ProofUntil time.Time `json:"proof_until,omitzero"`
	ProvenBy   string    `json:"proven_by,omitempty"`
	// Addresses are those at which the rescue system answered, and at which the repaired system is asked for a proof.
	Addresses []string `json:"addresses,omitempty"`
	// FoundOff: the machine was off when it was booted into the rescue.
	FoundOff bool `json:"found_off,omitempty"`
}

// RepairConsent is the consent of a user to a plan.
type RepairConsent struct {
	Digest   string             `json:"digest"`
	Consents []diagnose.Consent `json:"consents"`
	By       string             `json:"by,omitempty"`
	At       time.Time          `json:"at,omitzero"`
}

// RepairArgs are what may come with the request of a repair.
type RepairArgs struct {
	// Findings lists the ids to mend; empty: all that the consents allow.
	Findings []string `json:"findings,omitempty"`
	// Consents lists what the plan may change: settings, files, boot.
	Consents []diagnose.Consent `json:"consents,omitempty"`
	// Reboot allows to restart a machine that is on into the rescue ramdisk.
	Reboot bool `json:"reboot,omitempty"`
	// KeepRescue leaves the machine in rescue when the disks have been written.
	KeepRescue bool `json:"keep_rescue,omitempty"`
	// Digest carries the repair out at once if it is that of the plan. Any other plan is refused.
	Digest string `json:"digest,omitempty"`
	// WaitForConsent keeps the machine in rescue for ConsentTime until somebody consents to the plan.
	WaitForConsent bool `json:"wait_for_consent,omitempty"`
	// Undoes is the id of the repair that this one takes back, and Method how.
	Undoes string     `json:"undoes,omitempty"`
	Method UndoMethod `json:"method,omitempty"`
	// LUKSKeys open encrypted disks. They lie sealed in the row of the job until the agent has them.
	LUKSKeys []diagnose.LUKSKey `json:"-"`
}

// check refuses a request that no agent could carry out.
func (a *RepairArgs) check() error {
	if err := checkConsents(a.Consents); err != nil {
		return err
	}
	if !isDigest(a.Digest) && a.Digest != "" {
		return problem.Invalidf("digest: %.70q is no digest of a plan; salvor repair NODE --plan shows it", a.Digest)
	}
	if len(a.Findings) > maxRepairFindings {
		return problem.Invalidf("findings: a repair mends at most %d findings", maxRepairFindings)
	}
	for _, f := range a.Findings {
		if f == "" || len(f) > 100 || strings.Trim(f, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return problem.Invalidf("findings: %.60q is no id of a finding; the ids are in the report: salvor diagnosis show NODE", f)
		}
	}
	if a.Digest != "" && a.WaitForConsent {
		return problem.Invalidf("digest and wait_for_consent: give one of them; a digest is the consent")
	}
	return nil
}

// isDigest tells whether a text has the form of a plan's digest: at most 64 hexadecimal digits.
func isDigest(text string) bool {
	return text != "" && len(text) <= 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// maxConsents bounds a list of consents, of which there are four.
const maxConsents = 4

func checkConsents(consents []diagnose.Consent) error {
	if len(consents) > maxConsents {
		return problem.Invalidf("consents: there are %d; name each of settings, files and boot once", len(consents))
	}
	for _, c := range consents {
		switch c {
		case diagnose.ConsentSettings, diagnose.ConsentFiles, diagnose.ConsentBoot:
		case diagnose.ConsentData:
			return problem.Invalidf("consents: salvor carries no repair out that may lose data; the finding says what a person can do")
		default:
			return problem.Invalidf("consents: %.40q is not known; use settings, files or boot", c)
		}
	}
	return nil
}

// end ends a repair whose job is gone. What was being written then may be half-written, which the node itself notes.
func (r *Repair) end(now time.Time, why string) {
	r.FinishedAt, r.Problem = now, why
	switch r.State {
	case RepairPlanning, RepairAwaitingConsent:
		r.State = RepairFailed
	case RepairWriting:
		r.State = RepairInterrupted
	case RepairBooting:
		r.State = RepairUnproven
	}
}

// IsRunning tells whether the repair's job works on it.
func (r *Repair) IsRunning() bool { return r.FinishedAt.IsZero() }

// RepairPart is a part of what is kept of a repair beside the document. It is sealed.
type RepairPart struct {
	NodeID, RepairID string
	// Name is unique in its repair: RepairPlanPart, RepairFilesPart, or RepairImagesPart and a number.
	Name string
	Body []byte
}

// Names of parts. The plan is a repair.Plan as the agent made it. The files are a list of agent.RestoreFile. The images are a page of
// before-images each, an agent.ImagePage.
const (
	RepairPlanPart  = "plan"
	RepairFilesPart = "files"
)

// RepairImagesPart is the name of a page of before-images; pages count from 1.
func RepairImagesPart(page int) string { return fmt.Sprintf("images-%06d", page) }

// RepairStore keeps the parts of repairs.
type RepairStore interface {
	// RepairPart reads one; problem.NotFound if there is none.
	RepairPart(ctx context.Context, tx job.Tx, nodeID, repairID, name string) (RepairPart, error)
	// SaveRepairPart writes one over what was there; problem.NotFound if the node is gone.
	SaveRepairPart(tx job.Tx, p RepairPart) error
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
			open, err := s.nodes.jobs.Unended(tx, job.Node(n.ID))
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(open, func(j job.Job) bool { return j.ID == all[0].ID }) {
				all[0].end(s.nodes.now(), "its job was dropped when the database was restored")
			}
		}
		if len(all) > 0 && all[0].IsRunning() {
			return problem.Conflictf("node %s is being repaired since %s; to see how far that is: salvor repair show %[1]s", n.ID, all[0].RequestedAt.UTC().Format(time.DateTime))
		}
		if r := interruptedRepair(all, args.Undoes); r != nil {
			return problem.Conflictf("node %s: the disks are half-written by repair %s; first run: salvor repair undo %[1]s %[2]s", n.ID, r.ID)
		}
		j := &job.Job{Kind: JobRepair, Class: job.Ask, Subject: job.Node(n.ID), Group: n.ConductorGroup, Args: raw, Secret: keys, RequestID: asker.RequestID, User: asker.User}
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
		case RepairBooting, RepairUnproven:
		case RepairWritten:
			if n.ProvisionState.Info().InRescue {
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

// DropTenancy removes what is kept of a node's disks for its owner: the diagnoses and the repairs, with what undoes them.
func DropTenancy(store Store, tx job.Tx, nodeID string) error {
	for _, kind := range []DocumentKind{Diagnoses, Repairs} {
		if err := store.DeleteDocument(tx, nodeID, kind); err != nil {
			return err
		}
	}
	return store.DropRepairParts(tx, nodeID, nil)
}
