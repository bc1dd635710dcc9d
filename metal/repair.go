package metal

import (
	"fmt"
	"strings"
	"time"

	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
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
	// RepairUnproven: the disks are written, and the machine did not prove that it works: not in time, or its repair failed afterward.
	RepairUnproven RepairState = "unproven"
	RepairUndone   RepairState = "undone"
	// RepairFailed: nothing was written. RepairRolledBack: the disks hold again what they held before.
	RepairFailed     RepairState = "failed"
	RepairRolledBack RepairState = "rolled-back"
	// RepairInterrupted: the disks are half-written, and nobody could take that back. An undo can. Or the release of a restored database ended the
	// job that writes, so nobody knows what the disks hold.
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
	// Losses are what the plan may lose, as people are shown it beside the digest.
	Losses []repair.Loss `json:"losses,omitempty"`
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
	// UndoDropped is when its plan and what undoes it were dropped, because the repairs of its project took too much of the database.
	UndoDropped time.Time `json:"undo_dropped,omitzero"`
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
	// Root is the device of the system to mend, where several have something to mend.
	Root string `json:"root,omitempty"`
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
	if len(a.Root) > maxRootName || a.Root != "" && (!strings.HasPrefix(a.Root, "/dev/") || strings.Trim(a.Root, rootLetters) != "") {
		return problem.Invalidf("root: %.60q is no device of a system; the devices are in the report: salvor diagnosis show NODE", a.Root)
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

const (
	// maxRootName bounds the path of a device, in bytes.
	maxRootName = 200
	// rootLetters are the characters of the paths that udev makes below /dev.
	rootLetters = `abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/#+-.:=@_\`
)

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
	case RepairWritten, RepairBooting:
		r.setUnproven(why)
	}
}

// setUnproven ends a repair that has written to the disks and failed afterward.
func (r *Repair) setUnproven(why string) {
	r.State, r.Problem = RepairUnproven, "the disks are written, and the machine has not proved since that it works: "+why
}

// Fail ends a repair whose job failed. What the job that writes has said of the disks stays.
func (r *Repair) Fail(now time.Time, why string) {
	r.FinishedAt = now
	switch r.State {
	case RepairWritten, RepairBooting:
		r.setUnproven(why)
	case RepairPlanning, RepairAwaitingConsent, RepairPlanned:
		r.State, r.Problem = RepairFailed, why
	case RepairInterrupted, RepairRolledBack:
	default:
		r.Problem = why
	}
}

// Write notes that the disks are written. A repair whose job failed meanwhile awaits no proof.
func (r *Repair) Write(now time.Time) {
	r.State, r.WrittenAt, r.Step = RepairWritten, now, "the disks are written"
	if !r.IsRunning() {
		r.setUnproven(r.Problem)
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
