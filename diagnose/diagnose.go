// Package diagnose says why a machine does not boot, or why nobody can log in to it. It holds the types of a diagnosis: what was found on the
// machine's disks, the findings that rules make of it, and the verdict. It is pure: the agent in the ramdisk and the conductor collect the
// evidence, diagnose/system holds the rules about an installed operating system.
//
// The ids of findings, stages, severities and consents are stored, sent and typed by users, so they never change.
package diagnose

import (
	"cmp"
	"slices"
	"time"
)

// Stage is a step of a boot, from the power to a login. A machine reaches its stages in the order of Stages.
type Stage string

// The stages of a boot. Target is what the init system starts by default, such as multi-user.target.
const (
	Power     Stage = "power"
	Firmware  Stage = "firmware"
	Loader    Stage = "loader"
	Kernel    Stage = "kernel"
	Initramfs Stage = "initramfs"
	Root      Stage = "root"
	Init      Stage = "init"
	Target    Stage = "target"
	Network   Stage = "network"
	SSHD      Stage = "sshd"
	Login     Stage = "login"
)

// Stages lists all stages in the order in which a machine reaches them.
func Stages() []Stage {
	return []Stage{Power, Firmware, Loader, Kernel, Initramfs, Root, Init, Target, Network, SSHD, Login}
}

// Severity says what a finding does to its machine.
type Severity string

const (
	// BlocksBoot: with this the machine does not reach its default target.
	BlocksBoot Severity = "blocks-boot"
	// BlocksAccess: the machine boots, but nobody can log in.
	BlocksAccess Severity = "blocks-access"
	// Degrades: the machine boots and takes logins, but something is lost or about to fail.
	Degrades Severity = "degrades"
	// Info is worth knowing and harms nothing by itself.
	Info Severity = "info"
)

// Consent is what an owner has to agree to before a repair is carried out.
type Consent string

const (
	// ConsentSettings covers settings outside of the disks: boot order, EFI boot entries, clock.
	ConsentSettings Consent = "settings"
	// ConsentFiles covers contents of files, each of which can be restored by itself.
	ConsentFiles Consent = "files"
	// ConsentBoot covers boot loaders, partition tables and other ranges of blocks.
	ConsentBoot Consent = "boot"
	// ConsentData covers what may lose data. Such a repair is described and never carried out.
	ConsentData Consent = "data"
)

// DiskFailing is the finding that keeps every repair from being carried out.
const DiskFailing = "disk-failing"

// Finding is one thing that a rule found wrong, with what shows it.
type Finding struct {
	// ID names the rule, such as fstab-device-missing.
	ID       string   `json:"id"`
	Stage    Stage    `json:"stage"`
	Severity Severity `json:"severity"`
	// Confidence is the probability, from 0 to 1, that the finding is true and has the effect that Severity names.
	Confidence float64 `json:"confidence"`
	// Title is one sentence: what is wrong, on what.
	Title string `json:"title"`
	// System is the device that holds the root of the system in which it was found, and Disk the disks that hold this root. Both are empty for what
	// concerns the machine and no installed system.
	System string `json:"system,omitempty"`
	Disk   string `json:"disk,omitempty"`
	// Evidence is never empty.
	Evidence []Evidence `json:"evidence"`
	// Explains lists ids of findings that are consequences of this one.
	Explains []string `json:"explains,omitempty"`
	// Repair is what salvor can do about it; nil where it can do nothing.
	Repair *Repair `json:"repair,omitempty"`
	// ByHand says what a person can do, in one or two sentences.
	ByHand string `json:"by_hand,omitempty"`
}

// EvidenceKind says where a piece of evidence comes from.
type EvidenceKind string

// Kinds of evidence.
const (
	FromFile     EvidenceKind = "file"     // Path, Line and Text, or what is wrong with the file as Text
	FromTool     EvidenceKind = "tool"     // Command, Exit and an excerpt of the output as Text
	FromDevice   EvidenceKind = "device"   // Path of a device and what was read of it as Text
	FromConsole  EvidenceKind = "console"  // Text of the serial console
	FromEventLog EvidenceKind = "eventlog" // Text of an entry of the BMC's event log
	FromBMC      EvidenceKind = "bmc"      // what the BMC reports now
	FromRecord   EvidenceKind = "record"   // what salvor has stored about the machine
)

