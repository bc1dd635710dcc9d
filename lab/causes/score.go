package causes

import (
	"slices"
	"time"

	"salvor/diagnose"
)

// Result is what a diagnosis made of a case: one line of the results file.
type Result struct {
	Case string `json:"case"`
	// Disks and Ramdisk say what was examined by what; a result of others is not counted.
	Disks   string    `json:"disks"`
	Ramdisk string    `json:"ramdisk"`
	When    time.Time `json:"when"`
	Outcome string    `json:"outcome"`
	// Cause is the finding that the verdict names.
	Cause string `json:"cause,omitempty"`
	// Named are the findings above info, in the order of the report.
	Named []string `json:"named"`
	Gaps  []string `json:"gaps"`
	// Seconds that the examination took; Answered counts from the command to the whole answer.
	Seconds  float64 `json:"seconds"`
	Answered float64 `json:"answered"`
	// Written is the ramdisk's own count of bytes that went to disks. Changed: the sum of a disk is another one afterwards.
	Written int64 `json:"written"`
	Changed bool  `json:"changed"`
	// Repair is Proven, NotProposed, or what kept a repair that was proposed from its proof. Empty: none was tried.
	Repair string          `json:"repair,omitempty"`
	Report diagnose.Report `json:"report"`
}

// Proven is the Repair of a system that was repaired, undone byte for byte, and repaired again, and that then booted to a login over ssh.
const Proven = "proven"

// NotProposed is the Repair of a fault for which the report proposes none.
const NotProposed = "not proposed"

// take fills in what the report says.
func (r *Result) take(report diagnose.Report) {
	r.Report, r.Seconds = report, report.ExaminedIn
	r.Outcome, r.Cause = string(report.Verdict.Outcome), report.Verdict.Finding
	r.Named, r.Gaps = []string{}, []string{}
	for _, f := range report.Findings {
		if f.Severity != diagnose.Info && !slices.Contains(r.Named, f.ID) {
			r.Named = append(r.Named, f.ID)
		}
	}
	for _, g := range report.NotExamined {
		r.Gaps = append(r.Gaps, g.What+": "+g.Why)
	}
}

// Mark is how a result is counted.
type Mark string

// Marks of results.
const (
	// Right: the cause comes first, and of two faults both are named; a healthy system has no finding above info.
	Right Mark = "right"
	// Wrong: another cause comes first, or a healthy system has one.
	Wrong Mark = "wrong"
	// Noise: a system that is well has a finding above info that is not called a cause.
	Noise Mark = "noise"
	// Unnamed: no cause is named, or not all of two.
	Unnamed Mark = "not named"
)

// JudgeResult compares what was said with the truth.
func JudgeResult(c Case, r Result) Mark {
	if len(c.Faults) == 0 {
		switch {
		case r.Cause != "":
			return Wrong
		case len(r.Named) > 0:
			return Noise
		}
		return Right
	}
	var first []string
	named := true
	for _, f := range c.Faults {
		if f.Effect == Blocks {
			first = append(first, f.IDs...)
		}
		named = named && slices.ContainsFunc(f.IDs, func(id string) bool { return slices.Contains(r.Named, id) })
	}
	// What only harms may still be called the cause.
	if len(first) == 0 {
		for _, f := range c.Faults {
			first = append(first, f.IDs...)
		}
		if r.Cause == "" && named {
			return Right
		}
	}
	switch {
	case r.Cause != "" && !slices.Contains(first, r.Cause):
		return Wrong
	case r.Cause == "" || !named:
		return Unnamed
	}
	return Right
}
