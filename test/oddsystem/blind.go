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

// IsOut says whether the owner is out: by truth where the machine was started, else by the author of the list.
func (r BlindResult) IsOut() bool {
	if _, started := r.Truth["boot"]; started {
		return r.Truth.Blocks()
	}
	return !r.Fault.NearMiss()
}

// JudgeBlind compares what was said about a fault with the truth. A fault that keeps nobody out by truth is judged as a near miss.
func JudgeBlind(r BlindResult) Mark {
	if !r.IsOut() {
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
	for i := range r.Findings {
		if f := &r.Findings[i]; f.ID == r.Cause && slices.Contains(stages, f.Stage) && r.Fault.isNamedBy(f) {
			return Right
		}
	}
	return Wrong
}

// isNamedBy says whether a finding has one of the texts of a right one, in any case.
func (f BlindFault) isNamedBy(found *diagnose.Finding) bool {
	said := found.Title
	for _, e := range found.Evidence {
		said += "\n" + e.Path + "\n" + e.Text
	}
	said = strings.ToLower(said)
	return slices.ContainsFunc(f.Names, func(name string) bool { return strings.Contains(said, strings.ToLower(name)) })
}

// BlindTitle begins the part of docs/blind-faults.md that this package writes.
const BlindTitle = "## A third list, on real disks"

// BlindSection is the score of a list of faults, as a section of docs/blind-faults.md.
func BlindSection(results []BlindResult) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	count, of, started := map[bool]map[Mark]int{true: {}, false: {}}, map[bool]int{}, 0
	for _, r := range results {
		count[r.IsOut()][JudgeBlind(r)]++
		of[r.IsOut()]++
		if _, was := r.Truth["boot"]; was {
			started++
		}
	}
	line("%s\n", BlindTitle)
	line("A writer who had read neither the rules nor the readers chose %d changes of installed Debian systems from public reports. The rules were asked once, and", len(results))
	line("no case was left out afterwards. %d of the changed systems were started in QEMU, which says whether the owner comes in; of the others the writer says it.", started)
	line("The rules read files alone. The system's own programs, which an agent asks too, were not asked.\n")
	line("| | cases | named | nothing found | wrong cause | a finding above `info` |")
	line("|---|---|---|---|---|---|")
	line("| the owner is out | %d | %s | %s | %s | |", of[true], share(count[true][Right], of[true]), share(count[true][Nothing], of[true]), share(count[true][Wrong], of[true]))
	line("| the owner comes in | %d | | | | %s |\n", of[false], share(count[false][Noise], of[false]))
	line("| change | system | what happens | started | said | mark |")
	line("|---|---|---|---|---|---|")
	for _, r := range results {
		var said []string
		start := "-"
		if _, was := r.Truth["boot"]; was {
			start = map[bool]string{true: "the owner is out", false: "the owner comes in"}[r.IsOut()]
		}
		for _, f := range r.Findings {
			said = append(said, f.ID)
		}
		line("| %s | %s | %s | %s | %s | %s |", r.Fault.Name, r.System, inTable(r.Fault.Why), start, strings.Join(said, ", "), JudgeBlind(r))
	}
	return b.String()
}

// inTable is a text for a cell of a table.
func inTable(text string) string {
	return strings.NewReplacer("|", "/", "`", "'", "\n", " ").Replace(text)
}