// Evidence is what shows a finding. Text passes Excerpt: it holds no control character and no secret that Excerpt knows.
type Evidence struct {
	Kind EvidenceKind `json:"kind"`
	// Path is absolute within the examined system, or names a device as the ramdisk's kernel does.
	Path string `json:"path,omitempty"`
	// Line counts from 1; 0 where no line is meant.
	Line    int      `json:"line,omitempty"`
	Command []string `json:"command,omitempty"`
	Exit    *int     `json:"exit,omitempty"`
	Text    string   `json:"text,omitempty"`
	// At is when it happened, where that is known.
	At time.Time `json:"at,omitzero"`
}

// Repair is what salvor would do about a finding.
type Repair struct {
	// Summary is one sentence.
	Summary string  `json:"summary"`
	Consent Consent `json:"consent"`
	// Writes lists the files, devices or settings that change.
	Writes []string `json:"writes"`
	// Loses says in a sentence what the repair may lose; empty where it loses nothing.
	Loses string `json:"loses,omitempty"`
}

// Gap is a part of the machine that was not examined.
type Gap struct {
	What string `json:"what"` // a device or a file system
	Why  string `json:"why"`
}

// Examination is what the agent found on a machine's disks, and the answer to its command.
type Examination struct {
	// Version of this document: ExaminationVersion.
	Version int `json:"version"`
	// Seconds that the examination took.
	Seconds float64        `json:"seconds"`
	Disks   []ExaminedDisk `json:"disks"`
	// NotExamined lists what was left out and why.
	NotExamined []Gap            `json:"not_examined"`
	Systems     []ExaminedSystem `json:"systems"`
	// Hardware is what the machine has now; nil: the agent does not say.
	Hardware *Hardware `json:"hardware,omitempty"`
}

// ExaminationVersion is the version of the document that an agent of this release answers with.
const ExaminationVersion = 1

// ExaminedDisk is one disk of the machine.
type ExaminedDisk struct {
	Path   string `json:"path"`
	Model  string `json:"model,omitempty"`
	Serial string `json:"serial,omitempty"`
	Size   int64  `json:"size"` // bytes
	// Written is how many bytes went to the disk during the examination, by the kernel's own count. It is 0.
	Written int64 `json:"written"`
	// Changed is how many bytes the overlay took, mostly by journals that were replayed in it.
	Changed int64 `json:"changed_in_overlay"`
}

// ExaminedSystem is one installed operating system, or what lies outside of any where Root is empty.
type ExaminedSystem struct {
	// Root is the device that holds its root file system.
	Root string `json:"root,omitempty"`
	// RootDevice is the same device by the name that the agent gave it; crypttab may give an opened container another one.
	RootDevice string `json:"-"`
	// Disks are the paths of the disks that hold the root.
	Disks []string `json:"disks,omitempty"`
	// Name is the PRETTY_NAME of its os-release.
	Name     string    `json:"name,omitempty"`
	Findings []Finding `json:"findings"`
	// Asked lists the system's own programs that ran, and how they ended.
	Asked []Answer `json:"asked,omitempty"`
	// HostKeys are the public ssh host keys ("TYPE BASE64"), at most MaxHostKeys.
	HostKeys []string `json:"ssh_host_keys,omitempty"`
}

// Outcome sums a diagnosis up.
type Outcome string

const (
	// CauseFound: Verdict.Finding is why the machine does not boot or takes no login.
	CauseFound Outcome = "cause-found"
	// NothingFound: no rule found a fault that keeps the machine from its work. The ladder says what was examined. The verdict does not claim that the
	// machine works.
	NothingFound Outcome = "nothing-found"
	// Works: the machine has shown that it works, and Verdict.Proof says how.
	Works Outcome = "works"
)

// Outcomes that older releases stored in reports. UnmarshalText reads both as NothingFound, and this release writes neither. Clients may still know them.
const (
	formerHealthy Outcome = "healthy"
	formerUnknown Outcome = "unknown"
)

// FormerOutcomes lists the outcomes that the schema of reports keeps for one more release.
func FormerOutcomes() []Outcome { return []Outcome{formerHealthy, formerUnknown} }

// UnmarshalText reads an outcome. The outcomes of older releases become NothingFound, because "healthy" claimed more than the rules knew.
func (o *Outcome) UnmarshalText(text []byte) error {
	*o = Outcome(text)
	if slices.Contains(FormerOutcomes(), *o) {
		*o = NothingFound
	}
	return nil
}

// ProofKind says how a machine has shown that it works.
type ProofKind string

