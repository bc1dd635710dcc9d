package oddsystem

import (
	"fmt"
	"slices"
	"strings"

	"salvor/diagnose"
)

// BlindFault is a change of an installed system that somebody chose from public reports, without knowledge of the rules.
type BlindFault struct {
	Name   string `json:"name"`
	System string `json:"system"`
	// Change has lines of bash, which change the system below $R.
	Change string `json:"change"`
	// Stages are those at which a fair judge may place the fault; empty for a near miss, which breaks nothing.
	Stages []diagnose.Stage `json:"stages,omitempty"`
	// Names are texts of which a right finding has one.
	Names []string `json:"names,omitempty"`
	// Why says what happens at the next start.
	Why string `json:"why"`
	// Source is the report from which the fault was taken.
	Source string `json:"source"`
}

// NearMiss says whether the change was chosen because it looks alarming and breaks nothing.
func (f BlindFault) NearMiss() bool { return len(f.Stages) == 0 }

// BlindResult is a BlindFault with what the system's own programs and the rules say.
type BlindResult struct {
	Fault BlindFault `json:"fault"`
	Result
}

// JudgeBlind compares what was said about a fault with the truth. A fault that broke nothing by truth is judged as a near miss.
func JudgeBlind(r BlindResult) Mark {
	if !r.Truth.Blocks() {
		if len(r.Findings) > 0 {
			return Noise
		}
		return Quiet
	}
	if r.Cause == "" {
		return Nothing
	}
	stages := r.Fault.Stages
	for _, b := range r.Truth.Broken() {
		stages = append(slices.Clone(stages), b.Stages...)
	}
	r.Names = r.Fault.Names
	for i := range r.Findings {
		if f := &r.Findings[i]; f.ID == r.Cause && slices.Contains(stages, f.Stage) && r.names(f) {
			return Right
		}
	}
	return Wrong
}

// BlindTitle begins the part of docs/blind-faults.md that this package writes.
const BlindTitle = "## A third list, on real disks"

// BlindSection is the score of a list of faults, as a section of docs/blind-faults.md.
func BlindSection(results []BlindResult) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	count := map[bool]map[Mark]int{true: {}, false: {}}
	broke := 0
	for _, r := range results {
		count[r.Truth.Blocks()][JudgeBlind(r)]++
		if r.Truth.Blocks() {
			broke++
		}
	}
	line("%s\n", BlindTitle)
	line("A writer who had read neither the rules nor the readers chose these from public reports, as changes of installed Debian systems. The programs of each")
	line("system, and a start of the machine in QEMU, say what broke. Then the rules were asked once. No case was left out afterwards.\n")
	line("| by truth | cases | named | nothing found | wrong cause | a finding above `info` |")
	line("|---|---|---|---|---|---|")
	line("| the owner is out | %d | %s | %s | %s | |", broke, share(count[true][Right], broke), share(count[true][Nothing], broke), share(count[true][Wrong], broke))
	line("| the owner comes in | %d | | | | %s |\n", len(results)-broke, share(count[false][Noise], len(results)-broke))
	line("| fault | system | what happens | broke | said | mark |")
	line("|---|---|---|---|---|---|")
	for _, r := range results {
		var rungs, said []string
		for _, rung := range r.Truth.Broken() {
			rungs = append(rungs, rung.Name)
		}
		for _, f := range r.Findings {
			said = append(said, f.ID)
		}
		line("| %s | %s | %s | %s | %s | %s |", r.Fault.Name, r.System, inTable(r.Fault.Why), strings.Join(rungs, ", "), strings.Join(said, ", "), JudgeBlind(r))
	}
	line("")
	return b.String()
}

// inTable is a text for a cell of a table.
func inTable(text string) string {
	return strings.NewReplacer("|", "/", "`", "'", "\n", " ").Replace(text)
}
