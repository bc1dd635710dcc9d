package diagnose

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Report is what a diagnosis found, as it is stored and sent.
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Observed is what was read of the machine without a boot, in the order in which a person wants to read it.
	Observed []Observation `json:"observed"`
	// Findings are in the order of Judge.
	Findings []Finding `json:"findings"`
	// NotExamined lists what was left out and why.
	NotExamined []Gap           `json:"not_examined"`
	Disks       []ExaminedDisk  `json:"disks"`
	Systems     []SystemSummary `json:"systems"`
	// Asked lists the programs of the examined systems that ran to check their configuration, in the order in which they ran.
	Asked []AskedProgram `json:"asked,omitempty"`
	// Proof is what showed that the machine works while it was diagnosed; nil where nothing did.
	Proof *Proof `json:"proof,omitempty"`
	// ExaminedIn is how many seconds the look at the disks took; 0: there was none.
	ExaminedIn float64 `json:"examined_in"`
	// Recorded is the hardware that the newest inspection found; nil where there was none.
	Recorded *RecordedHardware `json:"recorded,omitempty"`
	// Changes are what was done to the machine through salvor, the oldest first.
	Changes []Change `json:"changes,omitempty"`
}

// Observation is one thing that was read of the machine.
type Observation struct {
	Name string `json:"name"` // power, boot device, ...
	Text string `json:"text"`
}

// SystemSummary names an installed operating system.
type SystemSummary struct {
	Root string `json:"root"`
	Name string `json:"name"`
	// HostKeys are the public ssh host keys of the system ("TYPE BASE64"). A later diagnosis asks sshd for one of them.
	HostKeys []string `json:"ssh_host_keys,omitempty"`
}

// HostKeys are the public ssh host keys of all examined systems, at most MaxHostKeys.
func (r *Report) HostKeys() []string {
	var out []string
	for _, s := range r.Systems {
		out = append(out, s.HostKeys...)
	}
	return out[:min(len(out), MaxHostKeys)]
}

// Judge puts the report's findings into their order and sets its verdict. Lists without elements are written as such and not as null.
func (r *Report) Judge() {
	r.Findings, r.Verdict = Judge(r.Findings)
	if r.Verdict.Outcome == NothingFound && r.Proof != nil && r.Suspect() == nil {
		r.Verdict.Outcome, r.Verdict.Proof = Works, r.Proof
	}
	r.Verdict.Ladder = r.ladder()
	r.Observed, r.Findings, r.NotExamined = notNil(r.Observed), notNil(r.Findings), notNil(r.NotExamined)
	r.Disks, r.Systems = notNil(r.Disks), notNil(r.Systems)
}

// Suspect is the first finding that may keep the machine from its work, however sure it is; nil: there is none.
func (r *Report) Suspect() *Finding {
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Severity == BlocksBoot || f.Severity == BlocksAccess })
	if i < 0 {
		return nil
	}
	return &r.Findings[i]
}

func notNil[E any](list []E) []E {
	if list == nil {
		return []E{}
	}
	return list
}

// Add takes in what an agent found on the disks, sanitized.
func (r *Report) Add(x *Examination) {
	clean := x.Sanitize()
	r.ExaminedIn = clean.Seconds
	r.Disks = append(r.Disks, clean.Disks...)
	r.NotExamined = append(r.NotExamined, clean.NotExamined...)
	for _, s := range clean.Systems {
		if s.Root != "" {
			r.Systems = append(r.Systems, SystemSummary{Root: s.Root, Name: s.Name, HostKeys: s.HostKeys})
		}
		for _, f := range s.Findings {
			f.System, f.Disk = s.Root, strings.Join(s.Disks, ", ")
			r.addFinding(f)
		}
		for _, a := range s.Asked {
			r.Asked = append(r.Asked, AskedProgram{System: s.Root, Answer: a})
		}
	}
	r.addSystems(clean.Systems)
	if clean.Hardware != nil {
		r.addLosses(clean.Hardware)
	}
}

// addFinding adds a finding. What each system shows alike, such as a failing disk, concerns the machine and is added once. A finding that files show,
// or whose repair writes files, belongs to its system.
func (r *Report) addFinding(f Finding) {
	if f.Repair != nil && f.Repair.Consent == ConsentFiles {
		r.Findings = append(r.Findings, f)
		return
	}
	for i := range r.Findings {
		other := &r.Findings[i]
		if other.ID == f.ID && other.Title == f.Title && other.System != f.System && reflect.DeepEqual(other.Evidence, f.Evidence) && !slices.ContainsFunc(f.Evidence, func(e Evidence) bool { return e.Kind == FromFile }) {
			other.System, other.Disk = "", ""
			return
		}
	}
	r.Findings = append(r.Findings, f)
}

// SeveralSystems is the finding of a machine with more than one installed system: the firmware decides which one boots.
const SeveralSystems = "systems-several"

