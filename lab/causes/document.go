package causes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// markCount counts marks.
type markCount map[Mark]int

func (m markCount) total() int {
	n := 0
	for _, c := range m {
		n += c
	}
	return n
}

// Document is docs/causes.md: the score of the results of a corpus.
func Document(cases []Case, results map[string]Result, when time.Time) string {
	kinds, layouts, examined := map[Kind]markCount{}, map[string]markCount{}, map[string]Result{}
	var seconds, answered []float64
	changed, repaired, tried, ramdisks := 0, 0, 0, map[string]bool{}
	for _, c := range cases {
		r, ok := results[c.Name]
		if !ok || r.Disks != c.Digest() {
			continue
		}
		examined[c.Name] = r
		mark := JudgeResult(c, r)
		for _, count := range []markCount{entry(kinds, c.Kind), entry(layouts, c.Layout.Name)} {
			count[mark]++
		}
		seconds, answered = append(seconds, r.Seconds), append(answered, r.Answered)
		ramdisks[r.Ramdisk] = true
		if r.Changed || r.Written != 0 {
			changed++
		}
		if r.Repair != "" && r.Repair != NotProposed {
			tried++
		}
		if r.Repair == Proven {
			repaired++
		}
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# What a diagnosis finds\n")
	line("`make causes` writes this page. It puts known faults on the disks of installed systems and has the real ramdisk [examine](diagnose.md) them in QEMU.")
	line("The authors of the faults have not read the rules. The system of each layout first boots itself, and takes a login over ssh with the host key of its disk.\n")
	line("Written %s. Examined: %d of %d cases, by %d builds of the ramdisk, without hardware acceleration.\n", when.UTC().Format("2006-01-02"), len(examined), len(cases), len(ramdisks))
	line("## Score\n")
	line("| cases | of them examined | right | wrong | not named | noise | goal |")
	line("|---|---|---|---|---|---|---|")
	for _, k := range []struct {
		kind Kind
		goal string
	}{{Single, "90 % right, at most 3 % wrong"}, {Double, "70 % right"}, {NearMiss, "all right"}, {Healthy, "all right"}} {
		all := 0
		for _, c := range cases {
			if c.Kind == k.kind {
				all++
			}
		}
		m := kinds[k.kind]
		line("| %s: %d | %d | %s | %s | %d | %d | %s |", k.kind, all, m.total(), share(m[Right], m.total()), share(m[Wrong], m.total()), m[Unnamed], m[Noise], k.goal)
	}
	line("\n- *Right*: the verdict names the cause, and of two faults the report has both. A system that is well has no finding above `info`.")
	line("- *Wrong*: the verdict names another cause. *Not named*: it names none, or the report lacks one of two faults.")
	line("- *Noise*: a system that is well has a finding above `info` that the verdict does not call a cause.\n")
	line("Disks that an examination changed: %d. The examination took %s. After the command, the answer came in %s.\n", changed, spread(seconds), spread(answered))
	line("Repairs that were tried on single faults: %d. Proven: %s; the goal is 85 %%. A repair is proven when its undo gave all disks back byte for byte, and when the system, repaired again, booted to a login over ssh.\n", tried, share(repaired, tried))
	writeLayouts(line, layouts)
	if slices.ContainsFunc(Layouts(), func(l Layout) bool { return layouts[l.Name].total() == 0 }) {
		line("\nA layout with 0 examined cases has not passed its own boot yet. Nobody knows whether its faults and its healthy systems are found right.")
	}
	line("\nNo fault plays these causes of the catalogue:\n")
	for _, cause := range slices.Sorted(maps.Keys(UnplayedCauses())) {
		line("- %d: %s.", cause, UnplayedCauses()[cause])
	}
	writeCases(line, cases, examined)
	return b.String()
}

// writeLayouts writes the table of layouts.
func writeLayouts(line func(string, ...any), layouts map[string]markCount) {
	line("## By layout\n")
	line("| layout | system | examined | right |")
	line("|---|---|---|---|")
	for _, l := range Layouts() {
		m := layouts[l.Name]
		line("| %s | %s | %d | %s |", l.Name, l.describe(), m.total(), share(m[Right], m.total()))
	}
}

// writeCases writes one line for each examined case.
func writeCases(line func(string, ...any), cases []Case, examined map[string]Result) {
	line("\n## By cause\n")
	line("The number is that of the cause in the catalogue that the faults were chosen from.\n")
	line("| fault | number | layout | counts as right | said | seconds | mark | repair |")
	line("|---|---|---|---|---|---|---|---|")
	for _, c := range cases {
		r, ok := examined[c.Name]
		if !ok || len(c.Faults) == 0 {
			continue
		}
		var numbers, ids []string
		for _, f := range c.Faults {
			numbers, ids = append(numbers, fmt.Sprint(f.Cause)), append(ids, strings.Join(f.IDs, " or "))
		}
		line("| %s | %s | %s | %s | %s | %.1f | %s | %s |", bareName(c), strings.Join(numbers, ", "), c.Layout.Name, strings.Join(ids, "; "), describeAnswer(r), r.Seconds, JudgeResult(c, r),
			cmp.Or(r.Repair, "-"))
	}
	line("\n## Systems that are well\n")
	line("| system | layout | power | said | mark |")
	line("|---|---|---|---|---|")
	for _, c := range cases {
		if r, ok := examined[c.Name]; ok && len(c.Faults) == 0 {
			power := "switched off"
			if c.Cut || c.InUse {
				power = "cut"
			}
			line("| %s | %s | %s | %s | %s |", bareName(c), c.Layout.Name, power, describeAnswer(r), JudgeResult(c, r))
		}
	}
}

// entry gives the counter of a key, made at its first use.
func entry[K comparable](m map[K]markCount, key K) markCount {
	if m[key] == nil {
		m[key] = markCount{}
	}
	return m[key]
}

func bareName(c Case) string { return strings.TrimSuffix(c.Name, "@"+c.Layout.Name) }

// describeAnswer is the verdict, with what else the report has above info.
func describeAnswer(r Result) string {
	others := slices.DeleteFunc(slices.Clone(r.Named), func(id string) bool { return id == r.Cause })
	text := cmp.Or(r.Cause, r.Outcome)
	if len(others) > 0 {
		text += " (also " + strings.Join(others, ", ") + ")"
	}
	return text
}

func share(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d (%d %%)", n, 100*n/of)
}

// spread is the middle and the 95th percentile.
func spread(values []float64) string {
	if len(values) == 0 {
		return "no time"
	}
	slices.Sort(values)
	return fmt.Sprintf("%.1f s in the middle and %.1f s at the 95th percentile", values[len(values)/2], values[len(values)*95/100])
}

func (l Layout) describe() string {
	debian := map[string]string{"bookworm": "Debian 12", "trixie": "Debian 13"}[l.Suite]
	firmware := "BIOS"
	if l.UEFI {
		firmware = "UEFI"
	}
	parts := []string{debian, firmware, l.Loader, l.FS}
	if l.Stack != "plain" {
		parts = append(parts, map[string]string{"mdraid-lvm": "LVM on RAID 1", "luks": "LUKS"}[l.Stack])
	}
	if l.BootPartition {
		parts = append(parts, "/boot by itself")
	}
	return strings.Join(append(parts, l.Images, l.Init), ", ")
}