// Kinds of proof.
const (
	ProofLogin  ProofKind = "login-prompt" // on its console, in the newest boot
	ProofSSHD   ProofKind = "sshd-banner"  // with a host key that lies on its disk
	ProofPerson ProofKind = "person"       // someone has logged in and says so
)

// Proof is what shows that a machine works.
type Proof struct {
	Kind ProofKind `json:"kind"`
	Text string    `json:"text"`
}

// Verdict names the cause.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Finding is the id of the cause; empty unless Outcome is CauseFound.
	Finding string `json:"finding,omitempty"`
	// Stage is the first one that the machine does not get through; empty unless Outcome is CauseFound.
	Stage Stage `json:"stage,omitempty"`
	// Consequences are the ids of findings that the cause explains; they may pass with it.
	Consequences []string `json:"consequences,omitempty"`
	// Proof is what shows that the machine works; nil unless Outcome is Works.
	Proof *Proof `json:"proof,omitempty"`
	// Ladder says for each stage of the boot how much of it was examined. Reports of older releases have none.
	Ladder []Rung `json:"ladder,omitempty"`
}

// leastConfidence is what a finding needs to be named as the cause: below it, nothing is said rather than something wrong.
const leastConfidence = 0.5

// Judge puts the findings into their order and names the cause: of those that block something, the one at the lowest stage that no other one
// explains; at one stage the most confident. What only a console shows is a symptom, and the cause only where nothing else is.
func Judge(findings []Finding) ([]Finding, Verdict) {
	sorted := slices.Clone(findings)
	slices.SortStableFunc(sorted, compareFindings)
	explained := map[string]bool{}
	for _, f := range sorted {
		if f.blocks() {
			for _, id := range f.Explains {
				explained[id] = explained[id] || id != f.ID
			}
		}
	}
	for _, ofSymptoms := range []bool{false, true} {
		for _, f := range sorted {
			if f.blocks() && !explained[f.ID] && f.isSymptom() == ofSymptoms {
				return sorted, Verdict{Outcome: CauseFound, Finding: f.ID, Stage: f.Stage, Consequences: presentIDs(sorted, append(slices.Clone(f.Explains), symptomsFrom(sorted, &f)...))}
			}
		}
	}
	return sorted, Verdict{Outcome: NothingFound}
}

// blocks says whether the finding may be named as a cause.
func (f *Finding) blocks() bool {
	return (f.Severity == BlocksBoot || f.Severity == BlocksAccess) && f.Confidence >= leastConfidence
}

// MaxConsole is how many bytes of the end of a console's text are read and kept.
const MaxConsole = 256 << 10

// isSymptom says whether only a console shows the finding.
func (f *Finding) isSymptom() bool {
	return len(f.Evidence) > 0 && !slices.ContainsFunc(f.Evidence, func(e Evidence) bool { return e.Kind != FromConsole })
}

// symptomsFrom are the ids of symptoms at the stage of a cause or at later ones.
func symptomsFrom(findings []Finding, cause *Finding) []string {
	var out []string
	stages := Stages()
	for _, f := range findings {
		if f.ID != cause.ID && f.isSymptom() && slices.Index(stages, f.Stage) >= slices.Index(stages, cause.Stage) && !slices.Contains(cause.Explains, f.ID) {
			out = append(out, f.ID)
		}
	}
	return out
}

// Symptoms are the findings of a report that only a console shows.
func (r *Report) Symptoms() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !f.isSymptom() })
}

// compareFindings orders by what a reader wants first: what blocks, by stage, then the rest by severity.
func compareFindings(a, b Finding) int {
	severities := []Severity{BlocksBoot, BlocksAccess, Degrades, Info}
	group := func(f Finding) int { // both kinds of blocks are one group: the lower stage comes first
		return max(slices.Index(severities, f.Severity), 1)
	}
	stages := Stages()
	return cmp.Or(
		cmp.Compare(group(a), group(b)),
		cmp.Compare(slices.Index(stages, a.Stage), slices.Index(stages, b.Stage)),
		cmp.Compare(b.Confidence, a.Confidence),
		cmp.Compare(a.ID, b.ID),
	)
}

// presentIDs keeps those ids that are among the findings.
func presentIDs(findings []Finding, ids []string) []string {
	var out []string
	for _, id := range ids {
		if slices.ContainsFunc(findings, func(f Finding) bool { return f.ID == id }) {
			out = append(out, id)
		}
	}
	return out
}
