package oddsystem

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// SectionTitle begins the part of docs/causes.md that this package writes.
const SectionTitle = "## Changes that nobody chose"

// PutSection puts a section into a page, in the place of the former one, or before the layouts of the catalogue.
func PutSection(page []byte, section string) []byte {
	before, after := CutSection(page)
	return append(append(bytes.Clone(before), section...), after...)
}

// CutSection cuts the section out of a page, and returns the text before the section and the text after the section.
func CutSection(page []byte) (before, after []byte) {
	if at := bytes.Index(page, []byte(SectionTitle+"\n")); at >= 0 {
		rest := page[at+len(SectionTitle):]
		if next := bytes.Index(rest, []byte("\n## ")); next >= 0 {
			return page[:at], rest[next+1:]
		}
		return page[:at], nil
	}
	if at := bytes.Index(page, []byte("## By layout\n")); at >= 0 {
		return page[:at], page[at:]
	}
	return page, nil
}

// SectionOf is the section that a page has; empty without one.
func SectionOf(page []byte) string {
	before, after := CutSection(page)
	return string(page[len(before) : len(page)-len(after)])
}

// Section is the score of results, as a section of docs/causes.md.
func Section(results []Result) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s\n", SectionTitle)
	line("`make odd` writes this section. It is another score than the one above: there, people chose the faults from a catalogue of causes. Here a generator")
	line("changes one line, mode, owner, link or file anywhere below `/etc`, `/boot`, `/usr/sbin` and `/usr/lib` of an installed system. It knows no cause.")
	line("The system's own programs say what broke: no rule of salvor takes part in that. The goals hold for %d changes.\n", wantedChanges)
	writeScore(line, results)
	line("- *Right*: the verdict names the changed file, at the rung that broke. A finding above `info` is enough if the owner still comes in by the key.")
	line("- *Wrong*: the verdict names another cause or rung. *Nothing found*: the verdict is `nothing-found` although a rung broke.")
	line("- *Noise*: nothing broke, and the report has a finding above `info`. Goals: right 85 %%, wrong at most 2 %%, nothing found and noise at most 10 %% and 2 %%.")
	line("- *No truth*: the finding is about a rung that nothing was asked about. It is in no share.\n")
	line("These are asked, in an overlay over the system, with its own namespaces of mounts, processes and network. The last two are asked of a start, for a file")
	line("that the loader or a start reads, or if a program says that the owner is out. The start itself decides whether the owner is out. A container starts")
	line("where it reads the file too, and its word counts if the owner comes in. In all other cases a machine in QEMU starts from the changed disk.")
	writeAgreement(line, results)
	line("")
	for _, r := range Rungs {
		line("- %s: %s.", r.Name, r.Asks)
	}
	line("")
	writeMisses(line, results)
	return b.String()
}

// writeAgreement says how often the machine was started after the container had let the owner in, and agreed.
func writeAgreement(line func(string, ...any), results []Result) {
	container, both, agree := 0, 0, 0
	for _, r := range results {
		if r.Container == InContainer {
			container++
		}
		if r.Container == InContainer && r.Seed%checkEvery == 0 {
			both++
			if !r.Truth.Blocks() {
				agree++
			}
		}
	}
	line("The owner came into %d containers. For each tenth seed of these the machine was started all the same: in %d of %d cases the owner came in there too.", container, agree, both)
}

// wantedChanges is how many changes a whole run judges.
const wantedChanges = 2000

// writeScore writes the table of marks.
func writeScore(line func(string, ...any), results []Result) {
	var systems []string
	of := map[string][]Result{}
	for _, r := range results {
		if of[r.System] == nil {
			systems = append(systems, r.System)
		}
		of[r.System] = append(of[r.System], r)
	}
	line("| system | changes | something broke | right | wrong | nothing found | nothing broke | noise | no truth |")
	line("|---|---|---|---|---|---|---|---|---|")
	row := func(name string, results []Result) {
		n := Count(results)
		broke, whole := n[Right]+n[Wrong]+n[Nothing], n[Quiet]+n[Noise]
		line("| %s | %d | %d | %s | %s | %s | %d | %s | %d |", name, len(results), broke, share(n[Right], broke), share(n[Wrong], broke), share(n[Nothing], broke), whole,
			share(n[Noise], whole), n[NoTruth])
	}
	for _, name := range systems {
		row(name, of[name])
	}
	row("all", results)
	line("")
}

// maxMisses bounds the list of misses on the page.
const maxMisses = 80

// writeMisses lists the changes of which the diagnosis said too little or too much.
func writeMisses(line func(string, ...any), results []Result) {
	misses := slices.DeleteFunc(slices.Clone(results), func(r Result) bool {
		mark := Judge(r)
		return mark == Right || mark == Quiet || mark == NoTruth
	})
	if len(misses) == 0 {
		return
	}
	line("| system: seed | change | broke | said | mark |")
	line("|---|---|---|---|---|")
	for _, r := range misses[:min(len(misses), maxMisses)] {
		var broke, said []string
		for _, b := range r.Truth.Broken() {
			broke = append(broke, b.Name)
		}
		for _, f := range r.Findings {
			said = append(said, f.ID)
		}
		line("| %s: %d | %s | %s | %s | %s |", r.System, r.Seed, strings.NewReplacer("|", "/", "`", "'").Replace(fmt.Sprintf("%.120s", r.Change.String())), strings.Join(broke, ", "), strings.Join(said, ", "), Judge(r))
	}
	if more := len(misses) - maxMisses; more > 0 {
		line("\n%d more are not listed.", more)
	}
	line("")
}

func share(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(of))
}
