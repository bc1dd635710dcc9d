package diagnose

import (
	"slices"
	"time"
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