// addSystems adds a finding where the machine has several installed systems.
func (r *Report) addSystems(systems []ExaminedSystem) {
	f := Finding{ID: SeveralSystems, Stage: Loader, Severity: Info, Confidence: 1,
		ByHand: "Each finding names its system. Look which disk the firmware boots before you repair another one."}
	for _, s := range systems {
		if s.Root != "" {
			f.Evidence = append(f.Evidence, Evidence{Kind: FromDevice, Path: s.Root, Text: strings.TrimSpace(s.Name + " on " + strings.Join(s.Disks, ", "))})
		}
	}
	if len(f.Evidence) < 2 {
		return
	}
	f.Title = fmt.Sprintf("The machine has %d installed systems, and one of them boots.", len(f.Evidence))
	r.Findings = append(r.Findings, sanitizeFinding(f))
}

// Sanitize gives the examination with texts that have passed Excerpt, and with lists of a bounded length. The agent runs on the machine that
// is examined, so its texts are the machine's.
func (x *Examination) Sanitize() Examination {
	out := Examination{Version: x.Version, Seconds: max(0, min(x.Seconds, maxSeconds)), Disks: []ExaminedDisk{}, NotExamined: []Gap{}, Systems: []ExaminedSystem{}}
	for _, d := range x.Disks[:min(len(x.Disks), maxParts)] {
		d.Path, d.Model, d.Serial = Excerpt(d.Path), Excerpt(d.Model), Excerpt(d.Serial)
		d.Size, d.Written, d.Changed = Clamp(d.Size, 0, MaxBytes), Clamp(d.Written, 0, MaxBytes), Clamp(d.Changed, 0, MaxBytes)
		out.Disks = append(out.Disks, d)
	}
	for _, g := range x.NotExamined[:min(len(x.NotExamined), maxParts)] {
		out.NotExamined = append(out.NotExamined, Gap{What: Excerpt(g.What), Why: Reason(g.Why)})
	}
	strange := 0
	for _, s := range x.Systems[:min(len(x.Systems), maxParts)] {
		clean := ExaminedSystem{Root: Excerpt(s.Root), Name: Excerpt(s.Name), Disks: excerptAll(s.Disks), Findings: []Finding{}, Asked: sanitizeAnswers(s.Asked), HostKeys: sanitizeHostKeys(s.HostKeys)}
		for _, f := range s.Findings[:min(len(s.Findings), maxParts)] {
			if !slices.Contains(Stages(), f.Stage) || !slices.Contains(severities, f.Severity) {
				strange++
				continue
			}
			clean.Findings = append(clean.Findings, sanitizeFinding(f))
		}
		out.Systems = append(out.Systems, clean)
	}
	if strange > 0 {
		out.NotExamined = append(out.NotExamined[:min(len(out.NotExamined), maxParts-1)], Gap{What: fmt.Sprintf("%d findings of the agent", strange), Why: "their stage or severity is none that salvor knows; build the ramdisk anew: salvor ramdisk build"})
	}
	if x.Hardware != nil {
		now := sanitizeHardware(*x.Hardware)
		out.Hardware = &now
	}
	return out
}

// Bounds of the numbers of a report: an agent may send any.
const (
	// MaxBytes bounds a size in bytes. It is 1 EiB.
	MaxBytes = 1 << 60
	// maxSeconds bounds a time. It is about 11 days.
	maxSeconds = 1e6
	maxLine    = 1 << 30
	maxParts   = 200 // of each list
)

// Clamp gives the number of a range that is nearest to a number of an agent.
func Clamp[N int | int64](n, least, most N) N { return max(least, min(n, most)) }

// ClampExit gives an exit status: -1 for a program that did not end by itself, and 0 to 255.
func ClampExit(exit int) int { return Clamp(exit, -1, 255) }

// severities are those that a finding may have.
var severities = []Severity{BlocksBoot, BlocksAccess, Degrades, Info}

// sanitizeFinding gives a finding with texts that are safe to store and to show, and with no more of them than a report has room for.
func sanitizeFinding(f Finding) Finding {
	f.ID, f.Stage, f.Severity = Excerpt(f.ID), Stage(Excerpt(string(f.Stage))), Severity(Excerpt(string(f.Severity)))
	f.Title, f.ByHand, f.System, f.Disk = Sentence(f.Title), Sentence(f.ByHand), Excerpt(f.System), Excerpt(f.Disk)
	f.Confidence = min(max(f.Confidence, 0), 1)
	f.Explains = excerptAll(f.Explains)
	evidence := make([]Evidence, 0, len(f.Evidence))
	for _, e := range f.Evidence[:min(len(f.Evidence), maxFindings)] {
		e.Kind, e.Path, e.Text, e.Command = EvidenceKind(Excerpt(string(e.Kind))), Excerpt(e.Path), Line(e.Path, e.Text), excerptAll(e.Command)
		e.Line = Clamp(e.Line, 0, maxLine)
		if e.Exit != nil {
			exit := ClampExit(*e.Exit)
			e.Exit = &exit
		}
		evidence = append(evidence, e)
	}
	f.Evidence = evidence
	if f.Repair != nil {
		r := *f.Repair
		r.Summary, r.Loses, r.Consent, r.Writes = Sentence(r.Summary), Sentence(r.Loses), Consent(Excerpt(string(r.Consent))), excerptAll(r.Writes)
		f.Repair = &r
	}
	return f
}

func excerptAll(texts []string) []string {
	var out []string
	for _, t := range texts[:min(len(texts), maxFindings)] {
		out = append(out, Excerpt(t))
	}
	return out
}
