package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/problem"
)

// State is how far a diagnosis is.
type State string

// The states of a diagnosis.
const (
	Running  State = "running"
	Finished State = "finished"
	// Failed: it ended before it had done all that was asked for; Problem says why. What was found until then is in the report.
	Failed State = "failed"
)

// MaxRecords is how many diagnoses of one machine or server are kept.
const MaxRecords = 5

// Record is one look at a machine or a server, and what it found.
type Record struct {
	ID          string    `json:"id"`
	RequestedAt time.Time `json:"requested_at"`
	FinishedAt  time.Time `json:"finished_at,omitzero"`
	// RequestedBy is the user's name.
	RequestedBy string `json:"requested_by,omitempty"`
	State       State  `json:"state"`
	// Step says in words what it does now, or did last.
	Step    string `json:"step,omitempty"`
	Problem string `json:"problem,omitempty"`
	Report  Report `json:"report"`
}

// disks is what a gap names that is about all of them.
const disks = "disks"

// AddGap notes why something was not examined.
func (r *Record) AddGap(what, why string) {
	r.Report.NotExamined = append(r.Report.NotExamined, Gap{What: what, Why: Reason(why)})
}

// AddDiskGap notes why the disks were not examined.
func (r *Record) AddDiskGap(why string) { r.AddGap(disks, why) }

// AddExamination adds what an agent found on the disks. An agent that ran programs of the systems although the diagnosis was to read only is told of.
func (r *Record) AddExamination(x *Examination, onlyRead bool) {
	r.Report.Add(x)
	if onlyRead && len(r.Report.Asked) > 0 {
		r.AddGap(askedGap, "they ran although the diagnosis was to read only; build the ramdisk anew (salvor ramdisk build), and update salvor on the host of a server")
	}
}

// End sets the verdict, and the end. What nobody examined the disks of is not called healthy: why says the reason, where none is noted.
func (r *Record) End(state State, at time.Time, why string) {
	noted := slices.ContainsFunc(r.Report.NotExamined, func(g Gap) bool { return g.What == disks })
	if r.Report.ExaminedIn == 0 && !noted {
		r.AddDiskGap(why)
	}
	r.Report.Judge()
	r.State, r.FinishedAt = state, at
}

// Fail ends a diagnosis that came to nothing, and keeps what was found until then.
func (r *Record) Fail(at time.Time, why string) {
	r.End(Failed, at, why)
	r.Problem, r.Step = why, ""
}

// MaxWords bounds the words of a Confirmation, in bytes.
const MaxWords = 300

// Confirmation is the statement of a person that a machine works.
type Confirmation struct {
	// By is the user's name; empty: it is not known.
	By string
	// Words say how the person knows.
	Words string
	// At is the moment of the statement, as sentences show one.
	At string
}

// Confirm takes a person's statement as the proof that the machine works. kind and ident name the machine in errors, such as node and web-7. Invalid: the
// words are missing or too long. Conflict: the diagnosis still runs, has a proof already, or has a finding that may keep the machine from its work.
func (r *Record) Confirm(kind, ident string, c Confirmation) error {
	words := strings.TrimSpace(c.Words)
	switch {
	case words == "":
		return problem.Invalidf("words are missing: say how you know that %s %s works", kind, ident)
	case len(words) > MaxWords:
		return problem.Invalidf("the words have %d bytes; at most %d are taken", len(words), MaxWords)
	case r.State == Running:
		return problem.Conflictf("%s %s: diagnosis %s is under way; confirm when it has ended: salvor diagnosis show %[2]s", kind, ident, r.ID)
	case r.Report.Verdict.Outcome == Works:
		return problem.Conflictf("%s %s: diagnosis %s says already that it works", kind, ident, r.ID)
	}
	if f := r.Report.Suspect(); f != nil {
		return problem.Conflictf("%s %s: diagnosis %s found %s, which may keep it from its work; mend that first, or diagnose again if it is mended: salvor diagnose %[2]s", kind, ident, r.ID, Excerpt(f.ID))
	}
	by := c.By
	if by == "" {
		by = "a user"
	}
	r.Report.Proof = &Proof{Kind: ProofPerson, Text: fmt.Sprintf("%s confirmed it at %s: %s", Excerpt(by), c.At, Sentence(words))}
	r.Report.Judge()
	return nil
}

// ConfirmedEvent is the text of the timeline's event of a confirmation. It has no words of the person, because readers see the timeline.
func (r *Record) ConfirmedEvent() string { return "confirmed that it works, after diagnosis " + r.ID }
